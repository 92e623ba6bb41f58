"""What the doctor says: one finding for each check, with what to do. Pure."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from scheduler.process.terminal import columns, one_line


class Verdict(StrEnum):
    """UNKNOWN: what the check looks at could not be looked at; an earlier finding says why."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Finding(msgspec.Struct, frozen=True):
    """check: one word, as docs/first-gpu-node.md has it. remedy: what to do, "" where nothing is to be done."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


class Examination(msgspec.Struct, frozen=True):
    """In the order in which a new node fails."""

    node: str
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether no check failed."""
        return all(one.verdict is not Verdict.FAILED for one in self.findings)


def encode(report: Examination) -> bytes:
    """As JSON."""
    return msgspec.json.encode(report)


def as_text(report: Examination) -> str:
    """For people; ends with a line break."""
    counts = [(verdict, sum(one.verdict is verdict for one in report.findings)) for verdict in Verdict]
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
    head = one_line(f"Node {report.node}: {told}")
    rows = [(one.check, one.verdict.value, one.found) for one in report.findings]
    todo = [one_line(f"  {one.check}: {one.remedy}") for one in report.findings if one.remedy]
    parts = [head, _table(("CHECK", "RESULT", "FOUND"), rows), "\n".join(["What to do:", *todo]) if todo else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(columns(heads, [[one_line(cell) for cell in row] for row in rows]))
