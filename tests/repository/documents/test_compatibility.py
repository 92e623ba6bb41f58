"""docs/compatibility.md, "Your version", says what the table of features and the pinned servers say."""

from typing import Final

import pytest

from e2e.control_plane import pinned
from scheduler.kube import versions
from scheduler.kube.versions import Feature, Minor
from tests.support.repository import ROOT

TEXT: Final = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
FEATURES: Final = tuple(
    dict.fromkeys((*versions.OF_THE_SCHEDULER, *versions.OF_THE_DEVICE_PLUGIN, *versions.OF_THE_KUBELET))
)
OFF: Final = "off"


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


HEAD, *ROWS = (
    cells(line)
    for line in TEXT.partition("## Your version\n")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ")
)
MINORS: Final = {column: found for column, cell in enumerate(HEAD) if (found := versions.minor_of(cell))}


@pytest.mark.parametrize("feature", FEATURES, ids=[feature.name for feature in FEATURES])
def test_a_feature_is_off_in_the_document_where_it_is_in_the_table(feature: Feature) -> None:
    (row,) = (row for row in ROWS if f"`{feature.name}`" in row[0])

    assert {minor for column, minor in MINORS.items() if row[column] != OFF} == {
        minor for minor in MINORS.values() if feature.on(minor)
    }


def test_the_versions_that_were_run_are_those_that_are_pinned() -> None:
    (run,) = (row for row in ROWS if row[0] == "run here with")
    modules = ("kubernetes", *(f"kubernetes-{minor}" for minor in pinned.other_minors()))
    wanted = {versions.minor_of(found): found.removeprefix("v") for found in map(pinned.kubernetes_of, modules)}

    assert {minor: run[column] for column, minor in MINORS.items() if run[column] != "not tried"} == wanted


def test_nothing_is_said_to_have_run_with_a_version_that_was_not() -> None:
    tried = {Minor(1, each) for each in range(versions.OLDEST_RUN.minor, versions.NEWEST_RUN.minor + 1)}
    assert [
        row[0] for row in ROWS for column, minor in MINORS.items() if row[column] == "run" and minor not in tried
    ] == []
    assert {
        cell for row in ROWS for column, cell in enumerate(row) if column in MINORS and row[0] != "run here with"
    } <= {
        "run",
        "source",
        OFF,
        "",
    }
