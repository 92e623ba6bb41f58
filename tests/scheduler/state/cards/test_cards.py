"""The columns of cards: what costs only whom it concerns, and whose card is whose."""

import tracemalloc
from functools import reduce
from operator import or_

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from config.protocol import names
from config.protocol.allocation import Allocation, LegacyFields, encode
from config.protocol.inventory import MAX_CARDS, Card
from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.framework.runtime import Runtime
from scheduler.kube import objects
from scheduler.plugins import registry
from scheduler.pods.gpu_request import GpuRequest, ResourceNames, Selection
from scheduler.state.amounts import ANY_BIT, BITS, model_bit
from scheduler.state.cards.node_inventory import GpuState, accepted_codes, read_inventory
from scheduler.state.ledger import of_tables
from scheduler.state.minimum_request import NO_MINIMUM, minimum_request_of
from scheduler.state.tables import Tables
from tests.support.builders import UNIT_MIB, bound, card, cluster, pod, wire_node

PROFILE = registry.build(resolve(SchedulerConfiguration())[0], ResourceNames())


def on(units: dict[int, int], uuids: dict[int, str], *, unit_mib: int = UNIT_MIB) -> dict[str, str]:
    """Annotations of a pod with one container on these cards (index -> units)."""
    return encode(Allocation({0: units}, {}, uuids, unit_mib), LegacyFields(sum(units.values()), 16, 1))


def with_card(name: str, uuid: str) -> objects.Node:
    """A node whose only card has this UUID."""
    return wire_node(name, [Card(index=0, uuid=uuid, model="M", memory_mib=16 * UNIT_MIB, units=16)])


def usable(tables: Tables, node: str) -> list[bool]:
    row = tables.row_of[node]
    return [bool(one) for one in tables.cards.stored.usable[: len(tables.cards.slots[row]), row]]


# Lost cards


def test_invented_cards_cost_their_own_node_alone() -> None:
    tables = cluster(**{f"n{i}": [16] * 8 for i in range(40)})
    before = tables.cards.stored.units.shape
    invented = {index: f"x{index}" for index in range(4000)}
    tracemalloc.start()
    tables.add(bound(pod("liar", 4000), "n7", on(dict.fromkeys(invented, 1), invented)))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    row = tables.row_of["n7"]

    assert tables.cards.stored.units.shape == before
    assert grown < 4_000_000
    assert (tables.cards.lost[row], len(tables.cards.lost_cards(row))) == (4000, 4000)
    assert tables.cards.free[:8, row].tolist() == [16] * 8
    assert tables.cards.counted[row] == 0

    tables.remove("uid-default-liar")
    assert (tables.cards.lost[row], tables.cards.lost_cards(row)) == (0, {})


def test_absurd_bookings_never_wrap() -> None:
    tables = cluster(a=[16])
    for n in range(200):
        tables.add(bound(pod(f"p{n}", 2**31 - 1), "a"))
    assert tables.cards.free[0, tables.row_of["a"]] == -(2**30)
    assert of_tables(tables)["a"].free == {"GPU-a-0": 16 - 200 * 2**24}
    for n in range(200):
        tables.remove(f"uid-default-p{n}")
    assert of_tables(tables)["a"].free == {"GPU-a-0": 16}


# Wide nodes


def test_a_wide_node_does_not_widen_the_others_and_leaves_nothing_behind() -> None:
    tables = cluster(**{f"n{i}": [16] * 8 for i in range(40)})
    tables.upsert_node(wire_node("wide", [16] * MAX_CARDS))
    cards = tables.cards
    assert (cards.mixed, cards.width, cards.height) == (True, 8, MAX_CARDS)
    groups = cards.groups(slice(None))
    assert [(group.width, len(group.places)) for group in groups if group.places is not None] == [
        (8, tables.capacity - 1),
        (MAX_CARDS, 1),
    ]
    # Cells that a new class of pods looks at: those of the others, and its own row.
    assert sum(group.width * len(group.places) for group in groups if group.places is not None) == 8 * 63 + MAX_CARDS

    tables.remove_node("wide")
    assert (cards.mixed, cards.width, cards.height) == (False, 8, 8)


