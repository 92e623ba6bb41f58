"""Translates the command line of the legacy device plugin into ours. Pure.

Its DaemonSet starts `gpushare-device-plugin-v2 -logtostderr --v=5 --memory-unit=GiB`: no subcommand, one dash or two,
`--flag=value` or `--flag value`, and a boolean flag alone or with `=value`, as in Go's package flag.
Source: AliyunContainerService/gpushare-device-plugin, cmd/nvidia/main.go and device-plugin-ds.yaml; glog's own flags.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_FLAG: Final = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)
_KEPT_WITH_VALUE: Final = frozenset({"memory-unit"})
_KEPT_BOOLEAN: Final = frozenset({"health-check"})
_IGNORED_BOOLEAN: Final = frozenset({"mps", "query-kubelet", "logtostderr", "alsologtostderr"})
_IGNORED_WITH_VALUE: Final = frozenset(
    {
        "mps-pipe",
        "kubelet-address",
        "kubelet-port",
        "client-cert",
        "client-key",
        "token",
        "timeout",
        "v",
        "vmodule",
        "stderrthreshold",
        "log_dir",
        "log_backtrace_at",
    }
)
_OF_NO_COMMAND: Final = frozenset({"--help", "-h", "--version"})
_RUN: Final = "run"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Arguments for our own commands. ignored: names of the flags that have no meaning here, without duplicates."""

    arguments: list[str]
    ignored: tuple[str, ...]


def as_ours(arguments: Sequence[str]) -> CommandLine:
    """Return the command line with the legacy plugin's flags translated or removed.

    arguments: without the program's name. An empty list, or a flag first, means `run`. Commands other than `run` never
    had such flags and are unchanged.
    """
    given = list(arguments)
    if not given or (given[0].startswith("-") and given[0] not in _OF_NO_COMMAND):
        given.insert(0, _RUN)
    if given[0] != _RUN:
        return CommandLine(given, ())
    ignored: dict[str, None] = {}
    return CommandLine([_RUN, *_translated(iter(given[1:]), ignored)], tuple(ignored))


def _translated(arguments: Iterator[str], ignored: dict[str, None]) -> Iterator[str]:
    for argument in arguments:
        match = _FLAG.fullmatch(argument)
        name, value = (match[1], match[2]) if match else ("", None)
        if name in _IGNORED_BOOLEAN:
            ignored[f"--{name}"] = None
        elif name in _IGNORED_WITH_VALUE:
            ignored[f"--{name}"] = None
            if value is None:
                next(arguments, None)
        elif name in _KEPT_BOOLEAN:
            yield f"--{name}={'true' if value is None else value}"
        elif name in _KEPT_WITH_VALUE:
            yield f"--{name}" if value is None else f"--{name}={value}"
        else:
            yield argument
