from typing import Any, Final

import pytest

from scheduler.kube import objects
from scheduler.testing.cluster.world import World
from scheduler.tools.simulate.player import TimelinePlayer
from tests.scheduler.tools.simulate.described import node, pod, steps

A: Final = [node("a", 16)]


def played(*pods: dict[str, Any], faults: list[dict[str, Any]] | None = None) -> tuple[World, TimelinePlayer]:
    """A world after the first time of the timeline, and who plays the rest."""
    world = World(lambda: 1_800_000_000.0)
    player = TimelinePlayer(world, steps(A, [*pods], faults))
    player.play_next()
    return world, player


def found(world: World, name: str) -> objects.PodObject:
    return world.pods.collection.existing("default", name)


def test_a_pod_finishes_its_run_time_after_its_start() -> None:
    world, player = played(pod("p", 4, runs_s=10))
    assert player.next_s is None
    player.started(world.pods.bind("default", "p", "a"), 5.0)
    assert player.next_s == 15.0
    assert player.play_next() == ["pod default/p finished"]
    assert found(world, "p").status.phase == "Succeeded"


def test_a_pod_that_has_a_node_runs_from_its_creation() -> None:
    _, player = played(pod("p", runs_s=10, nodeName="a"))
    assert player.next_s == 10.0


def test_pods_that_run_forever_never_finish() -> None:
    world, player = played(pod("p"))
    player.started(world.pods.bind("default", "p", "a"), 5.0)
    assert player.next_s is None


def test_what_finishes_and_what_comes_at_one_time_is_played_together() -> None:
    world, player = played(pod("p", runs_s=5), pod("q", at_s=5))
    player.started(world.pods.bind("default", "p", "a"), 0.0)
    assert player.play_next() == ["pod default/p finished"]
    assert found(world, "q").metadata.name == "q"


def test_a_node_that_is_lost_takes_its_pods_with_it_and_they_never_finish() -> None:
    world, player = played(pod("p", runs_s=5), faults=[{"at_s": 1, "node": "a", "lost": True}])
    player.started(world.pods.bind("default", "p", "a"), 0.0)
    assert player.play_next() == ["node a is lost"]
    assert (len(world.nodes), len(world.pods)) == (0, 0)
    assert player.play_next() == []


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
