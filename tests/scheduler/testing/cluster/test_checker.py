from collections.abc import Mapping
from typing import Final

import pytest

from config.protocol import names
from config.protocol.allocation import Allocation, LegacyFields, encode
from config.protocol.inventory import Health
from scheduler.pods.gpu_request import ResourceNames
from scheduler.state.cards.booking import CardShare
from scheduler.testing.cluster.checker import ClusterChecker
from scheduler.testing.cluster.world import World
from tests.support.builders import card, manifest, wire_node

NOW_S: Final = 5.0
PODS: Final = {"p": 10, "q": 10, "alone": 10, "small": 1}  # units; `alone` wants its card to itself


def checked() -> tuple[World, ClusterChecker, list[str]]:
    """A world with node `a` of two cards of 16 units, the second unhealthy, PODS, and who was told of pods."""
    world, told = World(lambda: 1_800_000_000.0), list[str]()
    checker = ClusterChecker(
        world, ResourceNames(), 1024, now_s=lambda: NOW_S, on_bound=lambda pod: told.append(pod.metadata.name)
    )
    world.nodes.add(wire_node("a", [card(0, 16), card(1, 16, health=Health.UNHEALTHY)]))
    for name, units in PODS.items():
        world.pods.create(manifest(name, units, annotations={names.EXCLUSIVE: str(name == "alone").lower()}))
    return world, checker, told


def on_card(index: int, units: int = 10) -> Mapping[str, str]:
    """The annotations of a binding to that card of node a."""
    shares = Allocation({0: {index: units}}, {}, {index: f"GPU-a-{index}"}, 1024)
    return encode(shares, LegacyFields(units, 16, 0))


def test_a_binding_is_seen_with_its_cards() -> None:
    world, checker, told = checked()
    world.pods.bind("default", "p", "a", on_card(0))
    (bound,) = checker.bindings_of("p")
    assert (bound.node, bound.shares, bound.at_s) == ("a", (CardShare(0, "GPU-a-0", 10),), NOW_S)
    assert told == ["p"]
    assert checker.violations == []


@pytest.mark.parametrize(
    ("bindings", "violation"),
    [
        pytest.param([("p", "a", 0), ("q", "a", 0)], "card GPU-a-0 of node a is over-committed by 4", id="too much"),
        pytest.param(
            [("alone", "a", 0), ("small", "a", 0)],
            "card GPU-a-0 of node a is shared, though a pod holds it exclusively",
            id="a second pod on an exclusive card",
        ),
        pytest.param([("p", "a", 1)], "pod default/p was bound to card 1 of a, which is unhealthy", id="an unhealthy card"),
        pytest.param([("p", "b", 0)], "pod default/p was bound to b, which does not exist", id="no such node"),
    ],
)
def test_a_binding_that_must_not_be_is_a_violation(bindings: list[tuple[str, str, int]], violation: str) -> None:
    world, checker, _ = checked()
    for name, node, index in bindings:
        world.pods.bind("default", name, node, on_card(index, PODS[name]))
    assert checker.violations == [violation]


@pytest.mark.parametrize("key", names.ALLOCATION_KEYS)
def test_a_binding_without_one_of_the_annotations_is_a_violation(key: str) -> None:
    world, checker, _ = checked()
    world.pods.bind("default", "p", "a", {k: text for k, text in on_card(0).items() if k != key})
    assert f"pod default/p was bound without {key}" in checker.violations


def test_a_pod_that_finishes_or_goes_has_ended_and_its_card_is_free() -> None:
    world, checker, _ = checked()
    world.pods.bind("default", "p", "a", on_card(0))
    world.pods.finish("default", "p")
    world.pods.bind("default", "q", "a", on_card(0))
    world.pods.remove("default", "q")
    assert [name for name, _ in checker.ended] == ["p", "q"]
    assert checker.violations == []
    assert checker.ledger()["a"].free == {"GPU-a-0": 16, "GPU-a-1": 16}


def test_a_card_is_unhealthy_from_when_its_node_says_so_until_it_says_otherwise() -> None:
    world, checker, _ = checked()
    (spell,) = checker.unhealthy_spells
    assert (spell.node, spell.index, spell.since_s, spell.until_s) == ("a", 1, NOW_S, None)
    announced = (wire_node("a", [16, 16]).metadata.annotations or {})[names.INVENTORY]
    world.nodes.patch("a", annotations={names.INVENTORY: announced})
    assert [spell.until_s for spell in checker.unhealthy_spells] == [NOW_S]


def test_starting_over_forgets_what_was_seen_and_keeps_violations() -> None:
    world, checker, _ = checked()
    world.pods.bind("default", "p", "a", on_card(1))
    checker.start_over()
    assert (checker.bound, checker.ended, checker.writes) == ([], [], 0)
    assert len(checker.violations) == 1
