"""What docs/develop/write-a-rule.md quotes is what the kit says of its rule."""

import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from scheduler.pods.gpu_request import ResourceNames
from scheduler.state.changes import Change
from scheduler.state.tables import Tables
from scheduler.testing.rules.check import RuleBroken, check_rule
from tests.support.builders import wire_node
from tests.support.documents import guide

TEXT: Final = guide.GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("left_out", "quoted"),
    [
        pytest.param(
            {"depends": Change(0)}, "`depends` lacks PODS: the answer for node n1 changed with the pods on it"
        ),
        pytest.param({"signature": lambda *_: None}, "`signature` lacks owner_uid"),
    ],
)
def test_the_kit_says_what_the_guide_quotes(left_out: Mapping[str, Any], quoted: str) -> None:
    names: dict[str, Any] = {"__name__": "max_pods_per_owner"}
    exec(guide.files()["max_pods_per_owner.py"], names)  # noqa: S102 - the guide's file
    rule = type("MaxPodsPerOwner", (names["MaxPodsPerOwner"],), dict(left_out))
    assert quoted in TEXT
    with pytest.raises(RuleBroken) as broken:
        check_rule(rule, shrink_s=0.1)
    # On which node it shows depends on how far the search came.
    assert re.sub(r"n\d", "n", quoted) in re.sub(r"n\d", "n", str(broken.value).splitlines()[0])


@pytest.mark.parametrize(
    ("quoted", "expected"),
    [
        pytest.param('column.codes[rows] == column.values.code("gold")', [True, False], id="a label"),
        pytest.param('column.codes[rows] == column.values.code("lead")', [False, False], id="a value that no node has"),
        pytest.param("tables.unschedulable[rows]", [False, False], id="cordoned"),
        pytest.param("tables.resources.allocatable[i, rows]", [64_000, 64_000], id="allocatable"),
        pytest.param("tables.resources.requested[i, rows]", [0, 0], id="requested"),
        pytest.param("tables.cards.free[:, rows]", [[16, 8], [0, 8]], id="free"),
        pytest.param("tables.cards.holders[:, rows]", [[0, 0], [0, 0]], id="holders"),
    ],
)
def test_the_tables_are_read_as_the_guide_says(quoted: str, expected: object) -> None:
    tables = Tables(ResourceNames())
    tables.upsert_node(wire_node("a", [16], labels={"example.com/tier": "gold"}))
    tables.upsert_node(wire_node("b", [8, 8]))
    names: dict[str, Any] = {"tables": tables, "rows": slice(2)}
    for assignment in ('column = tables.labels.column("example.com/tier")', 'i = tables.resources.index["cpu"]'):
        assert f"`{assignment}`" in TEXT
        exec(assignment, names)  # noqa: S102 - the guide's
    of_tables = quoted.replace("lead", "gold").replace("tables.resources", "").replace("tables.cards", "")
    assert of_tables.replace("tables.unschedulable", "") in TEXT
    # Of cards there are more lines, for nodes that have more.
    assert eval(quoted, names)[:2].tolist() == expected  # noqa: S307 - the guide's
