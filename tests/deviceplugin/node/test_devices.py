"""Which cards the devices that a kubelet has allocated stand for, and how an id leaves its list."""

import asyncio
from types import SimpleNamespace

from config.protocol import inventory, names
from config.protocol.inventory import Card, Inventory
from deviceplugin.allocation.identify import NodeState
from deviceplugin.kubelet.checkpoint import CheckpointEntry
from deviceplugin.kubelet.device_ids import LARGEST_MESSAGE
from deviceplugin.kubelet.server import Devices
from deviceplugin.kubelet.session import FakeDevices
from deviceplugin.node.devices import LEAVES_AFTER_S, NodeDevices, held_by
from scheduler.process.clock import Clock
from tests.support.node.node_pods import CARDS as ANNOUNCED
from tests.support.node.node_pods import entry, node_pod, on


def test_who_holds_an_id_is_known_by_the_decision_for_its_container() -> None:
    p, q = on(node_pod("p", [2]), ANNOUNCED[0]), node_pod("q", [1])
    entries = [
        entry(p, "c0", "u0", "u1"),
        entry(q, "c0", "u2"),
        entry(p, "c0", "z", resource="x.com/other"),
        CheckpointEntry("uid-gone", "c0", names.GPU_MEM, frozenset({"u3"})),
        CheckpointEntry("uid-gone-too", "c0", names.GPU_MEM, frozenset({"u4"})),
    ]
    found = inventory.Inventory(1024, "", ANNOUNCED)
    holders = held_by(entries, [p, q], found, names.GPU_MEM, frozenset({"u4"}))
    # Nobody is given an unhealthy id, so u4 is only a record of the dead.
    assert holders == {"u0": {"GPU-a"}, "u1": {"GPU-a"}, "u2": frozenset(), "u3": frozenset()}


def test_an_id_with_two_holders_is_only_as_free_as_the_less_known_one() -> None:
    p, q = on(node_pod("p", [1]), ANNOUNCED[0]), on(node_pod("q", [1]), ANNOUNCED[1])
    found = inventory.Inventory(1024, "", ANNOUNCED)
    both = held_by([entry(p, "c0", "u0"), entry(q, "c0", "u0")], [p, q], found, names.GPU_MEM, frozenset())
    assert both == {"u0": {"GPU-a", "GPU-b"}}
    unknown = held_by([entry(p, "c0", "u0"), entry(q, "c0", "u0")], [p], found, names.GPU_MEM, frozenset())
    assert unknown == {"u0": frozenset()}


class View:
    resources = SimpleNamespace(gpu_mem=names.GPU_MEM)
    pods = SimpleNamespace(complete=True)

    async def snapshot(self) -> NodeState:
        return NodeState(names.GPU_MEM, (), ())


class Plugin:
    """Of one card. listed: what the plugin before has told the kubelet."""

    def __init__(self, *listed: str) -> None:
        self.now_s = 100.0
        self.shown = FakeDevices()
        self.shown.show(tuple((name, True) for name in listed))
        clock = Clock(lambda: self.now_s)
        self.devices = NodeDevices(view=View(), shown=self.shown, old_style=False, clock=clock)  # type: ignore[arg-type]

    def lists(self, units: int) -> tuple[bool, Devices]:
        """Whether all that leave have left; what is listed."""
        whole = Inventory(1, "580", (Card(index=0, uuid="GPU-0", model="M", memory_mib=0, units=units),))
        return asyncio.run(self.devices.show(whole, whole)), self.shown.now


def test_ids_of_another_style_or_unit_are_unhealthy_before_they_leave() -> None:
    plugin = Plugin("old-0", "old-1", "u0")
    staying = (("u0", True), ("u1", True))
    assert plugin.lists(2) == (False, (*staying, ("old-0", False), ("old-1", False)))
    plugin.now_s += LEAVES_AFTER_S - 0.1
    assert plugin.lists(2) == (False, (*staying, ("old-0", False), ("old-1", False)))
    plugin.now_s += 0.1
    assert plugin.lists(2) == (True, staying)


def test_one_that_comes_back_has_not_left() -> None:
    plugin = Plugin("u0", "u1")
    plugin.lists(1)
    plugin.now_s += LEAVES_AFTER_S - 1
    assert plugin.lists(2) == (True, (("u0", True), ("u1", True)))
    plugin.lists(1)
    plugin.now_s += 2
    assert plugin.lists(1) == (False, (("u0", True), ("u1", False)))


def test_what_the_kubelet_can_read_goes_before() -> None:
    long = "x" * (LARGEST_MESSAGE // 2)
    assert Plugin(f"{long}0", f"{long}1").lists(1) == (True, (("u0", True),))
