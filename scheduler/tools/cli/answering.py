"""End of every command: its exit code, one line on standard error if there is no answer, and colored lines."""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Final, Literal, NoReturn, TextIO

import msgspec
import typer

from config.settings.load import load
from config.settings.mistakes import ConfigurationError
from config.settings.scheduler import SchedulerConfiguration, configuration_model
from scheduler.process.output import show_json, show_text, warn
from scheduler.tools.cli.manifests import Unanswerable, Unreadable
from scheduler.tools.cli.plain import KINDS
from scheduler.tools.explain.answers import Answer, as_json
from scheduler.tools.explain.tones import Line, Tone, as_text
from scheduler.tools.inspect.wire import is_name

ENV_PREFIX: Final = "GPUSHARE_SCHEDULER_"


class Exit(IntEnum):
    """Exit codes. FOUND: the object has a problem or does not exist. UNREACHABLE: the cluster does not answer."""

    FINE = 0
    FOUND = 1
    USAGE = 2
    UNREACHABLE = 3


def give_up(program: str, message: str, code: Exit = Exit.USAGE) -> NoReturn:
    """Print the message on standard error and exit. A message of one line gets the program's name as prefix."""
    lines = message.split("\n")
    warn(lines if len(lines) > 1 else [f"{program}: {message}"])
    raise typer.Exit(code)


@contextlib.contextmanager
def answering(program: str) -> Iterator[None]:
    """End the program with an error message if the block fails to find an answer."""
    try:
        yield
    except Unanswerable as error:
        give_up(program, str(error), Exit.UNREACHABLE if isinstance(error, Unreadable) else Exit.FOUND)


def configured(
    program: str, config: Path | None, flags: Mapping[str, object], text: str | None = None
) -> SchedulerConfiguration:
    """Return the scheduler's configuration; list all mistakes and exit if there are any. text: see `load`."""
    from scheduler.core.build import BrokenPlugin  # noqa: PLC0415 - slow to import

    try:
        return loaded(config, flags, text)
    except (ConfigurationError, BrokenPlugin) as error:
        give_up(program, str(error))


def loaded(config: Path | None, flags: Mapping[str, object], text: str | None = None) -> SchedulerConfiguration:
    """Return the configuration. Raises ConfigurationError with every mistake, and BrokenPlugin. text: see `load`."""
    from scheduler.core.build import installed_plugins  # noqa: PLC0415 - slow to import
    from scheduler.plugins.registry import describe  # noqa: PLC0415

    model = configuration_model(describe(installed_plugins()))
    return load(model, file=config, text=text, environ=os.environ, flags=flags, env_prefix=ENV_PREFIX)


def named_pod(program: str, pod: str, namespace: str) -> tuple[str, str]:
    """Return (namespace, name) for `NAME`, `pod/NAME` or `NAMESPACE/NAME`.

    namespace: the flag's, "" if it is not given. The returned namespace is "" if neither names one: the kubeconfig's
    context then decides.
    """
    before, slash, name = pod.rpartition("/")
    named = not slash or KINDS.get(before) == "pods"
    found = namespace if named else before
    contradicts = not named and namespace not in {"", before}
    if contradicts or not is_name(name) or not (is_name(found) or (named and not namespace)):
        of = f" in namespace {namespace}" if namespace else ""
        give_up(program, f"invalid pod {pod or repr(pod)}{of}: expected NAME or NAMESPACE/NAME")
    return found, name


def bare_name(program: str, kind: Literal["node", "pod"], text: str) -> str:
    """Return the name in `NAME` or `kind/NAME`, as printed by kubectl's `-o name`. Exits for another prefix."""
    before, slash, name = text.rpartition("/")
    if slash and KINDS.get(before) != f"{kind}s":
        give_up(program, f"invalid {kind} {text}: expected NAME or {kind}/NAME")
    return name


def show_answer(answer: Answer, lines: Iterable[Line], output: str | None) -> None:
    """Print the answer: as JSON or YAML if `output` says so, otherwise as lines."""
    if not show_document(answer, output):
        show_lines(lines)


def show_document(answer: Answer, output: str | None) -> bool:
    """Print the answer as JSON or YAML. Returns False if `output` is neither."""
    if output == "json":
        show_json(as_json(answer))
    elif output == "yaml":
        import yaml  # noqa: PLC0415 - slow to import

        # Without allow_unicode, every control character is escaped.
        show_text(yaml.safe_dump(msgspec.to_builtins(answer), sort_keys=False))
    return output in {"json", "yaml"}


def show_lines(lines: Iterable[Line], *, headers: bool = True) -> None:
    """Print lines. headers: whether to include the titles of columns."""
    shown = (line for line in lines if headers or line.tone is not Tone.HEAD)
    sys.stdout.write(as_text(shown, colour=wanted(sys.stdout, os.environ)))
    sys.stdout.flush()


def wanted(out: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether to color the output. NO_COLOR disables colors unless it is empty. Source: no-color.org."""
    return out.isatty() and not environment.get("NO_COLOR") and environment.get("TERM", "") != "dumb"
