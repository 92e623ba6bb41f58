"""Cards that are kept free while pods are moved, and that are given back, whatever has become of them."""

import asyncio
import dataclasses
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from config.protocol import inventory, names
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.manifests import Manifest, Unanswerable
from scheduler.tools.defragment.evicting import Planner, Rebalancing
from tests.scheduler.tools.defragment.evicting_site import CONFIGURATION, Operated, cordons, half_used, rebalance
from tests.support.builders import wire_pod


def test_who_interrupts_it_again_is_told_which_cards_may_stay_cordoned() -> None:
    cluster, said = Operated(half_used()), list[str]()
    write = cluster.annotate_node

    async def interrupted(name: str, annotations: Mapping[str, str | None], version: str) -> None:
        if not annotations[names.CORDON]:
            raise asyncio.CancelledError
        await write(name, annotations, version)

    cluster.annotate_node = interrupted  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        rebalance(cluster, said=said)
    assert said[-1] == "the cards may still be cordoned; run: kubectl gpushare uncordon a --card GPU-a-0 --card GPU-a-1"


def test_cards_that_cannot_be_given_back_are_told() -> None:
    cluster = Operated(half_used())
    cluster.refuses_uncordon = True
    _, said, _ = rebalance(cluster)
    assert any("run: kubectl gpushare uncordon a --card GPU-a-0 --card GPU-a-1" in line for line in said)


def annotate(of: World, name: str, key: str, text: str) -> None:
    """Whoever else writes a node."""
    node = of.nodes.collection.existing("", name)
    annotations = {**(node.metadata.annotations or {}), key: text}
    of.nodes.collection.replace(replace(node, metadata=replace(node.metadata, annotations=annotations)))


def lose_a_card(of: World) -> None:
    """The first card of node `a` falls off the bus."""
    said = inventory.decode((of.nodes.collection.existing("", "a").metadata.annotations or {})[names.INVENTORY])
    annotate(of, "a", names.INVENTORY, inventory.encode(dataclasses.replace(said, cards=said.cards[1:])))


def test_cordons_of_others_stay() -> None:
    of = half_used()
    annotate(of, "c", names.CORDON, "x")
    cluster = Operated(of)
    rebalance(cluster)
    assert cordons(cluster) == ["", "", "x"]


def test_a_card_that_somebody_has_cordoned_before_it_is_kept_free_stays_so() -> None:
    cluster, said = Operated(half_used()), list[str]()
    asks = wire_pod("asks", 16, labels={names.GPU_COUNT: "2"})
    planner = Planner(CONFIGURATION, Manifest(asks, ""), most_moves=10, max_priority=None)
    rebalancing = Rebalancing(cluster, CONFIGURATION, planner, 5.0, said.append)
    asyncio.run(rebalancing.run(lambda _: annotate(cluster.world, "a", names.CORDON, "0")))
    assert said[0].endswith("if it is killed, run: kubectl gpushare uncordon a --card GPU-a-1")
    assert cordons(cluster) == ["GPU-a-0", "", ""]


def test_a_card_that_is_gone_meanwhile_is_given_back_all_the_same() -> None:
    cluster = Operated(half_used())

    def falls(_: str) -> None:
        cluster.before_eviction = lambda _: None
        lose_a_card(cluster.world)

    cluster.before_eviction = falls
    done, said, _ = rebalance(cluster, most_moves=2)
    assert (done, len(cluster.evicted), cordons(cluster)) == (False, 1, ["", "", ""])
    assert said[-1].startswith("Stopped after 1 of 2 moves: ")


def test_a_node_that_is_gone_meanwhile_has_nothing_to_be_given_back() -> None:
    cluster = Operated(half_used(), places=False)

    def goes(_: str) -> None:
        cluster.world.nodes.delete("a")

    cluster.before_eviction = goes
    with pytest.raises(Unanswerable, match="no successor of it was bound"):
        rebalance(cluster, timeout_s=0.2, said=(said := list[str]()))
    assert [line for line in said if "type kubectl" in line] == []


def test_a_card_that_somebody_gives_back_is_not_given_back_again() -> None:
    cluster = Operated(half_used())

    def is_given_back(_: str) -> None:
        annotate(cluster.world, "a", names.CORDON, "GPU-a-1")
        lose_a_card(cluster.world)

    cluster.before_eviction = is_given_back
    _, said, _ = rebalance(cluster, most_moves=2)
    assert cordons(cluster) == ["", "", ""]
    assert [line for line in said if "type kubectl" in line] == []
