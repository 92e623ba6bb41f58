"""The end of every command: its exit code, one line on standard error without an answer, colored lines of one."""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Final, NoReturn, TextIO

import typer

from config.settings.load import load
from config.settings.mistakes import ConfigurationError
from config.settings.scheduler import SchedulerConfiguration, configuration_model
from scheduler.process.output import show_json, warn
from scheduler.tools.cli.manifests import Unanswerable, Unreadable
from scheduler.tools.explain.answers import Answer, as_json
from scheduler.tools.explain.tones import Line, as_text
from scheduler.tools.inspect.wire import is_name

ENV_PREFIX: Final = "GPUSHARE_SCHEDULER_"
# kubectl's names of the kind.
_POD_KINDS: Final = frozenset({"pod", "pods", "po"})


class Exit(IntEnum):
    """FOUND: the object of the command has a problem, or does not exist. UNREACHABLE: the cluster does not answer."""

    FINE = 0
    FOUND = 1
    USAGE = 2
    UNREACHABLE = 3


def give_up(program: str, message: str, code: Exit = Exit.USAGE) -> NoReturn:
    """End with the problem on standard error. A list of mistakes names its file itself."""
    lines = message.split("\n")
    warn(lines if len(lines) > 1 else [f"{program}: {message}"])
    raise typer.Exit(code)


@contextlib.contextmanager
def answering(program: str) -> Iterator[None]:
    """End the program if there is no answer."""
    try:
        yield
    except Unanswerable as error:
        give_up(program, str(error), Exit.UNREACHABLE if isinstance(error, Unreadable) else Exit.FOUND)


def configured(program: str, config: Path | None, flags: Mapping[str, object]) -> SchedulerConfiguration:
    """The scheduler's configuration; ends the program, with every mistake, where it has some."""
    from scheduler.core.build import BrokenPlugin  # noqa: PLC0415 - slow to import

    try:
        return loaded(config, flags)
    except (ConfigurationError, BrokenPlugin) as error:
        give_up(program, str(error))


def loaded(config: Path | None, flags: Mapping[str, object]) -> SchedulerConfiguration:
    """The configuration; raises ConfigurationError with every mistake, and BrokenPlugin."""
    from scheduler.core.build import installed_plugins  # noqa: PLC0415 - slow to import
    from scheduler.plugins.registry import describe  # noqa: PLC0415

    model = configuration_model(describe(installed_plugins()))
    return load(model, file=config, environ=os.environ, flags=flags, env_prefix=ENV_PREFIX)


def connection_flags(kubeconfig: Path | None, context: str | None) -> dict[str, object]:
    """The flags under their names in the configuration."""
    return {
        "clientConnection.kubeconfig": str(kubeconfig) if kubeconfig else None,
        "clientConnection.context": context,
    }


def named_pod(program: str, pod: str, namespace: str) -> tuple[str, str]:
    """(namespace, name) of `NAME`, `pod/NAME` or `NAMESPACE/NAME`. namespace: of the flag, "" without it.

    "" if unset: the namespace of the kubeconfig's context.
    """
    before, slash, name = pod.rpartition("/")
    named = not slash or before in _POD_KINDS
    found = namespace if named else before
    contradicts = not named and namespace not in {"", before}
    if contradicts or not is_name(name) or not (is_name(found) or (named and not namespace)):
        of = f" of namespace {namespace}" if namespace else ""
        give_up(program, f"{pod or repr(pod)} is no pod{of}: expected NAME or NAMESPACE/NAME")
    return found, name


def show_answer(answer: Answer, lines: Iterable[Line], output: str) -> None:
    """Print it: the lines, or JSON where `output` says so."""
    if output == "json":
        show_json(as_json(answer))
    else:
        show_lines(lines)


def show_lines(lines: Iterable[Line]) -> None:
    """Print them."""
    sys.stdout.write(as_text(lines, colour=wanted(sys.stdout, os.environ)))


def wanted(out: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether to colour. Source of NO_COLOR, which counts unless it is empty: no-color.org."""
    return out.isatty() and not environment.get("NO_COLOR") and environment.get("TERM", "") != "dumb"
