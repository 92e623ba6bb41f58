"""VolumeBinding where volumes are made for the pod: which nodes the class allows, and where there is room."""

from typing import Any

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Rejected
from scheduler.kube.port import CAPACITIES, CLAIMS, CSI_DRIVERS, STORAGE_CLASSES, VOLUMES
from scheduler.plugins.volume.volume_binding import BIND_CONFLICT, NOT_ENOUGH_SPACE, VolumeBinding
from tests.support.binding_volumes import against, plan, three
from tests.support.builders import pod
from tests.support.volumes import (
    HOSTNAME,
    SELECTED_NODE,
    ZONE,
    claim,
    show,
    show_gone,
    storage_class,
    volume,
    with_claims,
)

TELLS_CAPACITY = {"metadata": {"name": "example.com/p"}, "spec": {"storageCapacity": True}}


def test_a_volume_is_made_where_the_class_allows_it() -> None:
    tables = three()
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}, {"key": HOSTNAME, "values": ["b", "c"]}]}]
    show(tables, STORAGE_CLASSES, storage_class("fast", allowedTopologies=terms))
    show(tables, CLAIMS, claim("data", class_name="fast"))
    assert against(tables, "data") == {BIND_CONFLICT: {"a", "c"}}
    assert plan(tables, "b", "data") == ({}, {"data"})


def capacity(name: str, zone: str, size: str, **more: str) -> dict[str, Any]:
    topology = {"nodeTopology": {"matchLabels": {ZONE: zone}}} if zone else {}
    return {
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": "fast",
        "capacity": size,
        **topology,
        **more,
    }


def test_there_must_be_room_for_a_volume_that_is_made() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, storage_class("fast"))
    show(tables, CLAIMS, claim("data", class_name="fast", size="5Gi"))
    show(tables, CSI_DRIVERS, TELLS_CAPACITY)
    assert against(tables, "data") == {NOT_ENOUGH_SPACE: {"a", "b", "c"}}
    show(tables, CAPACITIES, capacity("z1", "z1", "5Gi"), capacity("z2", "z2", "9Gi", maximumVolumeSize="4Gi"))
    assert against(tables, "data") == {NOT_ENOUGH_SPACE: {"c"}}
    show(tables, CAPACITIES, capacity("z1", "", "5Gi"), capacity("z2", "z2", "5Gi"))
    assert against(tables, "data") == {NOT_ENOUGH_SPACE: {"a", "b"}}
    show_gone(tables, CAPACITIES, "z2")
    show(tables, CSI_DRIVERS, {"metadata": {"name": "example.com/p"}, "spec": {"storageCapacity": False}})
    assert against(tables, "data") == {}


def test_a_class_with_thousands_of_topologies_makes_no_volume_and_says_so() -> None:
    tables = three()
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": [f"z{number}"]}]} for number in range(5000)]
    show(tables, STORAGE_CLASSES, storage_class("fast", allowedTopologies=terms))
    show(tables, CLAIMS, claim("data", class_name="fast"))

    rejected = VolumeBinding().pre_filter(pod("p", **with_claims("data")), tables, CycleState())

    assert isinstance(rejected, Rejected)
    assert rejected.reason.startswith(
        'storageclass "fast" has more than this scheduler reads: 5000 topology terms (at most 64), '
    )
    show(tables, STORAGE_CLASSES, storage_class("fast", allowedTopologies=terms[:2]))
    assert against(tables, "data") == {BIND_CONFLICT: {"c"}}


def test_a_class_that_makes_no_volumes_is_used_whatever_its_topologies() -> None:
    tables = three()
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": [f"z{number}"]}]} for number in range(5000)]
    local = storage_class("local", provisioner="kubernetes.io/no-provisioner", allowedTopologies=terms)
    show(tables, STORAGE_CLASSES, local)
    show(tables, VOLUMES, volume("pv", class_name="local", on=("a",)))
    show(tables, CLAIMS, claim("data", class_name="local"))

    assert against(tables, "data") == {BIND_CONFLICT: {"b", "c"}}


def test_a_claim_for_which_a_volume_is_being_made_has_its_node() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, storage_class("fast"))
    begun = claim("data", class_name="fast")
    begun["metadata"]["annotations"] = {SELECTED_NODE: "b"}
    show(tables, CLAIMS, begun)
    assert against(tables, "data") == {BIND_CONFLICT: {"a", "c"}}


def test_the_largest_of_several_claims_needs_room_too() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, storage_class("fast"))
    show(tables, CLAIMS, *(claim(f"of-{size}", class_name="fast", size=f"{size}Gi") for size in (1, 9)))
    show(tables, CSI_DRIVERS, TELLS_CAPACITY)
    show(tables, CAPACITIES, capacity("z1", "z1", "5Gi"), capacity("z2", "z2", "9Gi"))

    assert against(tables, "of-1") == {}
    assert against(tables, "of-1", "of-9") == {NOT_ENOUGH_SPACE: {"a", "b"}}


def test_the_first_claim_for_which_no_volume_can_be_made_says_why() -> None:
    tables = three()
    terms = [{"matchLabelExpressions": [{"key": HOSTNAME, "values": ["b"]}]}]
    show(tables, STORAGE_CLASSES, storage_class("fast"), storage_class("near", allowedTopologies=terms))
    show(tables, CLAIMS, claim("1", class_name="near"), claim("2", class_name="fast", size="5Gi"))
    show(tables, CSI_DRIVERS, TELLS_CAPACITY)
    show(tables, CAPACITIES, {**capacity("z1", "z1", "9Gi"), "storageClassName": "near"})

    assert against(tables, "1", "2") == {BIND_CONFLICT: {"a", "c"}, NOT_ENOUGH_SPACE: {"b"}}
