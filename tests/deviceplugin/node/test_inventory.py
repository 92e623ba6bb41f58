"""The inventory of a node, the cordons that people write, and what is announced."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol import inventory, names
from config.protocol.inventory import Health, Inventory
from config.settings.scheduler import Resources
from deviceplugin.driver.cards import DriverCard
from deviceplugin.node.inventory import Terms, announcement, cordoned_uuids, node_inventory

GIB_UNITS = Terms(unit_mib=1024, unified_memory_mib=0)
XID = (Health.UNHEALTHY, "xid-79")
SUSPECT = (Health.SUSPECT, "xid-13")
CARD = DriverCard(index=0, uuid="GPU-0", model="A100", memory_mib=81_559)
NODE = [
    CARD,
    DriverCard(index=1, uuid="GPU-1", model="A100", memory_mib=81_559),
    DriverCard(index=2, uuid="GPU-2", model="A100", memory_mib=81_559),
]
RESOURCES = Resources()


def announced(
    card: DriverCard,
    health: tuple[Health, str] | None = None,
    *,
    cordoned: bool = False,
    terms: Terms = GIB_UNITS,
    outside_mib: int = 0,
) -> inventory.Card:
    """One card as the inventory of its node has it."""
    healths = {} if health is None else {card.uuid: health}
    uuids = frozenset({card.uuid} if cordoned else ())
    return node_inventory("580", [card], healths, uuids, terms, {card.uuid: outside_mib}).cards[0]


@pytest.mark.parametrize(
    ("driver", "model"), [("NVIDIA A10", "NVIDIA-A10"), ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"), ("", "")]
)
def test_a_model_is_one_word_as_pods_name_it(driver: str, model: str) -> None:
    assert announced(DriverCard(index=0, uuid="GPU-0", model=driver, memory_mib=15_360)).model == model


def of_node(
    healths: Mapping[str, tuple[Health, str]] | None = None, *, cordoned: frozenset[str] = frozenset()
) -> Inventory:
    return node_inventory("580", NODE, healths or {}, cordoned, GIB_UNITS, {})


def test_a_card_is_announced_with_all_that_the_driver_says() -> None:
    card = DriverCard(
        index=3, uuid="GPU-3", model="H100", memory_mib=81_559, minor=3, pci="0000:07:00.0", numa=1, links={"1": "NV12"}
    )
    assert announced(card) == inventory.Card(
        index=3,
        uuid="GPU-3",
        model="H100",
        memory_mib=81_559,
        units=79,
        health=Health.HEALTHY,
        reason="",
        numa=1,
        pci="0000:07:00.0",
        links={"1": "NV12"},
    )


@pytest.mark.parametrize(
    ("usable_mib", "reserved_mib", "units", "with_reserved"),
    [
        pytest.param(14_910, 450, 14, 15, id="T4"),
        pytest.param(81_051, 869, 79, 80, id="A100 with 80 GB"),
        pytest.param(81_008, 551, 79, 79, id="one that has a whole number of units either way"),
        pytest.param(0, 0, 0, 0, id="memory unknown"),
    ],
)
def test_memory_that_the_driver_reserves_counts_where_the_configuration_says_so(
    usable_mib: int, reserved_mib: int, units: int, with_reserved: int
) -> None:
    card = DriverCard(index=0, uuid="GPU-0", model="", memory_mib=usable_mib, reserved_mib=reserved_mib)
    as_legacy = announced(card, terms=Terms(1024, 0, count_reserved=True))
    assert (announced(card).units, announced(card).memory_mib) == (units, usable_mib)
    assert (as_legacy.units, as_legacy.memory_mib) == (with_reserved, usable_mib + reserved_mib)


def test_the_cards_are_ordered_by_index_whatever_the_driver_does() -> None:
    found = node_inventory("580.1", [NODE[2], NODE[0]], {}, frozenset(), GIB_UNITS, {})
    assert (found.driver, found.unit_mib, [card.index for card in found.cards]) == ("580.1", 1024, [0, 2])


@pytest.mark.parametrize(
    ("health", "cordoned", "expected"),
    [
        pytest.param(None, False, (Health.HEALTHY, ""), id="nothing known of it"),
        pytest.param(None, True, (Health.CORDONED, ""), id="cordoned"),
        pytest.param(SUSPECT, False, SUSPECT, id="suspect"),
        pytest.param(SUSPECT, True, SUSPECT, id="suspect comes before cordoned"),
        pytest.param(XID, True, XID, id="unhealthy comes before cordoned"),
    ],
)
def test_the_health_of_a_card(
    health: tuple[Health, str] | None,
    cordoned: bool,  # noqa: FBT001
    expected: tuple[Health, str],
) -> None:
    card = announced(CARD, health, cordoned=cordoned)
    assert (card.health, card.reason) == expected


@pytest.mark.parametrize("health", [None, XID])
def test_a_card_in_mig_mode_has_no_units_and_says_so(health: tuple[Health, str] | None) -> None:
    card = announced(DriverCard(index=0, uuid="GPU-0", model="A100", memory_mib=81_559, mig=True), health)
    assert (card.units, card.reason, card.memory_mib) == (0, "mig", 81_559)
    assert card.health is (Health.UNHEALTHY if health else Health.HEALTHY)


@pytest.mark.parametrize(
    ("health", "reason"),
    [pytest.param(None, "memory-unknown", id="alone"), pytest.param(XID, "xid-79", id="what ails it comes first")],
)
def test_a_card_of_unknown_memory_has_no_units_and_says_so(health: tuple[Health, str] | None, reason: str) -> None:
    card = announced(DriverCard(index=0, uuid="GPU-0", model="GB10", memory_mib=0), health)
    assert (card.units, card.reason) == (0, reason)


@pytest.mark.parametrize(
    ("said_mib", "memory_mib", "units"),
    [pytest.param(0, 98_304, 96, id="unified memory"), pytest.param(81_559, 81_559, 79, id="the driver knows better")],
)
def test_a_card_has_the_memory_of_the_configuration_where_its_driver_says_none(
    said_mib: int, memory_mib: int, units: int
) -> None:
    card = announced(DriverCard(index=0, uuid="GPU-0", model="GB10", memory_mib=said_mib), terms=Terms(1024, 98_304))
    assert (card.memory_mib, card.units, card.reason) == (memory_mib, units, "")


@pytest.mark.parametrize(
    ("outside_mib", "units"),
    [
        pytest.param(0, 79, id="none"),
        pytest.param(663, 79, id="what is over anyway"),
        pytest.param(664, 78, id="one more begins the next unit"),
        pytest.param(81_559, 0, id="everything"),
        pytest.param(90_000, 0, id="more than there is"),
    ],
)
def test_memory_used_outside_the_books_is_not_announced(outside_mib: int, units: int) -> None:
    card = announced(CARD, outside_mib=outside_mib)
    assert (card.units, card.memory_mib) == (units, 81_559)


@pytest.mark.parametrize(
    ("text", "uuids", "rewritten"),
    [
        pytest.param("", frozenset[str](), "", id="empty"),
        pytest.param("GPU-1", frozenset({"GPU-1"}), "GPU-1", id="a UUID"),
        pytest.param("1", frozenset({"GPU-1"}), "GPU-1", id="an index"),
        pytest.param("GPU-0, 2", frozenset({"GPU-0", "GPU-2"}), "GPU-0, GPU-2", id="both"),
        pytest.param("GPU-9,9,01", frozenset[str](), "GPU-9,9,01", id="unknown names stay"),
        pytest.param(" GPU-1 ,,", frozenset({"GPU-1"}), " GPU-1 ,,", id="nothing to rewrite, nothing changed"),
    ],
)
def test_a_cordon_names_cards(text: str, uuids: frozenset[str], rewritten: str) -> None:
    assert cordoned_uuids(text, NODE) == (uuids, rewritten)


@given(st.lists(st.sampled_from(["0", "1", "2", "7", "GPU-1", "GPU-8", "", " 2 "])).map(",".join))
def test_a_cordon_rewritten_means_the_same_and_is_not_rewritten_again(text: str) -> None:
    uuids, rewritten = cordoned_uuids(text, NODE)
    assert cordoned_uuids(rewritten, NODE) == (uuids, rewritten)


def test_the_scheduler_reads_what_is_announced() -> None:
    found = of_node({"GPU-1": XID}, cordoned=frozenset({"GPU-2"}))
    text = announcement(found, RESOURCES, gpu_core=False).annotations[names.INVENTORY]
    assert text is not None
    assert inventory.decode(text) == found


def test_every_card_is_counted_unhealthy_or_not() -> None:
    assert announcement(of_node({"GPU-1": XID}), RESOURCES, gpu_core=False).capacity == {names.GPU_COUNT: 3}


def test_the_compute_of_usable_cards_is_announced_where_wanted() -> None:
    found = of_node({"GPU-1": SUSPECT}, cordoned=frozenset({"GPU-2"}))
    capacity = announcement(found, RESOURCES, gpu_core=True).capacity
    assert capacity == {names.GPU_COUNT: 3, names.GPU_CORE: 200}


def test_a_card_that_cannot_be_shared_has_no_compute_to_share() -> None:
    found = node_inventory(
        "580",
        [DriverCard(index=0, uuid="GPU-0", model="A100", memory_mib=81_559, mig=True)],
        {},
        frozenset(),
        GIB_UNITS,
        {},
    )
    assert announcement(found, RESOURCES, gpu_core=True).capacity == {names.GPU_COUNT: 1, names.GPU_CORE: 0}


def test_the_resources_have_the_configured_names() -> None:
    resources = Resources(gpu_count="x.com/count", gpu_core="x.com/core")
    assert announcement(of_node(), resources, gpu_core=True).capacity == {"x.com/count": 3, "x.com/core": 300}
