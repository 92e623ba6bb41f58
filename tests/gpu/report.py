"""Results of the checks, as Markdown. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """SKIPPED: it cannot run here; the text says why."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """check: a few words. text: what was found, or why it failed or was skipped."""

    check: str
    verdict: Verdict
    text: str
    took_s: float = 0.0


@dataclass(slots=True)
class Report:
    """versions: name -> version, of the machine's programs."""

    versions: dict[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether something was checked, and no check failed."""
        verdicts = {one.verdict for one in self.results}
        return Verdict.PASSED in verdicts and Verdict.FAILED not in verdicts


def as_markdown(report: Report) -> str:
    """The report; ends with a line break."""
    counts = [(verdict, sum(one.verdict is verdict for one in report.results)) for verdict in Verdict]
    head = ", ".join(f"{count} {verdict}" for verdict, count in counts)
    versions = _table(("what", "version"), [(name, found) for name, found in report.versions.items()])
    rows = [(one.check, one.verdict.value, one.text, f"{one.took_s:.1f}") for one in report.results]
    results = _table(("check", "result", "found", "seconds"), rows)
    return f"# Test on a real card\n\n{head}\n\n{versions}\n\n{results}\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([_row(heads), _row(["---"] * len(heads)), *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"