def test_where_wide_nodes_are_usual_all_are_looked_at_together() -> None:
    tables = cluster(**{f"n{i}": [16] * (16 if i % 2 else 8) for i in range(40)})
    assert (tables.cards.mixed, tables.cards.width) == (False, 16)


@pytest.mark.parametrize("asked", [1, 7, 12, 17])
@pytest.mark.parametrize("count", [1, 3, 9, 20])
@pytest.mark.parametrize("policy", ["binpack", "spread"])
def test_a_wide_node_is_judged_as_if_it_were_alone(asked: int, count: int, policy: str) -> None:
    """The same rows in one cluster of several widths, and each in a cluster of its own."""
    shapes = {"wide": [16] * 30, "middle": [12] * 9, **{f"n{i}": [16, 8, 4] for i in range(8)}}
    wanted = {names.GPU_COUNT: str(count), names.CARD_POLICY: policy, names.CARD_UUIDS: "!GPU-wide-2"}
    asking = pod("p", asked * count, annotations=wanted)
    together = cluster(**shapes)
    assert together.cards.mixed
    for name, sizes in shapes.items():
        alone = cluster(**{name: sizes})
        for tables in (together, alone):
            tables.add(bound(pod("there", 5), name, on({1: 5}, {1: f"GPU-{name}-1"})))
        assert not alone.cards.mixed
        views = []
        for tables in (together, alone):
            runtime, row = Runtime(PROFILE, tables), tables.row_of[name]
            found = runtime.evaluate(asking)
            fits, _ = runtime.fits_on(asking, np.array([row]))
            assert fits == bool(found.feasible[row])
            rejections = [
                (rejection.reason, str(rejection.numbers(only)) if rejection.numbers else "")
                for group in runtime.rejections(asking, found)
                for rejection in group
                if rejection.rejected[row] and (only := np.arange(tables.capacity) == row).any()
            ]
            views.append((bool(found.feasible[row]), int(found.total[row]), rejections))
        assert views[0] == views[1], name
        together.remove("uid-default-there")


# One UUID on two nodes


def test_a_uuid_on_two_nodes_is_used_where_it_was_announced_first() -> None:
    tables = Tables(ResourceNames())
    assert tables.upsert_node(with_card("a", "GPU-x")) == ""
    problem = tables.upsert_node(with_card("b", "GPU-x"))
    assert problem == "node a also announces card GPU-x; at most one of the two nodes gets new pods on it"
    assert (usable(tables, "a"), usable(tables, "b")) == ([True], [False])

    tables.take_cluster_events()
    tables.remove_node("a")
    assert usable(tables, "b") == [True]
    assert tables.row_of["b"] in tables.take_cluster_events().rows


def test_a_uuid_on_two_nodes_is_used_where_a_live_pod_holds_it() -> None:
    tables = Tables(ResourceNames())
    for name in ("a", "b"):
        tables.upsert_node(with_card(name, "GPU-x"))
    tables.add(bound(pod("p", 3), "b", on({0: 3}, {0: "GPU-x"})))
    assert (usable(tables, "a"), usable(tables, "b")) == ([False], [True])

    tables.add(bound(pod("q", 3), "a", on({0: 3}, {0: "GPU-x"})))
    assert (usable(tables, "a"), usable(tables, "b")) == ([False], [False])

    tables.remove("uid-default-p")
    assert (usable(tables, "a"), usable(tables, "b")) == ([True], [False])


def test_cards_without_uuids_are_never_the_same() -> None:
    tables = Tables(ResourceNames())
    for name in ("a", "b"):
        tables.upsert_node(wire_node(name, gpu_mem=None, more={names.GPU_MEM: "32", names.GPU_COUNT: "2"}))
    assert (usable(tables, "a"), usable(tables, "b")) == ([True, True], [True, True])


# Units


