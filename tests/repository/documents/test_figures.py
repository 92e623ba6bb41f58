"""What docs/tuning.md and docs/operations.md say of figures and defaults is what the measured documents and models say.

A figure is measured once. Where another document repeats it, the text of the link that leads to the measurement has the
figure, or the row of a table that ends with that link; here each is looked up there.
"""

import re
from functools import cache
from typing import Any, Final

import pytest
import yaml

from tests.support.documents.anchors import anchor_of
from tests.support.repository import ROOT

DOCUMENTS: Final = ("docs/tuning.md", "docs/operations.md", "docs/faq.md")
MEASURED: Final = ("evidence/benchmarks.md", "evidence/reliability.md", "evidence/tested-on.md")
LINK: Final = re.compile(r"\[([^\]]*)\]\(([\w./-]+\.md)#([\w-]+)\)")
# Not those of a version, of a name or of a place in a text.
FIGURE: Final = re.compile(r"(?<![\w.,#/-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w-])")
HEADING: Final = re.compile(r"^(#+) (.+)$", re.MULTILINE)
TUNING: Final = (ROOT / "docs/tuning.md").read_text(encoding="utf-8")
CHART: Final[dict[str, Any]] = yaml.safe_load(
    (ROOT / "deploy/chart/gpushare-scheduler/values.yaml").read_text(encoding="utf-8")
)
FIELD: Final = re.compile(r"^\| `(\w+)` \| .*? \| (?:`(.*?)`|see below|\(required\)|) \|", re.MULTILINE)
KEY: Final = re.compile(r"`([a-z]\w+)`,? ([\w.]+)")


@cache
def sections(document: str) -> dict[str, str]:
    """By anchor: a heading and what is below it, up to the next one that is as high."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    headings = list(HEADING.finditer(text))
    found = {}
    for number, one in enumerate(headings):
        higher = (next_one.start() for next_one in headings[number + 1 :] if len(next_one[1]) <= len(one[1]))
        found[anchor_of(one[2])] = text[one.start() : next(higher, len(text))]
    return found


def claims(text: str) -> list[tuple[str, str, str]]:
    """(what is said, document, anchor): the text of each link to a measurement, or of the row whose last cell it is."""
    said = []
    for line in re.sub(r"(?<!\|)\n(?!\n|\||#|-)", " ", text).splitlines():
        row, _, last = line.rstrip("| ").rpartition(" | ")
        for words, document, anchor in LINK.findall(line):
            if document in MEASURED:
                said.append((row if LINK.fullmatch(last) else words, document, anchor))
    return said


ALL: Final = [(name, *claim) for name in DOCUMENTS for claim in claims((ROOT / name).read_text(encoding="utf-8"))]


def unmeasured(said: str, measured: str) -> list[str]:
    """Figures that the measurement does not have."""
    known = set(FIGURE.findall(measured))
    return [figure for figure in FIGURE.findall(re.sub(r"`[^`]*`", "", said)) if figure not in known]


@pytest.mark.parametrize(("name", "said", "document", "anchor"), ALL)
def test_a_figure_that_is_repeated_is_the_measured_one(name: str, said: str, document: str, anchor: str) -> None:
    del name
    assert unmeasured(said, sections(document)[anchor]) == []


def test_figures_are_repeated() -> None:
    assert len([said for _, said, _, _ in ALL if FIGURE.search(said)]) > 10


def test_a_figure_that_nobody_measured_is_found() -> None:
    assert unmeasured("`8.5` pods: 1,234 MiB and 5 s", "| pods | 1,234 MiB |") == ["5"]


def settings(heading: str) -> list[tuple[str, str]]:
    """(key, default) of the rows of a section of docs/tuning.md, as far as a row says both."""
    rows = re.findall(r"^\| (`[^|]+?) \|", TUNING.partition(f"\n## {heading}\n")[2].partition("\n## ")[0], re.MULTILINE)
    return [found for row in rows for found in KEY.findall(row)]


@pytest.mark.parametrize(
    ("heading", "document"),
    [("Settings of the scheduler", "configuration.md"), ("Settings of the device plugin", "configuration-node.md")],
)
def test_a_setting_has_the_default_that_the_configuration_has(heading: str, document: str) -> None:
    """That document is made from the models."""
    defaults = dict(FIELD.findall((ROOT / "docs" / document).read_text(encoding="utf-8")))
    found = [one for one in settings(heading) if one[0] != "leaderElection"]
    assert len(found) > 6
    assert [(key, said, defaults.get(key)) for key, said in found if said != (defaults.get(key) or "none")] == []


def test_the_times_of_the_election_are_the_defaults() -> None:
    defaults = dict(FIELD.findall((ROOT / "docs/configuration.md").read_text(encoding="utf-8")))
    times = ", ".join(defaults[key] for key in ("leaseDuration", "renewDeadline", "retryPeriod"))
    assert f"| `leaderElection`, {times} |" in TUNING


@pytest.mark.parametrize(
    ("path", "said"), re.findall(r"^\| `((?:scheduler|devicePlugin)\.[\w.]+)` \| ([\w, ]+) \|", TUNING, re.MULTILINE)
)
def test_the_chart_requests_what_the_document_says(path: str, said: str) -> None:
    value: Any = CHART
    for key in path.split("."):
        value = value[key]
    assert said == (", ".join(value.values()) if isinstance(value, dict) else str(value))
