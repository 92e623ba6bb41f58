"""Completions of the command line, and the scripts that have a shell ask for them.

kubectl calls an executable `kubectl_complete-gpushare` on PATH, with the words after `kubectl gpushare`; it prints a
word a line, and at the end a directive. Source: kubectl's "Completion for plugins", and cobra's ShellCompDirective: 4
excludes files, 0 allows them.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

from scheduler.process.output import show_pairs
from scheduler.tools.cli import ending

Shell = Literal["bash", "zsh", "fish"]
_BASH: Final = r"""# kubectl gpushare completion bash: source it, or keep it where your shell looks for completions.
_kubectl_gpushare() {
    local found
    found=$(kubectl_complete-gpushare "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        [[ $word == :* ]] || COMPREPLY+=("$word")
    done <<<"$found"
}
complete -o default -F _kubectl_gpushare kubectl-gpushare
"""
_ZSH: Final = r"""#compdef kubectl-gpushare
# kubectl gpushare completion zsh: source it, or keep it as _kubectl-gpushare in a folder of fpath.
_kubectl_gpushare() {
    local -a found
    found=("${(@f)$(kubectl_complete-gpushare "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#:*}")
    (( ${#found} )) && compadd -- "${(@)found%%$'\t'*}" || _files
}
compdef _kubectl_gpushare kubectl-gpushare
"""
_FISH: Final = r"""# kubectl gpushare completion fish: source it, or keep it as kubectl-gpushare.fish, where fish looks.
function _kubectl_gpushare
    set -l words (commandline -opc) "$(commandline -ct)"
    set -l found (kubectl_complete-gpushare $words[2..] 2>/dev/null)
    or return
    if test "$found[-1]" = ":0"
        __fish_complete_path $words[-1]
    else
        string match --invert ':*' -- $found
    end
end
complete --command kubectl-gpushare --no-files --arguments '(_kubectl_gpushare)'
"""
_SCRIPTS: Final[dict[Shell, str]] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(shell: Shell) -> str:
    """For `kubectl-gpushare` itself; `kubectl gpushare` only needs kubectl's own completion."""
    return _SCRIPTS[shell]


_NO_FILES, _FILES = 4, 0
# A user waits for this after pressing a key.
_PATIENCE_S: Final = 3.0
_OF_FILES: Final = frozenset({"--config", "--kubeconfig", "--file", "-f", "--cluster"})


def candidates(command: Any, words: Sequence[str]) -> tuple[list[tuple[str, str]], int]:  # noqa: ANN401 - click's, vendored
    """([(word, description)], directive). words: after the program's name; the last is the one to complete."""
    *before, begun = words or [""]
    found: list[tuple[str, str]] = []
    name = next((word for word in before if not word.startswith("-")), "")
    if name not in command.commands:
        found = [*_commands(command), *_options(command)] if not name else []
    else:
        chosen, last = command.commands[name], before[-1]
        if last in _OF_FILES:
            return [], _FILES
        option = next((one for one in chosen.params if last in one.opts), None)
        if option is not None and not option.is_flag:
            found = _choices(option, before)
        elif begun.startswith("-"):
            found = list(_options(chosen))
        else:
            found = [word for one in chosen.params if not _dashed(one) for word in _choices(one, before)]
    return [(word, says) for word, says in found if word.startswith(begun)], _NO_FILES


def _commands(group: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - as above
    for name, command in group.commands.items():
        yield name, command.get_short_help_str(60)


def _options(command: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - as above
    for option in command.params:
        if _dashed(option):
            yield max(option.opts, key=len), getattr(option, "help", "") or ""
    yield "--help", "Show the flags and exit."


def _choices(parameter: Any, before: Sequence[str]) -> list[tuple[str, str]]:  # noqa: ANN401 - as above
    if parameter.name == "node":
        return [(name, "") for name in _nodes(before)]
    return [(item.value, "") for item in parameter.shell_complete(None, "")]


def _nodes(before: Sequence[str]) -> list[str]:
    """Nodes with an inventory, of the cluster that the words name so far; none if it does not answer in time."""
    import typer  # noqa: PLC0415 - slow to import, and seldom needed

    from scheduler.tools.cli.answering import configured, connection_flags  # noqa: PLC0415
    from scheduler.tools.cli.asking import nodes_with_cards  # noqa: PLC0415
    from scheduler.tools.cli.manifests import Unanswerable  # noqa: PLC0415

    said = dict(pairwise(before))
    kubeconfig = said.get("--kubeconfig")
    try:
        flags = connection_flags(Path(kubeconfig) if kubeconfig else None, said.get("--context"))
        configuration = configured("", None, flags)
        return asyncio.run(asyncio.wait_for(nodes_with_cards(configuration, os.environ), _PATIENCE_S))
    except (Unanswerable, TimeoutError, typer.Exit):
        return []


def _dashed(parameter: Any) -> bool:  # noqa: ANN401 - as above
    return all(one.startswith("-") for one in parameter.opts)


def main() -> None:
    """The console script `kubectl_complete-gpushare`."""
    from scheduler.process.logs import configure_for_commands  # noqa: PLC0415 - slow to import

    configure_for_commands()
    ending.run("kubectl_complete-gpushare", _complete)


def _complete() -> None:
    from typer.main import get_command  # noqa: PLC0415 - slow to import

    from scheduler.tools.kubectl.main import cli  # noqa: PLC0415

    words, directive = candidates(get_command(cli), sys.argv[1:])
    show_pairs([*words, (f":{directive}", "")])
