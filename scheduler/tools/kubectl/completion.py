"""Completions of the command line, and the scripts that make a shell request them.

kubectl calls an executable `kubectl_complete-gpushare` on PATH with the words after `kubectl gpushare`. It prints one
word per line, and then a directive. Source: kubectl's "Completion for plugins", and cobra's ShellCompDirective: 4
excludes files, 0 allows them. krew installs only `kubectl-gpushare`: the scripts call `kubectl-gpushare __complete`.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

from scheduler.process.output import show_pairs
from scheduler.tools.cli.plain import KINDS, commands_of, flag_of, is_flag, value_of

if TYPE_CHECKING:
    from typer import Typer

    from config.protocol.inventory import Card

# First argument of `kubectl-gpushare` for completions.
COMPLETE: Final = "__complete"
Shell = Literal["bash", "zsh", "fish"]
_BASH: Final = r"""# kubectl gpushare completion bash: source it, or keep it where your shell looks for completions.
_kubectl_gpushare() {
    local found first=1
    [[ $1 == 2 ]] && first=2
    found=$(kubectl-gpushare __complete "${COMP_WORDS[@]:first:COMP_CWORD-first+1}" 2>/dev/null) || return
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        [[ $word == :* ]] || COMPREPLY+=("$word")
    done <<<"$found"
}
_kubectl_with_gpushare() {
    if [[ ${COMP_WORDS[1]} == gpushare ]] && ((COMP_CWORD > 1)); then
        _kubectl_gpushare 2
        return
    fi
    if ! declare -F __start_kubectl >/dev/null && declare -F _get_comp_words_by_ref >/dev/null; then
        # Without this script, bash-completion would load it now.
        eval "$(kubectl completion bash 2>/dev/null)"
        complete -o default -F _kubectl_with_gpushare kubectl
    fi
    ! declare -F __start_kubectl >/dev/null || __start_kubectl "$@"
}
complete -o default -F _kubectl_gpushare kubectl-gpushare
complete -o default -F _kubectl_with_gpushare kubectl
"""
_ZSH: Final = r"""#compdef kubectl-gpushare
# kubectl gpushare completion zsh: source it, or keep it as _kubectl-gpushare in a folder of fpath.
_kubectl_gpushare() {
    local -a found
    found=("${(@f)$(kubectl-gpushare __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#:*}")
    (( ${#found} )) && compadd -- "${(@)found%%$'\t'*}" || _files
}
compdef _kubectl_gpushare kubectl-gpushare
"""
_FISH: Final = r"""# kubectl gpushare completion fish: source it, or keep it as kubectl-gpushare.fish, where fish looks.
function _kubectl_gpushare
    set -l words (commandline -opc) "$(commandline -ct)"
    set -l found (kubectl-gpushare __complete $words[2..] 2>/dev/null)
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
    """Return the script for `kubectl-gpushare` itself; `kubectl gpushare` only needs kubectl's own completion."""
    return _SCRIPTS[shell]


_NO_FILES, _FILES = 4, 0
# A user waits for this after pressing a key.
_PATIENCE_S: Final = 3.0
_OF_FILES: Final = frozenset({"FILE"})
_OF_NODES: Final = frozenset({"NODE", "NODE|UUID"})
_OF_CARDS: Final = "INDEX|UUID"


def candidates(command: Any, words: Sequence[str]) -> tuple[list[tuple[str, str]], int]:  # noqa: ANN401 - click's, vendored
    """Return ([(word, description)], directive). words: after the program's name; the last is the one to complete."""
    *before, begun = words or [""]
    chosen, after = _chosen(command, before)
    if chosen is None:
        return [], _NO_FILES
    if begun.startswith("-") and commands_of(chosen) and chosen.default:
        chosen = chosen.commands[chosen.default]
    option = next((one for one in chosen.params if after and after[-1] in one.opts), None)
    if option is not None and not option.is_flag:
        if value_of(option) in _OF_FILES:
            return [], _FILES
        found = _cards(before, begun) if value_of(option) == _OF_CARDS else _choices(option, before)
    elif begun.startswith("-"):
        found = list(_options(chosen))
    elif commands_of(chosen):
        # Only once a letter is typed, and no other spellings of kinds: the list stays short.
        also = [(word, f"Same as {same}.") for word, same in chosen.also.items() if begun and word not in KINDS]
        found = [*_commands(chosen), *also, *_options(chosen)]
    else:
        found = [word for one in chosen.params if not is_flag(one) for word in _choices(one, before)]
    return [(word, says) for word, says in found if word.startswith(begun)], _NO_FILES


def _chosen(command: Any, words: Sequence[str]) -> tuple[Any, Sequence[str]]:  # noqa: ANN401 - as above
    """Return (the command that the words name, the words after it); None for no command."""
    if command is None or not words or not commands_of(command):
        return command, words
    meant = command.as_meant(words)
    return _chosen(command.commands.get(meant[0]), meant[1:])


def _commands(group: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - as above
    for name, command in commands_of(group):
        yield name, command.help or ""


def _options(command: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - as above
    for option in command.params:
        if is_flag(option):
            yield flag_of(option), getattr(option, "help", "") or ""
    yield "--help", "Show the flags and exit."


def _choices(parameter: Any, before: Sequence[str]) -> list[tuple[str, str]]:  # noqa: ANN401 - as above
    if value_of(parameter) in _OF_NODES:
        return [(name, "") for name in _cluster(before)]
    return [(item.value, "") for item in parameter.shell_complete(None, "")]


def _cards(before: Sequence[str], begun: str) -> list[tuple[str, str]]:
    """Return the cards of the nodes that the words name: indexes, or UUIDs once a letter is typed."""
    cards = [card for node, cards in _cluster(before).items() if {node, f"node/{node}"} & {*before} for card in cards]
    if begun and not begun.isdigit():
        return [(card.uuid, card.model) for card in cards]
    return [(str(card.index), f"{card.uuid} {card.model}".rstrip()) for card in cards]


def _cluster(before: Sequence[str]) -> "Mapping[str, Sequence[Card]]":
    """Return the nodes and their cards, of the cluster that the words name; {} if it does not answer in time."""
    import typer  # noqa: PLC0415 - slow to import, and seldom needed

    from scheduler.kube.rest.client_config.overrides import Overrides  # noqa: PLC0415
    from scheduler.tools.cli.manifests import Unanswerable  # noqa: PLC0415
    from scheduler.tools.cli.session import nodes_with_cards  # noqa: PLC0415
    from scheduler.tools.cli.target import Target  # noqa: PLC0415

    said = dict(pairwise(before))
    cluster, user, server, token = (said.get(f"--{name}", "") for name in ("cluster", "user", "server", "token"))
    target = Target(
        program="",
        kubeconfig=said.get("--kubeconfig", ""),
        context=said.get("--context", ""),
        overrides=Overrides(cluster=cluster, user=user, server=server, token=token),
    )

    async def in_time() -> "Mapping[str, Sequence[Card]]":
        async with asyncio.timeout(_PATIENCE_S):
            return await nodes_with_cards(target)

    try:
        return asyncio.run(in_time())
    except (Unanswerable, TimeoutError, typer.Exit):
        return {}


def complete(program: "Typer", typed: Sequence[str]) -> None:
    """Print what may follow. typed: the words after the program's name; the last is the one to complete."""
    from typer.main import get_command  # noqa: PLC0415 - slow to import

    words, directive = candidates(get_command(program), typed)
    show_pairs([*words, (f":{directive}", "")])
