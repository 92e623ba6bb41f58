"""The world of the cluster in memory, where the contract suite does not reach it, and what its checker finds."""

import dataclasses
from collections.abc import Mapping
from typing import Final

import pytest
from msgspec.structs import replace

from config.protocol import names
from config.protocol.allocation import Allocation, LegacyFields, encode
from config.protocol.inventory import Health
from scheduler.kube import objects
from scheduler.kube.objects import Taint
from scheduler.kube.port import ApiNotFound, Kind
from scheduler.pods.gpu_request import ResourceNames
from scheduler.process.clock import Clock
from scheduler.state.cards.booking import CardShare
from scheduler.testing.cluster.checker import ClusterChecker
from scheduler.testing.cluster.world import World
from tests.scheduler.testing.cluster.builders import pod, world
from tests.support.builders import card, manifest, wire_node

ZONE = "topology.kubernetes.io/zone"


def test_uids_and_versions_are_the_same_in_every_run() -> None:
    def made() -> list[objects.ObjectMeta]:
        return [found.metadata for found in world("a", "b").pods]

    assert made() == made()
    assert len({metadata.uid for metadata in made()}) == 2


def test_a_uid_that_a_trace_brings_along_is_kept() -> None:
    made = world().pods.create({"metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}})

    assert (made.metadata.uid, made.metadata.creation_timestamp) == ("u", "2026-01-01T00:00:00Z")


def test_a_pod_makes_its_namespace() -> None:
    of = world()

    of.pods.create(pod("p", "team-a"))

    assert of.namespaces.exists("team-a")


@pytest.mark.parametrize(
    ("phase", "grace_s"), [pytest.param("Succeeded", 30.0, id="finished"), pytest.param("Running", 0.0, id="no grace")]
)
def test_a_pod_that_needs_no_grace_goes_at_once(phase: str, grace_s: float) -> None:
    of = world("a")
    of.pods.bind("ns", "a", "node-a")
    of.pods.set_phase("ns", "a", phase)

    of.pods.delete("ns", "a", grace_s=grace_s)

    assert of.pods.find("ns", "a") is None


def test_a_finalizer_outlives_the_grace_and_the_grace_outlives_a_finalizer() -> None:
    of = world()
    for name in "ab":
        held = {"name": name, "namespace": "ns", "finalizers": ["example.com/stay"]}
        of.pods.create({"metadata": held, "spec": {"nodeName": "n"}})
        of.pods.delete("ns", name)

    of.pods.delete("ns", "a", grace_s=0.0)
    of.pods.release("ns", "b")
    assert [found.metadata.name for found in of.pods] == ["a", "b"]

    of.pods.release("ns", "a")
    of.pods.delete("ns", "b", grace_s=0.0)
    assert len(of.pods) == 0


def test_a_second_deletion_only_shortens_the_grace_which_counts_from_the_first() -> None:
    now_s = 1_800_000_000.0
    of = World(lambda: now_s)
    of.pods.create(pod("a"))
    of.pods.bind("ns", "a", "n")
    of.pods.delete("ns", "a", grace_s=30.0)
    now_s += 2.0

    told = []
    for grace_s in (60.0, 10.0, 1.0):
        of.pods.delete("ns", "a", grace_s=grace_s)
        told.append(deletion_of(of, "a")[-3:])

    assert told == ["30Z", "10Z", "02Z"]


def test_a_removed_pod_goes_whatever_holds_it() -> None:
    of = world()
    of.pods.create({"metadata": {"name": "a", "namespace": "ns", "finalizers": ["x"]}, "spec": {"nodeName": "n"}})

    of.pods.remove("ns", "a")

    assert len(of.pods) == 0


def deletion_of(of: World, name: str) -> str:
    return of.pods.collection.existing("ns", name).metadata.deletion_timestamp


def test_a_pod_finishes_only_in_a_final_phase() -> None:
    of = world("a")

    with pytest.raises(ValueError, match="'Running'"):
        of.pods.finish("ns", "a", "Running")
    finished = of.pods.finish("ns", "a", "Failed", reason="OutOfcpu", message="no")

    assert (finished.status.phase, finished.status.reason, finished.status.message) == ("Failed", "OutOfcpu", "no")


def test_a_bound_pod_gets_the_zone_of_its_node() -> None:
    of = world("a")
    of.nodes.add({"metadata": {"name": "node-a", "labels": {ZONE: "z1", "other": "x"}}})

    assert of.pods.bind("ns", "a", "node-a").metadata.labels == {ZONE: "z1"}


def test_a_patch_of_a_node_changes_what_it_names() -> None:
    of = world()
    of.nodes.add(
        {"metadata": {"name": "n", "labels": {"a": "1", "b": "2"}}, "status": {"capacity": {"cpu": "4", "gpu": 2}}}
    )

    node = of.nodes.patch(
        "n",
        labels={"a": None, "c": "3"},
        annotations={"inventory": "{}"},
        taints=[Taint("unhealthy", "NoSchedule")],
        unschedulable=True,
        allocatable={"gpu": "1"},
    )

    assert node.metadata.labels == {"b": "2", "c": "3"}
    assert node.metadata.annotations == {"inventory": "{}"}
    assert (node.spec.unschedulable, node.spec.taints) == (True, (Taint("unhealthy", "NoSchedule"),))
    assert node.status.allocatable == {"cpu": "4", "gpu": "1"}
    assert node.status.capacity == {"cpu": "4", "gpu": "2"}


def test_a_patch_that_changes_nothing_is_no_change() -> None:
    of = world()
    of.nodes.add({"metadata": {"name": "n", "labels": {"a": "1"}}})
    version = of.version

    of.nodes.patch("n", labels={"a": "1"})

    assert of.version == version


def test_a_deleted_namespace_takes_everything_in_it_along() -> None:
    of = world("a", "b")
    of.pods.create(pod("a", "elsewhere"))
    of.config_maps.create("ns", "settings", {"k": "v"})

    of.delete_namespace("ns")

    assert [found.metadata.namespace for found in of.pods] == ["elsewhere"]
    assert (list(of.config_maps), of.namespaces.exists("ns")) == ([], False)


def test_a_resource_that_is_not_simulated_is_not_found() -> None:
    with pytest.raises(ApiNotFound):
        world().collection(Kind("deployments", objects.PodObject, "/apis/apps/v1/deployments"))


def test_a_bound_pod_is_no_longer_nominated() -> None:
    of = world("a")
    of.pods.update("ns", "a", lambda old: replace(old, status=replace(old.status, nominated_node_name="node-b")))

    assert of.pods.bind("ns", "a", "node-a").status.nominated_node_name == ""


NOW_S: Final = 5.0
# Of pods; `alone` wants its card to itself, `isolated` requires isolation, `by-mps` MPS.
UNITS: Final = {"p": 10, "q": 10, "alone": 10, "small": 1, "isolated": 2, "by-mps": 2}


def checked() -> tuple[World, ClusterChecker, list[str]]:
    """A world with node `a` of two cards of 16 units, the second unhealthy, pods of UNITS, and who was told of pods."""
    world, told = World(lambda: 1_800_000_000.0), list[str]()
    checker = ClusterChecker(
        world, ResourceNames(), 1024, clock=Clock(lambda: NOW_S), on_bound=lambda pod: told.append(pod.metadata.name)
    )
    world.nodes.add(wire_node("a", [card(0, 16), card(1, 16, health=Health.UNHEALTHY)]))
    for name, units in UNITS.items():
        isolation = {names.ISOLATION: names.ISOLATION_REQUIRED} if name == "isolated" else {}
        compute = {names.COMPUTE_MODE: "mps"} if name == "by-mps" else {}
        asked = {names.EXCLUSIVE: str(name == "alone").lower(), **isolation, **compute}
        world.pods.create(manifest(name, units, annotations=asked))
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
        pytest.param(
            [("p", "a", 1)], "pod default/p was bound to card 1 of a, which is unhealthy", id="an unhealthy card"
        ),
        pytest.param(
            [("isolated", "a", 0)],
            "pod default/isolated requires isolation, but memory is not enforced on its card",
            id="an advisory card",
        ),
        pytest.param(
            [("by-mps", "a", 0)],
            "pod default/by-mps requires compute mode mps; its card has not",
            id="a card without MPS",
        ),
        pytest.param([("p", "b", 0)], "pod default/p was bound to b, which does not exist", id="no such node"),
    ],
)
def test_a_binding_that_must_not_be_is_a_violation(bindings: list[tuple[str, str, int]], violation: str) -> None:
    world, checker, _ = checked()
    for name, node, index in bindings:
        world.pods.bind("default", name, node, on_card(index, UNITS[name]))
    assert checker.violations == [violation]


def test_two_cards_of_which_one_is_an_instance_are_a_violation() -> None:
    world, checker, _ = checked()
    world.nodes.add(wire_node("b", [card(0, 16, node="b"), dataclasses.replace(card(1, 16, node="b"), parent="GPU-b")]))
    shares = Allocation({0: {0: 5, 1: 5}}, {}, {0: "GPU-b-0", 1: "GPU-b-1"}, 1024)
    world.pods.bind("default", "p", "b", encode(shares, LegacyFields(10, 16, 0)))
    assert checker.violations == ["pod default/p has 2 cards, and one of them is a MIG instance"]


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
