"""A node's pod, and what the scheduler decided for each of its containers: exactly that, or a refusal that says why."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol import names
from config.protocol.container_formula import ContainerKind
from config.protocol.inventory import Card
from deviceplugin.allocation.pods import (
    CardDecision,
    NoAllocation,
    PodContainer,
    Share,
    Undecided,
    WrongAllocation,
    decided,
)
from tests.support.node_pods import CARDS, node_pod, on

A, B, C, MIG = CARDS


def written(containers: str, *, cards: str = "", init: str = "", **more: str) -> dict[str, str]:
    keys = {names.ALLOCATION: containers, names.CARDS: cards, names.INIT_ALLOCATION: init}
    return {key: text for key, text in keys.items() if text} | more


def share(card: Card, units: int) -> Share:
    return Share(card.uuid, card.index, units, card.units)


def test_containers_stand_in_the_order_in_which_the_kubelet_allocates() -> None:
    pod = node_pod("p", [3, 0], init=[2, 1], sidecars={1})
    assert pod.containers == (
        PodContainer("i0", ContainerKind.INIT, 0, 2),
        PodContainer("i1", ContainerKind.SIDECAR, 1, 1),
        PodContainer("c0", ContainerKind.APP, 0, 3),
        PodContainer("c1", ContainerKind.APP, 1, 0),
    )
    assert [container.name for container in pod.asking()] == ["i0", "i1", "c0"]


def test_what_the_pods_state_is() -> None:
    fresh = node_pod("p", [1], phase="Pending", conditions=[{"type": "PodScheduled", "status": "True"}])
    assert (fresh.terminating, fresh.finished, fresh.reported, fresh.exclusive) == (False, False, False, False)
    assert node_pod("p", [1], terminating=True).terminating
    assert node_pod("p", [1], phase="Failed").finished
    assert node_pod("p", [1], containerStatuses=[{"name": "c0"}]).reported
    assert node_pod("p", [1], initContainerStatuses=[{"name": "i0"}]).reported


def test_a_whole_card_pod_is_one_by_annotation_or_label() -> None:
    assert node_pod("p", [1], annotations={names.EXCLUSIVE: "true"}).exclusive
    assert node_pod("p", [1], labels={names.PLACEMENT_LABEL: names.PLACEMENT_WHOLE_DEVICE}).exclusive
    assert not node_pod("p", [1], annotations={names.EXCLUSIVE: "false"}).exclusive


def test_each_container_gets_what_our_scheduler_wrote() -> None:
    pod = on(node_pod("p", [3, 0, 1], init=[2, 1], sidecars={1}), B)
    expected = {"i0": (share(B, 2),), "i1": (share(B, 1),), "c0": (share(B, 3),), "c2": (share(B, 1),)}
    assert decided(pod, CARDS) == CardDecision(expected)
    assert decided(pod, CARDS).uuids() == {"GPU-b"}


def test_a_pod_of_two_cards_has_its_share_on_each() -> None:
    pod = on(node_pod("p", [4], annotations={names.GPU_COUNT: "2"}), B, A)
    assert decided(pod, CARDS).shares == {"c0": (share(A, 2), share(B, 2))}


def test_a_whole_card_pod_gets_the_units_that_it_asked() -> None:
    pod = on(node_pod("p", [5], annotations={names.EXCLUSIVE: "true"}), A)
    assert decided(pod, CARDS).shares == {"c0": (share(A, 5),)}


def test_the_uuid_counts_and_not_the_index_that_the_card_had() -> None:
    renumbered = [replace(A, index=1), replace(B, index=0)]
    pod = on(node_pod("p", [3]), B)
    assert decided(pod, renumbered).shares == {"c0": (Share("GPU-b", 0, 3, 16),)}


def test_an_allocation_without_uuids_means_the_cards_as_they_are_numbered_now() -> None:
    pod = node_pod("p", [3], annotations=written('{"0":{"2":3}}'))
    assert decided(pod, CARDS).shares == {"c0": (share(C, 3),)}


def test_the_legacy_schedulers_index_means_every_container() -> None:
    pod = node_pod("p", [3, 1], init=[2], annotations={names.MEM_IDX: "1", names.MEM_POD: "4"})
    assert decided(pod, CARDS).shares == {"i0": (share(B, 2),), "c0": (share(B, 3),), "c1": (share(B, 1),)}


def test_the_allocation_comes_before_the_legacy_schedulers_index() -> None:
    pod = node_pod("p", [3], annotations=written('{"0":{"0":3}}', **{names.MEM_IDX: "1"}))
    assert decided(pod, CARDS).shares == {"c0": (share(A, 3),)}


def test_containers_that_ask_nothing_get_nothing() -> None:
    pod = node_pod("p", [3, 0], annotations=written('{"0":{"0":3,"1":0},"1":{}}'))
    assert set(decided(pod, CARDS).shares) == {"c0"}


def test_a_pod_without_allocation_may_get_one_later() -> None:
    with pytest.raises(NoAllocation, match=r"pod ns/p \(UID uid-p\) has no allocation"):
        decided(node_pod("p", [3]), CARDS)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        pytest.param(written('{"0":{"0":2}}'), "container c0 2 units; its limit is 3", id="too few"),
        pytest.param(written('{"0":{"0":4}}'), "container c0 4 units; its limit is 3", id="too many"),
        pytest.param(written("{}"), "container c0 0 units; its limit is 3", id="none"),
        pytest.param(written('{"0":{"0":3},"1":{"0":1}}'), "container c1 1 units; its limit is 0", id="unasked"),
        pytest.param(written('{"0":{"0":3},"2":{"0":1}}'), "app container 2; the pod has 2", id="no such container"),
        pytest.param(written('{"0":{"0":3}}', init='{"0":{"0":1}}'), "init container 0; the pod has 0", id="no init"),
        pytest.param(written('{"0":{"7":3}}'), "card 7, which is not on this node; its cards are 0: GPU-a", id="index"),
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
        pytest.param({names.MEM_IDX: "9"}, "card 9, which is not on this node", id="the legacy index"),
        pytest.param(written("nonsense", **{names.MEM_IDX: "0"}), "cannot be read", id="broken beside an index"),
    ],
)
def test_an_allocation_that_does_not_fit_is_refused_with_the_reason(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(WrongAllocation, match=message) as refused:
        decided(node_pod("p", [3, 0], annotations=annotations), CARDS)
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
        decided(pod, CARDS)


@given(
    st.dictionaries(st.sampled_from((names.ALLOCATION, names.CARDS, names.INIT_ALLOCATION, names.MEM_IDX)), st.text())
)
def test_whatever_is_written_gives_each_container_its_limit_or_a_refusal(annotations: dict[str, str]) -> None:
    pod = node_pod("p", [3], init=[1], annotations=annotations)
    with contextlib.suppress(Undecided):
        found = decided(pod, CARDS).shares
        assert {name: sum(one.units for one in shares) for name, shares in found.items()} == {"c0": 3, "i0": 1}
