"""The steps of a cluster file, and who plays them into a cluster in memory."""

from typing import Any, Final

import pytest

from config.protocol import names
from config.protocol.inventory import decode
from config.settings.mistakes import ConfigurationError
from scheduler.kube import objects
from scheduler.testing.cluster.world import World
from scheduler.tools.simulate.player import TimelinePlayer
from scheduler.tools.simulate.timeline import NodeGoes, NodeIs, PodComes, Step
from tests.scheduler.tools.simulate.described import node, pod, steps

A: Final = [node("a", 16, 16)]


def told(step: Step) -> str:
    """`time what`: of a pod its name, else the message."""
    what = step.pod.metadata.name if isinstance(step, PodComes) else step.event
    return f"{step.at_s:g} {what}"


def cards(step: Step) -> list[str]:
    assert isinstance(step, NodeIs)
    announced = decode((step.node.metadata.annotations or {})[names.INVENTORY])
    return [f"{card.index} {card.health}" for card in announced.cards]


def fault(at_s: float, **what: object) -> dict[str, Any]:
    return {"at_s": at_s, "node": "a", **what}


def test_of_one_time_nodes_come_first_then_faults_then_pods() -> None:
    found = [told(step) for step in steps(A, [pod("p", 1)], [fault(0, card=0, xid=79)])]
    assert found == ["0 node a joins", "0 card 0 of node a reports XID 79: unhealthy", "0 p"]


def test_steps_come_by_time_and_those_of_one_time_in_the_order_of_the_file() -> None:
    found = steps(A, [pod("late", at_s=2.5), pod("b", at_s=1), pod("a", at_s=1)])
    assert [told(step) for step in found] == ["0 node a joins", "1 b", "1 a", "2.5 late"]


def test_faults_of_cards_add_up_until_they_are_back() -> None:
    faults = [fault(1, card=0, xid=79), fault(2, card=1, lost=True), fault(3, card=0, back=True)]
    _, unhealthy, lost, back = steps(A, faults=faults)
    assert cards(unhealthy) == ["0 unhealthy", "1 healthy"]
    assert cards(lost) == ["0 unhealthy"]
    assert cards(back) == ["0 healthy"]


def test_faults_come_by_time_whatever_their_order_in_the_file() -> None:
    _, unhealthy, back = steps(A, faults=[fault(9, card=0, back=True), fault(1, card=0, xid=79)])
    assert (cards(unhealthy), cards(back)) == (["0 unhealthy", "1 healthy"], ["0 healthy", "1 healthy"])


def test_an_application_error_is_reported_and_changes_nothing() -> None:
    _, step = steps(A, faults=[fault(1, card=0, xid=31)])
    assert told(step) == "1 card 0 of node a reports XID 31: an application error"
    assert cards(step) == ["0 healthy", "1 healthy"]


def test_a_node_that_is_back_has_all_its_cards_healthy() -> None:
    _, _, gone, back = steps(A, faults=[fault(1, card=0, xid=79), fault(2, lost=True), fault(3, back=True)])
    assert isinstance(gone, NodeGoes)
    assert cards(back) == ["0 healthy", "1 healthy"]


def test_a_fault_of_a_card_has_no_effect_while_its_node_is_gone() -> None:
    found = steps(A, faults=[fault(1, lost=True), fault(2, card=0, xid=79), fault(3, lost=True)])
    assert [told(step) for step in found] == ["0 node a joins", "1 node a is lost"]


def test_a_fault_on_a_node_with_malformed_totals_is_left_to_the_scheduler() -> None:
    status = {"allocatable": {names.GPU_MEM: "many"}, "capacity": {names.GPU_MEM: "many", names.GPU_COUNT: "1"}}
    manifest = {"metadata": {"name": "a"}, "status": status}
    found = steps([{"node": manifest}, node("b", 16)], faults=[fault(1, card=0, xid=79)])
    assert [told(step) for step in found] == ["0 node a joins", "0 node b joins"]


def test_everything_that_an_api_server_would_not_take_is_named_at_once() -> None:
    old = {"name": "a", "allocatable": {names.GPU_MEM: 4, names.GPU_COUNT: 1}}
    group = pod("p", priority="high") | {"count": 3}
    with pytest.raises(ConfigurationError) as caught:
        steps([old], [group, pod("q", nodeSelector=["a"])], [fault(4, card=1, xid=79)])
    assert str(caught.value).splitlines() == [
        "fault at 4 s: node a has no card 1",
        "Pod default/p-0: spec.priority: expected `int`, got `str`",
        "Pod default/q: spec.nodeSelector: expected `object | null`, got `array`",
    ]


def played(*pods: dict[str, Any], faults: list[dict[str, Any]] | None = None) -> tuple[World, TimelinePlayer]:
    """A world after the first time of the timeline, and who plays the rest."""
    world = World(lambda: 1_800_000_000.0)
    player = TimelinePlayer(world, steps(A, [*pods], faults))
    player.play_next()
    return world, player


def found(world: World, name: str) -> objects.PodObject:
    return world.pods.collection.existing("default", name)


def test_what_finishes_and_what_comes_at_one_time_is_played_together() -> None:
    world, player = played(pod("p", runs_s=5), pod("q", at_s=5))
    player.started(world.pods.bind("default", "p", "a"), 0.0)
    assert player.play_next() == ["pod default/p finished"]
    assert found(world, "q").metadata.name == "q"


def test_a_node_that_is_back_is_there_again() -> None:
    lost_and_back = [{"at_s": 1, "node": "a", "lost": True}, {"at_s": 2, "node": "a", "back": True}]
    world, player = played(faults=lost_and_back)
    player.play_next()
    player.play_next()
    assert [present.metadata.name for present in world.nodes] == ["a"]


def test_a_pod_that_had_finished_before_is_not_created() -> None:
    world, _ = played(pod("done", nodeName="a", status={"phase": "Failed"}))
    assert len(world.pods) == 0


def test_a_pod_from_a_running_cluster_keeps_its_state() -> None:
    ends = "2026-01-01T00:00:00Z"
    world, _ = played(pod("p", nodeName="a", metadata={"deletionTimestamp": ends}, status={"phase": "Running"}))
    assert found(world, "p").metadata.deletion_timestamp == ends
    assert found(world, "p").status.phase == "Running"


def test_playing_when_nothing_is_left_is_an_error() -> None:
    _, player = played()
    with pytest.raises(ValueError, match="nothing is left"):
        player.play_next()
