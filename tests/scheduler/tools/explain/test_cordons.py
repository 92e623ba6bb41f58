"""What the annotation becomes, and what is said."""

from dataclasses import replace

import pytest

from config.protocol import names
from config.protocol.inventory import Health
from scheduler.state.tables import Tables
from scheduler.testing.cluster.world import World
from scheduler.tools.explain.cordons import Cordon, NoSuchCard, cordoned, uncordoned
from tests.support.builders import card, wire_node
from tests.support.explaining import asked, there, world


def node_with(cordon: str = "", *cards: object) -> World:
    of = world()
    annotations = {names.CORDON: cordon} if cordon else {}
    of.nodes.add(wire_node("a", cards or [16, 16], annotations=annotations))  # type: ignore[arg-type]
    return of


def tables(of: World) -> Tables:
    return asked(of).reading.engine.tables


@pytest.mark.parametrize(
    ("before", "cards", "after", "changed"),
    [
        pytest.param("", ["0"], "GPU-a-0", True, id="an index becomes the UUID"),
        pytest.param("", ["GPU-a-1"], "GPU-a-1", True, id="a UUID"),
        pytest.param("", [], "GPU-a-0,GPU-a-1", True, id="the whole node"),
        pytest.param("GPU-a-0", ["0"], "GPU-a-0", False, id="cordoned already"),
        pytest.param("0", ["0"], "GPU-a-0", False, id="by its index already"),
        pytest.param("GPU-gone, 1", ["0"], "GPU-gone,GPU-a-1,GPU-a-0", True, id="others stay"),
    ],
)
def test_cordoning(before: str, cards: list[str], after: str, *, changed: bool) -> None:
    made = cordoned(tables(node_with(before)), "a", cards)
    assert (made.value, made.changed) == (after, changed)


@pytest.mark.parametrize(
    ("before", "cards", "after", "changed"),
    [
        pytest.param("GPU-a-0,GPU-a-1", ["0"], "GPU-a-1", True, id="one of two"),
        pytest.param("0", ["GPU-a-0"], None, True, id="the last, by its index"),
        pytest.param("GPU-a-0,GPU-gone", [], None, True, id="everything"),
        pytest.param("GPU-gone", ["GPU-gone"], None, True, id="an entry that is no card"),
        pytest.param("GPU-gone,1", ["GPU-gone"], "GPU-a-1", True, id="that entry alone"),
        pytest.param("1", ["0"], "GPU-a-1", False, id="was not cordoned"),
        pytest.param("", [], None, False, id="nothing was"),
    ],
)
def test_uncordoning(before: str, cards: list[str], after: str | None, *, changed: bool) -> None:
    made = uncordoned(tables(node_with(before)), "a", cards)
    assert (made.value, made.changed) == (after, changed)


def test_pods_that_stay_are_named() -> None:
    of = node_with()
    there(of, "p", 3, "a", 0)
    assert cordoned(tables(of), "a", []).words == (
        "node a: card 0 (GPU-a-0) takes no new pods; its pods stay: default/p (3)",
        "node a: card 1 (GPU-a-1) takes no new pods; no pod uses it",
    )


def test_a_card_that_is_out_for_another_reason_as_well_says_so() -> None:
    failed = replace(card(0, 16, health=Health.UNHEALTHY), reason="xid-79")
    made = uncordoned(tables(node_with("0,1", failed, card(1, 16))), "a", [])
    assert made.words == (
        "node a: card 0 (GPU-a-0) is no longer cordoned, but is unhealthy and takes no pods until it has recovered",
        "node a: card 1 (GPU-a-1) takes new pods again",
    )


def test_the_legacy_list_is_named_where_it_has_the_card_too() -> None:
    of = node_with("0")
    of.config_maps.create("kube-system", "unhealthy-gpu-a", {"gpus": "0"})
    (words,) = uncordoned(tables(of), "a", ["0"]).words
    assert "but ConfigMap kube-system/unhealthy-gpu-a lists it, so it takes no pods" in words


@pytest.mark.parametrize("change", [cordoned, uncordoned])
def test_a_card_that_is_not_there_is_refused_with_those_that_are(change: object) -> None:
    with pytest.raises(NoSuchCard, match=r"node a has no card 7; it has card 0 \(GPU-a-0\), card 1 \(GPU-a-1\)"):
        change(tables(node_with()), "a", ["7"])  # type: ignore[operator]


def test_a_node_without_cards_is_refused() -> None:
    of = world(wire_node("a"))
    with pytest.raises(NoSuchCard, match="node a announces no cards"):
        cordoned(tables(of), "a", [])


def test_where_only_totals_are_announced_an_index_stays_one() -> None:
    of = world(wire_node("a", more={names.GPU_MEM: "32", names.GPU_COUNT: "2"}))
    made = cordoned(tables(of), "a", ["1"])
    assert isinstance(made, Cordon)
    assert made.value == "1"
