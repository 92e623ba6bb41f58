import pytest

from config.protocol import names
from config.protocol.inventory import Health, decode
from scheduler.kube import objects
from scheduler.pods.gpu_request import ResourceNames
from scheduler.tools.simulate.timeline import HEALTHY, LOST, CardState, Condition, after_xid, card_named, with_cards
from tests.support.builders import card, wire_node

RESOURCES = ResourceNames()
SICK = CardState(Condition.UNHEALTHY, "xid-79")
OLD = objects.Node(
    objects.ObjectMeta("old"),
    status=objects.NodeStatus(
        allocatable={names.GPU_MEM: "32", names.GPU_COUNT: "2"}, capacity={names.GPU_MEM: "32", names.GPU_COUNT: "2"}
    ),
)


def health(node: objects.Node) -> list[str]:
    """`index health reason` of each card in the inventory."""
    shown_cards = decode((node.metadata.annotations or {})[names.INVENTORY])
    return [f"{c.index} {c.health} {c.reason}".rstrip() for c in shown_cards.cards]


def totals(node: objects.Node) -> tuple[object, object, object]:
    """Allocatable gpu-mem, capacity of gpu-mem, capacity of gpu-count."""
    allocatable, capacity = node.status.allocatable or {}, node.status.capacity or {}
    return allocatable[names.GPU_MEM], capacity[names.GPU_MEM], capacity[names.GPU_COUNT]


@pytest.mark.parametrize("xid", [48, 63, 64, 74, 79, 94, 95])
def test_an_error_of_the_hardware_makes_a_card_unhealthy_and_says_which(xid: int) -> None:
    assert after_xid(HEALTHY, xid) == CardState(Condition.UNHEALTHY, f"xid-{xid}")


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_an_application_error_changes_nothing(xid: int) -> None:
    assert after_xid(HEALTHY, xid) == HEALTHY
    assert after_xid(SICK, xid) == SICK


def test_an_unhealthy_card_stays_in_the_inventory_and_shrinks_allocatable_only() -> None:
    node = with_cards(wire_node("a", [16, 24]), {1: SICK}, RESOURCES)
    assert health(node) == ["0 healthy", "1 unhealthy xid-79"]
    assert totals(node) == ("16", "40", "2")


def test_a_lost_card_is_in_no_inventory_and_no_total() -> None:
    node = with_cards(wire_node("a", [16, 24]), {0: LOST}, RESOURCES)
    assert health(node) == ["1 healthy"]
    assert totals(node) == ("24", "24", "1")


def test_a_card_described_as_unhealthy_returns_its_units_when_healthy() -> None:
    described = wire_node("a", [card(0, 16), card(1, 24, health=Health.UNHEALTHY)])
    assert totals(described) == ("16", "16", "2")  # what the builder sums up: healthy cards
    node = with_cards(described, {1: HEALTHY}, RESOURCES)
    assert health(node) == ["0 healthy", "1 healthy"]
    assert totals(node)[0] == "40"


def test_allocatable_never_falls_below_zero() -> None:
    node = with_cards(wire_node("a", [16, 24], gpu_mem=10), {0: SICK}, RESOURCES)
    assert totals(node)[0] == "0"


def test_without_an_inventory_an_equal_share_is_not_allocatable() -> None:
    assert totals(with_cards(OLD, {1: SICK}, RESOURCES)) == ("16", "32", "2")


@pytest.mark.parametrize(
    ("node", "name", "index"),
    [
        pytest.param(wire_node("a", [16, 24]), "1", 1, id="by index"),
        pytest.param(wire_node("a", [16, 24]), "GPU-a-1", 1, id="by uuid"),
        pytest.param(wire_node("a", [16, 24]), "2", None, id="no such index"),
        pytest.param(OLD, "1", 1, id="one of the equal cards"),
        pytest.param(OLD, "2", None, id="beyond the equal cards"),
        pytest.param(wire_node("a"), "0", None, id="no cards at all"),
        pytest.param(wire_node("a", annotations={names.INVENTORY: "{"}), "0", None, id="unreadable inventory"),
    ],
)
def test_a_card_is_found_by_its_index_or_uuid(node: objects.Node, name: str, index: int | None) -> None:
    found = card_named(node, name, RESOURCES)
    assert (None if found is None else found.index) == index
