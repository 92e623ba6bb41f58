"""Findings of `kubectl gpushare audit` and `doctor`, with their remedies. Pure."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from scheduler.kube import objects
from scheduler.tools.explain.answers import Answer
from scheduler.tools.explain.tones import Line, Tone

_MOST_SHOWN: Final = 20


class Severity(StrEnum):
    """FAILED sets the exit code; UNKNOWN could not be checked."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


class ClusterFinding(Answer, frozen=True):
    """check: one word, as in docs/kubectl.md. about: the objects, as `node/a` and `pod/default/p`.

    remedy: what to do, or "".
    """

    check: str
    severity: Severity
    message: str
    about: tuple[str, ...] = ()
    remedy: str = ""


class Findings(Answer, frozen=True):
    """Findings in their order of importance. looked_at: the objects read, in words."""

    looked_at: str
    findings: tuple[ClusterFinding, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing failed."""
        return all(one.severity is not Severity.FAILED for one in self.findings)


def of_nodes(
    check: str, severity: Severity, message: str, nodes: Sequence[objects.Node], remedy: str
) -> ClusterFinding:
    """About each of the nodes."""
    about = tuple(f"node/{node.metadata.name}" for node in nodes)
    return ClusterFinding(check=check, severity=severity, message=message, about=about, remedy=remedy)


def count(found: Sequence[object], what: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}"


_TONES: Final = {
    Severity.OK: Tone.GOOD,
    Severity.WARNING: Tone.WARNING,
    Severity.FAILED: Tone.BAD,
    Severity.UNKNOWN: Tone.WARNING,
}


def lines(found: Findings) -> Iterator[Line]:
    """Lines for a terminal."""
    counts = [(severity, sum(one.severity is severity for one in found.findings)) for severity in Severity]
    told = ", ".join(f"{count} {severity}" for severity, count in counts if count)
    yield Line(f"{found.looked_at}. {f'Found: {told}.' if told else 'Nothing was found.'}")
    for one in found.findings:
        yield Line(f"{one.severity:8} {one.check}: {one.message}", _TONES[one.severity])
        # Names in the sentence are not repeated.
        yield from _about([name for name in one.about if name.partition("/")[2] not in one.message])
        if one.remedy:
            yield Line(f"{'':8} do: {one.remedy}")


def _about(names: Sequence[str]) -> Iterator[Line]:
    for name in names[:_MOST_SHOWN]:
        yield Line(f"{'':10} {name}")
    if len(names) > _MOST_SHOWN:
        yield Line(f"{'':10} and {len(names) - _MOST_SHOWN} more")
