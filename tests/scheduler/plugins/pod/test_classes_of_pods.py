"""Pods of one template that rules tell apart: each is answered as if it were the only one, whoever was asked before."""

from itertools import permutations
from typing import Any

import pytest

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.core.scheduling_cycle import NoFit, SchedulingCycle
from scheduler.framework.runtime import Runtime
from scheduler.kube.port import CLAIMS, CSI_NODES, STORAGE_CLASSES, VOLUMES
from scheduler.plugins import registry
from scheduler.plugins.volume.volume_restrictions import ONE_POD_CONFLICT
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.tables import Tables
from tests.support.builders import bound as on_node
from tests.support.builders import pod, wire_node
from tests.support.judging import tables_of
from tests.support.volumes import ZONE, bound, claim, show, storage_class, volume, with_claims

DRIVER = "ebs.csi.aws.com"
LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")
NOWHERE = "0/2 nodes are available: "
LOST = ("lost-1", "lost-2")
ON_THE_FIRST_CARD = {names.ALLOCATION: '{"0":{"0":16}}', names.CARDS: '{"0":"GPU-a-0"}', names.UNIT_MIB: "1024"}
NO_VOLUME = f'{NOWHERE}persistentvolume "pv-{{}}" not found.'


def two() -> Tables:
    """Nodes a and b, each in its own zone; a attaches one volume. Claims, and pods that use some, on a."""
    tables = tables_of(*(wire_node(name, labels={ZONE: f"zone-{name}"}) for name in "ab"))
    attaches = {"drivers": [{"name": DRIVER, "nodeID": "a", "allocatable": {"count": 1}}]}
    show(tables, CSI_NODES, {"metadata": {"name": "a"}, "spec": attaches})
    show(tables, STORAGE_CLASSES, LOCAL)
    for name, written in {
        "on-a": volume("pv-on-a", on=("a",)),
        "on-b": volume("pv-on-b", on=("b",)),
        "in-a": volume("pv-in-a", labels={ZONE: "zone-a"}),
        "in-b": volume("pv-in-b", labels={ZONE: "zone-b"}),
        "ebs-1": volume("pv-ebs-1", csi={"driver": DRIVER, "volumeHandle": "1"}),
        "ebs-2": volume("pv-ebs-2", csi={"driver": DRIVER, "volumeHandle": "2"}),
        "used": volume("pv-used"),
        "free": volume("pv-free"),
    }.items():
        show(tables, VOLUMES, written)
        modes: dict[str, Any] = {"accessModes": ["ReadWriteOncePod"]} if name in {"used", "free"} else {}
        show(tables, CLAIMS, bound(claim(name, **modes), f"pv-{name}"))
    for name in LOST:
        show(tables, CLAIMS, bound(claim(name), f"pv-{name}"))
    show(tables, CLAIMS, claim("waits", class_name="local"))
    tables.add(on_node(pod("there", **with_claims("ebs-1", "used")), "a"))
    tables.add(on_node(pod("other", **disk("d")), "a"))
    return tables


def using(claims: str) -> Pod:
    """claims: their names."""
    return pod("p", **(with_claims(*claims.split()) if claims else {}))


def disk(name: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "iscsi": {"iqn": name}}]}


def cycle_of(tables: Tables, *, without: str = "") -> SchedulingCycle:
    """without: the name of a rule."""
    (resolved,) = resolve(SchedulerConfiguration())
    rules = tuple(rule for rule in registry.PLUGINS if rule.name != without)
    return SchedulingCycle(Runtime(registry.build(resolved, ResourceNames(), rules), tables))


def answer(cycle: SchedulingCycle, waiting: Pod) -> str:
    """The node; or the message, where there is none."""
    outcome = cycle.schedule(waiting, 0)
    if isinstance(outcome, NoFit):
        return outcome.diagnosis.message
    cycle.unreserve(waiting)
    return outcome.node


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param({"on-a": "a", "on-b": "b", "": "a"}, id="where their volumes are"),
        pytest.param({"in-a": "a", "in-b": "b", "": "a"}, id="the zones of their volumes"),
        pytest.param({"ebs-1": "a", "ebs-2": "b", "": "a"}, id="what their node has attached already"),
        pytest.param({"ebs-1": "a", "ebs-1 ebs-2": "b"}, id="how many volumes they have attached"),
        pytest.param({"free": "a", "used": f"{NOWHERE}2 {ONE_POD_CONFLICT}.", "": "a"}, id="a claim that is in use"),
        pytest.param({name: NO_VOLUME.format(name) for name in LOST}, id="a volume that does not exist"),
        pytest.param(
            {name: f'{NOWHERE}persistentvolumeclaim "{name}" not found.' for name in ("no-1", "no-2")},
            id="a claim that does not exist",
        ),
    ],
)
def test_pods_are_told_apart_by_their_claims(expected: dict[str, str]) -> None:
    tables = two()
    for order in permutations(expected.items()):
        cycle = cycle_of(tables)
        for claims, told in order:
            assert answer(cycle, using(claims)) == told


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param({"in-a": "a", "in-b": "b", "": "a"}, id="the zones of their volumes"),
        pytest.param({name: NO_VOLUME.format(name) for name in LOST}, id="a volume that does not exist"),
    ],
)
def test_zones_tell_pods_apart_without_another_rule_that_does(expected: dict[str, str]) -> None:
    tables = two()
    for order in permutations(expected.items()):
        cycle = cycle_of(tables, without="VolumeBinding")
        for claims, told in order:
            assert answer(cycle, using(claims)) == told


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"a": {"nodeName": "a"}, "b": {"nodeName": "b"}}, id="the node that they name"),
        pytest.param({"a": disk("e"), "b": disk("d")}, id="a disk that is in use"),
        pytest.param({"b": disk("d"), "a": {}}, id="a disk that is in use, and none"),
    ],
)
def test_pods_are_told_apart_by_what_else_they_name(asked: dict[str, dict[str, Any]]) -> None:
    tables = two()
    for order in permutations(asked.items()):
        cycle = cycle_of(tables)
        assert [answer(cycle, pod("p", **options)) for _, options in order] == [node for node, _ in order]


def test_what_was_said_before_a_volume_came_for_all_nodes_is_forgotten() -> None:
    tables = two()
    cycle, waiting = cycle_of(tables), pod("p", **with_claims("waits"))
    assert "didn't find available persistent volumes to bind" in answer(cycle, waiting)

    show(tables, VOLUMES, volume("pv-local", class_name="local"))

    assert answer(cycle, waiting) == "a"


def test_a_volume_that_comes_changes_what_a_pod_that_leaves_would_make_possible() -> None:
    tables = tables_of(wire_node("a", [16]))
    show(tables, STORAGE_CLASSES, LOCAL)
    show(tables, CLAIMS, claim("waits", class_name="local"))
    tables.add(on_node(pod("there", 16, annotations=ON_THE_FIRST_CARD), "a"))
    there = tables.record("uid-default-there")
    assert there is not None
    cycle, waiting = cycle_of(tables), pod("p", 16, **with_claims("waits"))
    assert not cycle.fits_without(waiting, there)
    show(tables, VOLUMES, volume("pv", class_name="local"))
    assert cycle.fits_without(waiting, there)
