"""What the scheduler decided for each container: exactly that, or a refusal that says why; the first decision stays."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol import names
from config.protocol.inventory import Card
from deviceplugin.allocation.decision import (
    CardDecision,
    NoAllocation,
    Share,
    Undecided,
    WrongAllocation,
    allocated_units,
    decided,
    units_on_cards,
)
from tests.support.node.node_pods import CARDS, UNIT_MIB, node_pod, on

A, B, C, MIG = CARDS


def written(containers: str, *, cards: str = "", init: str = "", **more: str) -> dict[str, str]:
    keys = {names.ALLOCATION: containers, names.CARDS: cards, names.INIT_ALLOCATION: init, names.UNIT_MIB: "1024"}
    return {key: text for key, text in keys.items() if text} | more


def share(card: Card, units: int) -> Share:
    return Share(card.uuid, card.index, units, card.units)


def test_each_container_gets_what_our_scheduler_wrote() -> None:
    pod = on(node_pod("p", [3, 0, 1], init=[2, 1], sidecars={1}), B)
    expected = {"i0": (share(B, 2),), "i1": (share(B, 1),), "c0": (share(B, 3),), "c2": (share(B, 1),)}
    assert decided(pod, CARDS, UNIT_MIB) == CardDecision(expected, UNIT_MIB)


def test_a_pod_of_two_cards_has_its_share_on_each() -> None:
    pod = on(node_pod("p", [4], annotations={names.GPU_COUNT: "2"}), B, A)
    assert decided(pod, CARDS, UNIT_MIB).shares == {"c0": (share(A, 2), share(B, 2))}


def test_a_whole_card_pod_gets_the_units_that_it_asked() -> None:
    pod = on(node_pod("p", [5], annotations={names.EXCLUSIVE: "true"}), A)
    assert decided(pod, CARDS, UNIT_MIB).shares == {"c0": (share(A, 5),)}


def test_the_uuid_counts_and_not_the_index_that_the_card_had() -> None:
    renumbered = [replace(A, index=1), replace(B, index=0)]
    pod = on(node_pod("p", [3]), B)
    assert decided(pod, renumbered, UNIT_MIB).shares == {"c0": (Share("GPU-b", 0, 3, 16),)}


def test_an_allocation_without_uuids_means_the_cards_as_they_are_numbered_now() -> None:
    pod = node_pod("p", [3], annotations=written('{"0":{"2":3}}'))
    assert decided(pod, CARDS, UNIT_MIB).shares == {"c0": (share(C, 3),)}


def test_the_legacy_schedulers_index_means_every_container() -> None:
    pod = node_pod("p", [3, 1], init=[2], annotations={names.MEM_IDX: "1", names.MEM_DEV: "16"})
    assert decided(pod, CARDS, UNIT_MIB).shares == {"i0": (share(B, 2),), "c0": (share(B, 3),), "c1": (share(B, 1),)}


def test_the_allocation_comes_before_the_legacy_schedulers_index() -> None:
    pod = node_pod("p", [3], annotations=written('{"0":{"0":3}}', **{names.MEM_IDX: "1"}))
    assert decided(pod, CARDS, UNIT_MIB).shares == {"c0": (share(A, 3),)}


def test_containers_that_ask_nothing_get_nothing() -> None:
    pod = node_pod("p", [3, 0], annotations=written('{"0":{"0":3,"1":0},"1":{}}'))
    assert set(decided(pod, CARDS, UNIT_MIB).shares) == {"c0"}


def test_a_pod_without_allocation_may_get_one_later() -> None:
    with pytest.raises(NoAllocation, match=r"pod ns/p \(UID uid-p\) has no allocation"):
        decided(node_pod("p", [3]), CARDS, UNIT_MIB)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        pytest.param(written('{"0":{"0":2}}'), "adds up to 2 units, but the pod requests 3", id="too few"),
        pytest.param(written('{"0":{"0":4}}'), "adds up to 4 units, but the pod requests 3", id="too many"),
        pytest.param(written("{}"), "adds up to 0 units, but the pod requests 3", id="none"),
        pytest.param(written('{"0":{"0":3},"1":{"0":1}}'), "adds up to 4 units, but the pod requests 3", id="unasked"),
        pytest.param(
            written('{"0":{"0":3},"2":{"0":1}}'), "adds up to 4 units, but the pod requests 3", id="no such container"
        ),
        pytest.param(
            written('{"0":{"0":3}}', init='{"0":{"0":1}}'), "init container index 0; the pod has 0", id="no init"
        ),
        pytest.param(written('{"0":{"7":3}}'), "names a card by an index that its node does not have", id="index"),
        pytest.param(
            written('{"0":{"0":3}}', cards='{"0":"GPU-z"}'), "card GPU-z, which is not on this node", id="UUID"
        ),
        pytest.param(written('{"0":{"0":3}}', cards=f'{{"0":"{"G" * 9000}"}}'), "card G{64}, which", id="long UUID"),
        pytest.param(written('{"0":{"0":3}}', cards='{"1":"GPU-b"}'), "has no UUID for card 0", id="UUID missing"),
        pytest.param(written('{"0":{"3":3}}'), r"card GPU-m is not shared \(mig\)", id="MIG"),
        pytest.param(written('{"0":{"0":1,"1":2}}'), "1 on card 0, 2 on card 1; expected the same", id="uneven"),
        pytest.param(
            written('{"0":{"0":1,"1":1,"2":1}}', cards='{"0":"GPU-a","1":"GPU-a","2":"GPU-c"}'),
            "one card under two indexes",
            id="one card twice",
        ),
        pytest.param(written("nonsense"), "cannot be read", id="broken"),
        pytest.param({names.MEM_IDX: "-1"}, f"{names.MEM_IDX} is '-1'", id="the legacy plugin's failure"),
        pytest.param(
            {names.MEM_IDX: "9", names.UNIT_MIB: "1024"},
            "do not fit card 9, or its node has no such card",
            id="the legacy index",
        ),
        pytest.param(written('{"0":{"0":2},"1":{"0":1}}'), "2 units to container c0; its limit is 3", id="to another"),
        pytest.param({names.MEM_IDX: "0"}, "the size of its 3 units is unknown", id="no unit"),
    ],
)
def test_an_allocation_that_does_not_fit_is_refused_with_the_reason(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(WrongAllocation, match=message) as refused:
        decided(node_pod("p", [3, 0], annotations=annotations), CARDS, UNIT_MIB)
    assert str(refused.value).startswith("pod ns/p (UID uid-p): ")


@pytest.mark.parametrize(
    ("count", "cards", "message"),
    [
        pytest.param("2", (A,), "c0 has 1 cards; the pod's gpu-count is 2", id="too few cards"),
        pytest.param("1", (A, B), "c0 has 2 cards; the pod's gpu-count is 1", id="too many cards"),
        pytest.param("two", (A,), "gpu-count is 'two'", id="no number"),
        pytest.param("²", (A,), "gpu-count is", id="a digit that is none"),
    ],
)
def test_the_number_of_cards_is_what_the_pod_asked(count: str, cards: tuple[Card, ...], message: str) -> None:
    pod = on(node_pod("p", [4], labels={names.GPU_COUNT: count}), *cards)
    with pytest.raises(WrongAllocation, match=message):
        decided(pod, CARDS, UNIT_MIB)


@given(
    st.dictionaries(st.sampled_from((names.ALLOCATION, names.CARDS, names.INIT_ALLOCATION, names.MEM_IDX)), st.text())
)
def test_whatever_is_written_gives_each_container_its_limit_or_a_refusal(annotations: dict[str, str]) -> None:
    pod = node_pod("p", [3], init=[1], annotations=annotations)
    with contextlib.suppress(Undecided):
        found = decided(pod, CARDS, UNIT_MIB).shares
        assert {name: sum(one.units for one in shares) for name, shares in found.items()} == {"c0": 3, "i0": 1}


def test_a_broken_allocation_of_a_one_card_pod_means_its_index_as_for_the_scheduler() -> None:
    pod = node_pod("p", [3], annotations=written("nonsense", **{names.MEM_IDX: "1"}))
    assert decided(pod, CARDS, UNIT_MIB).shares == {"c0": (share(B, 3),)}


def test_a_broken_allocation_of_a_two_card_pod_means_no_card() -> None:
    both = {names.GPU_COUNT: "2", names.MEM_IDX: "1"}
    with pytest.raises(WrongAllocation, match="cannot be read"):
        decided(node_pod("p", [4], annotations=written("nonsense", **both)), CARDS, UNIT_MIB)
    del both[names.GPU_COUNT]
    with pytest.raises(WrongAllocation, match="names one card; the pod's gpu-count is '2'"):
        decided(node_pod("p", [4], annotations=both, labels={names.GPU_COUNT: "2"}), CARDS, UNIT_MIB)


def test_the_first_decision_is_followed_by_uuid_whatever_the_annotations_and_indexes_say() -> None:
    pod = node_pod("p", [3], annotations=written('{"0":{"1":3}}'))
    first = replace(pod, first_cards=decided(pod, CARDS, UNIT_MIB).first_cards(), annotations={})
    renumbered = [replace(A, index=1), replace(B, index=0)]
    assert decided(first, renumbered, UNIT_MIB).shares == {"c0": (Share("GPU-b", 0, 3, 16),)}
    with pytest.raises(WrongAllocation, match="card GPU-b, which is not on this node; its cards are 0: GPU-a"):
        decided(first, [A], UNIT_MIB)


def test_after_a_change_of_the_unit_the_container_keeps_its_numbers_and_the_card_is_booked_in_the_new_unit() -> None:
    pod = on(node_pod("p", [3]), A)
    fine = [replace(card, units=card.memory_mib // 256) for card in CARDS]
    found = decided(pod, fine, 256)
    assert found.shares == {"c0": (Share("GPU-a", 0, 3, 16),)}
    assert units_on_cards(pod, found, 256) == {"GPU-a": 12}
    assert allocated_units([pod, node_pod("q", [1])], fine, 256) == {"GPU-a": 12}
