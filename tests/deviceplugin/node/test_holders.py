"""Which cards the devices that a kubelet has given out stand for."""

from config.protocol import inventory, names
from deviceplugin.kubelet.checkpoint import CheckpointEntry
from deviceplugin.node.devices import held_by
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
