"""docs/log-events.md lists every warning and error that the programs log, docs/develop/log-events.md the reports."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from tests.support.documents.log_events import LEVELS, LOGGERS, UNKNOWN, events, of_text
from tests.support.repository import ROOT

TEXT: Final = (ROOT / "docs/log-events.md").read_text(encoding="utf-8")
HEADINGS: Final = ("Both programs", "The scheduler", "The device plugin")
REPORTS: Final = (ROOT / "docs/develop/log-events.md").read_text(encoding="utf-8")
ROW: Final = re.compile(r"^\| `([\w.]+)`(?: \(([\w, ]+)\))? \| (.+?) \| (.+?) \|$", re.MULTILINE)
REPORT: Final = re.compile(r"^\| `([\w.]+)` \| ([\w, ]+) \| ([^|]+) \|$", re.MULTILINE)
# Of the scheduler, what the device plugin runs too.
SHARED: Final = ("scheduler/kube", "scheduler/process")
# What is told of a `Problem` stands where the problem is made.
PASSED_ON: Final = f"{UNKNOWN}: problem.happened"


def below(text: str, heading: str) -> str:
    """The section of a document."""
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(heading: str) -> list[tuple[str, str]]:
    """(event, level) of each row below a heading of docs/log-events.md; the level is shown unless it is warning."""
    return [(event, level or "warning") for event, level, _, _ in ROW.findall(below(TEXT, heading))]


def reports(heading: str) -> list[tuple[str, str]]:
    """(event, level) of each row below a heading of docs/develop/log-events.md."""
    return [(event, level) for event, level, _ in REPORT.findall(below(REPORTS, heading))]


def documented(heading: str) -> dict[str, frozenset[str]]:
    return {event: frozenset(level.split(", ")) for event, level in [*rows(heading), *reports(heading)]}


def of_folders(*folders: str) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for folder in folders:
        for event, levels in events(ROOT / folder).items():
            found[event] = found.get(event, frozenset()) | levels
    return found


def logged(heading: str) -> Mapping[str, frozenset[str]]:
    both = of_folders(*SHARED)
    if heading == "Both programs":
        return both
    of_one = of_folders("scheduler" if heading == "The scheduler" else "deviceplugin")
    return {event: levels for event, levels in of_one.items() if event not in both and event != PASSED_ON}


@pytest.mark.parametrize("heading", HEADINGS)
def test_every_event_of_a_program_is_listed_with_its_levels(heading: str) -> None:
    assert documented(heading) == logged(heading)


@pytest.mark.parametrize("listed", [rows, reports])
@pytest.mark.parametrize("heading", HEADINGS)
def test_the_events_are_in_order_and_stand_once(heading: str, listed: Callable[[str], list[tuple[str, str]]]) -> None:
    found = [event for event, _ in listed(heading)]
    assert found == sorted(set(found))


@pytest.mark.parametrize("heading", HEADINGS)
def test_only_reports_are_with_what_needs_no_action(heading: str) -> None:
    assert {level for _, levels in reports(heading) for level in levels.split(", ")} <= {"info", "debug"}
    assert [event for event, levels in rows(heading) if not {"warning", "error"} & set(levels.split(", "))] == []


@pytest.mark.parametrize(("text", "listed"), [(TEXT, rows), (REPORTS, reports)], ids=["to act on", "reports"])
def test_every_line_of_the_tables_is_a_row_that_is_read(
    text: str, listed: Callable[[str], list[tuple[str, str]]]
) -> None:
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(lines) == sum(len(listed(heading)) for heading in HEADINGS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param('log.info("a.b", pod=1)', [("a.b", "info")], id="a constant"),
        pytest.param('log.error("a" if x else "b")', [("a", "error"), ("b", "error")], id="a choice of constants"),
        pytest.param('E: Final = "a"\nlog.debug(E)', [("a", "debug")], id="a name of a constant"),
        pytest.param('say = log.info if x else log.error\nsay("a")', [("a", "info"), ("a", "error")], id="a method"),
        pytest.param('Line("warning", "a", {})', [("a", "warning")], id="a level and an event"),
        pytest.param('Problem("Pod", happened="a")', [("a", "warning")], id="a problem that happens"),
        pytest.param("log.info(f())", [("?: f()", "info")], id="nobody knows"),
        pytest.param('math.log("a")\nmetrics.info("b")', [], id="no logger"),
    ],
)
def test_an_event_is_found_wherever_it_stands(text: str, found: list[tuple[str, str]]) -> None:
    assert list(of_text(text)) == found


def test_every_logger_has_a_name_by_which_its_calls_are_found() -> None:
    found = {
        name
        for folder in ("scheduler", "deviceplugin", "config")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"(\S+) = structlog.get_logger\(", path.read_text(encoding="utf-8"))
    }
    assert found == LOGGERS


def test_the_levels_are_those_of_the_configuration() -> None:
    assert {level for heading in HEADINGS for levels in documented(heading).values() for level in levels} == LEVELS