def test_a_booking_follows_the_unit_of_its_node() -> None:
    tables = Tables(ResourceNames(), 256)
    tables.add(bound(pod("p", 12), "a", on({0: 12}, {0: "GPU-a-0"})))
    quarter = [Card(index=0, uuid="GPU-a-0", model="M", memory_mib=16 * 1024, units=64)]
    tables.upsert_node(wire_node("a", quarter, unit_mib=256))
    assert of_tables(tables)["a"].free == {"GPU-a-0": 16}
    # The kubelet counts what the pod's containers ask.
    assert tables.cards.counted[tables.row_of["a"]] == 12

    tables.upsert_node(wire_node("a", [card(0, 16)]))
    assert of_tables(tables)["a"].free == {"GPU-a-0": 4}


def test_a_booking_whose_unit_nobody_knows_blocks_its_node_and_is_told() -> None:
    tables = cluster(a=[16, 16])
    problem = tables.add(bound(pod("p", 3), "a", {names.MEM_IDX: "0"}))
    assert "the size of its 3 units is unknown" in problem
    assert of_tables(tables)["a"].free == {"GPU-a-0": 0, "GPU-a-1": 0}

    tables.upsert_node(wire_node("a", [16, 16, 16]))
    assert [(str(found.key), text) for found, text in tables.take_pod_problems()] == [("default/p", problem)]
    assert tables.take_pod_problems() == []


# Models that a pod may have, by code

MODELS = st.frozensets(st.sampled_from(["m0", "m1", "m7", "m61", "m62", "m70", "unknown"]))
SELECTIONS = st.builds(Selection, MODELS, MODELS)


def codes_of(models: int) -> dict[str, int]:
    return {f"m{number}": 1 + number for number in range(models)}


@given(SELECTIONS, st.integers(0, 80))
def test_each_code_is_accepted_as_its_name_is(asked: Selection, models: int) -> None:
    accepts = [asked.accepts(name) for name in codes_of(models)]
    assert accepted_codes(asked, codes_of(models)).tolist() == [False, *accepts, not asked.wanted]


@given(SELECTIONS, st.sampled_from([0, 1, 60, 61, 62, 63, 80]))
def test_a_waiting_pod_needs_the_bits_of_all_models_that_it_may_have(asked: Selection, models: int) -> None:
    codes = codes_of(models)
    request = GpuRequest(cards=1, units_per_card=1, containers=(1,), init_containers=(), models=asked)
    seen = reduce(or_, (model_bit(code) for name, code in codes.items() if asked.accepts(name)), 0)
    expected = seen | (ANY_BIT << min(1 + models, BITS - 1)) if asked else ANY_BIT
    assert minimum_request_of(NO_MINIMUM.amounts, request, codes, None).models == expected


@pytest.mark.parametrize("wanted", [True, False])
def test_no_card_is_of_no_model(*, wanted: bool) -> None:
    some = frozenset({"m1"})
    asked = Selection(some) if wanted else Selection(excluded=some)
    assert accepted_codes(asked, codes_of(3))[np.array([0, 2])].tolist() == [False, wanted]


# Nodes whose device plugin asks to wait: no pods, and never for long

UNTIL = "2026-11-22T10:01:00Z"


def asking_to_wait(until: str, reported: str | None) -> objects.Node:
    asking = wire_node("n", [16], annotations={names.HELD_UNTIL: until})
    pressed, ready = ("DiskPressure", "2999-01-01T00:00:00Z"), ("Ready", reported)
    conditions = tuple(objects.NodeCondition(*condition) for condition in (pressed, ready))
    return replace(asking, status=replace(asking.status, conditions=conditions))


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
    found = read_inventory(asking_to_wait(until, reported), ResourceNames(), 1024)
    assert (found.state, found.problem) == (state, "")
    assert [card.units for card in found.cards] == [16]


def test_a_node_that_has_been_given_devices_and_no_annotation_yet_has_nothing_wrong() -> None:
    amounts: objects.Quantities = {names.GPU_MEM: "110"}
    first = objects.Node(objects.ObjectMeta("n"), status=objects.NodeStatus(allocatable=amounts, capacity=amounts))
    found = read_inventory(first, ResourceNames(), 1024)
    assert (found.state, found.problem) == (GpuState.UNREADABLE, "")
