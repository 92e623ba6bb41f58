"""A node whose device plugin asks to wait takes no pods, and never for long."""

import pytest
from msgspec.structs import replace

from config.protocol import names
from scheduler.kube import objects
from scheduler.pods.gpu_request import ResourceNames
from scheduler.state.cards.node_inventory import GpuState, read_inventory
from tests.support.builders import wire_node

UNTIL = "2026-11-22T10:01:00Z"


def node(until: str, reported: str | None) -> objects.Node:
    plain = wire_node("n", [16])
    conditions = (
        objects.NodeCondition("DiskPressure", "2999-01-01T00:00:00Z"),
        objects.NodeCondition("Ready", reported),
    )
    annotations = {**(plain.metadata.annotations or {}), names.HELD_UNTIL: until}
    return replace(
        plain,
        metadata=replace(plain.metadata, annotations=annotations),
        status=replace(plain.status, conditions=conditions),
    )


@pytest.mark.parametrize(
    ("until", "reported", "state"),
    [
        pytest.param(UNTIL, "2026-11-22T10:00:59Z", GpuState.NOT_REGISTERED, id="the last report is older"),
        pytest.param(UNTIL, UNTIL, GpuState.READY, id="the kubelet has reported since"),
        pytest.param(UNTIL, "2026-11-22T10:06:00Z", GpuState.READY, id="long since"),
        pytest.param(UNTIL, None, GpuState.READY, id="a kubelet that never reports holds nothing back"),
        pytest.param("forever", "2026-11-22T10:00:59Z", GpuState.READY, id="no time"),
        pytest.param("", "2026-11-22T10:00:59Z", GpuState.READY, id="empty"),
    ],
)
def test_a_node_is_held_until_its_kubelet_has_reported_later(until: str, reported: str | None, state: GpuState) -> None:
    found = read_inventory(node(until, reported), ResourceNames(), 1024)
    assert (found.state, found.problem) == (state, "")
    assert [card.units for card in found.cards] == [16]


def test_a_node_that_has_been_given_devices_and_no_annotation_yet_has_nothing_wrong() -> None:
    amounts: objects.Quantities = {names.GPU_MEM: "110"}
    first = objects.Node(objects.ObjectMeta("n"), status=objects.NodeStatus(allocatable=amounts, capacity=amounts))
    found = read_inventory(first, ResourceNames(), 1024)
    assert (found.state, found.problem) == (GpuState.UNREADABLE, "")
