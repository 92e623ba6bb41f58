"""The operator's side, where the contract suite does not reach it."""

import pytest
from msgspec.structs import replace

from scheduler.kube import objects
from scheduler.kube.objects import Taint
from scheduler.kube.port import PODS, ApiConflict, ApiNotFound, Kind
from scheduler.testing.cluster.world import World
from tests.scheduler.testing.cluster.builders import HandDrivenTime, node_of, pod, world

ZONE = "topology.kubernetes.io/zone"


def test_uids_and_versions_are_the_same_in_every_run() -> None:
    def made() -> list[objects.ObjectMeta]:
        return [found.metadata for found in world("a", "b").pods]

    assert made() == made()
    assert len({metadata.uid for metadata in made()}) == 2


def test_a_uid_that_a_trace_brings_along_is_kept() -> None:
    made = world().pods.create({"metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}})

    assert (made.metadata.uid, made.metadata.creation_timestamp) == ("u", "2026-01-01T00:00:00Z")


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
    time = HandDrivenTime()
    of = World(time.now_s)
    of.pods.create(pod("a"))
    of.pods.bind("ns", "a", "n")
    of.pods.delete("ns", "a", grace_s=30.0)
    time.pass_by(2.0)

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


def test_a_name_that_is_taken_is_a_conflict() -> None:
    of = world("a")

    with pytest.raises(ApiConflict):
        of.pods.create(pod("a"))
    assert len(of.collection(PODS)) == 1


def test_a_bound_pod_is_no_longer_nominated() -> None:
    of = world("a")
    of.pods.update("ns", "a", lambda old: replace(old, status=replace(old.status, nominated_node_name="node-b")))

    assert of.pods.bind("ns", "a", "node-a").status.nominated_node_name == ""
