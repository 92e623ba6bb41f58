"""A pod that may use more than its request, on a card where others are short of what they requested."""

from collections.abc import Sequence

import pytest

from config.protocol import names
from config.protocol.container_formula import ContainerKind
from config.protocol.inventory import Card
from deviceplugin.allocation.container_share import most_mib_on_cards
from deviceplugin.allocation.decision import CardDecision, Share
from deviceplugin.allocation.pods import NodePod, PodContainer
from deviceplugin.reconcile.drift import Action, Compared, Drift, DriftKind, SeenPod, Use, actions, find_drift
from deviceplugin.reconcile.pressure import pressure
from tests.support.node.drift_policy import drift_policy

CARDS = (
    Card(index=0, uuid="A", model="M", memory_mib=16384, units=16),
    Card(index=1, uuid="B", model="M", memory_mib=16384, units=16),
)


def pod(name: str, units: int, limit: str = "", *, cards: str = "A", exclusive: bool = False) -> SeenPod:
    """Return a pod with one container. limit: the annotation's text."""
    container = PodContainer("c", ContainerKind.APP, 0, units)
    annotations = {names.GPU_MEM_LIMIT: limit} if limit else {}
    made = NodePod(
        uid=name, namespace="ns", name=name, containers=(container,), annotations=annotations, exclusive=exclusive
    )
    shares = tuple(Share(uuid, "AB".index(uuid), units // len(cards), 16) for uuid in cards)
    return SeenPod(made, CardDecision({"c": shares}, 1024))


def found(seen: Sequence[SeenPod], *used: tuple[str, int]) -> list[Drift]:
    """Return the drift on card A. used: (pod, MiB)."""
    uses = [Use("A", number, mib, name) for number, (name, mib) in enumerate(used, start=1)]
    return list(pressure(CARDS, seen, uses, {"A"}, 1024))


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        pytest.param([("burst", 12288), ("other", 4096)], [], id="everybody has what they requested"),
        pytest.param([("burst", 12288), ("other", 0)], [], id="what others requested is free"),
        pytest.param([("burst", 12289), ("other", 0)], ["burst"], id="1 MiB is missing"),
        pytest.param([("burst", 8192), ("other", 0), ("", 6000)], ["burst"], id="outside use counts"),
        pytest.param([("burst", 4096), ("other", 0), ("", 9000)], [], id="nobody is above their request"),
    ],
)
def test_a_pod_above_its_request_is_told_if_others_are_short(used: list[tuple[str, int]], expected: list[str]) -> None:
    seen = [pod("burst", 4, "16"), pod("other", 4)]
    assert [one.pod.name for one in found(seen, *used) if one.pod] == expected


def test_the_message_has_the_numbers() -> None:
    (drift,) = found([pod("burst", 4, "16"), pod("other", 4)], ("burst", 14000), ("other", 1000))
    assert (drift.kind, drift.uuid, drift.mib) == (DriftKind.PRESSURE, "A", 14000 - 4096)
    assert drift.message == (
        "pod ns/burst (UID burst): it uses 14000 MiB of A and requested 4096 MiB; 1384 MiB are free, and other "
        "pods may still claim 3096 MiB"
    )


def test_one_pod_at_a_time_is_told_the_furthest_above_first() -> None:
    seen = [pod("a", 2, "8"), pod("b", 2, "8"), pod("c", 8)]
    assert [one.pod.name for one in found(seen, ("a", 5000), ("b", 6000)) if one.pod] == ["b"]
    assert [one.pod.name for one in found(seen, ("a", 6000), ("b", 6000)) if one.pod] == ["a"]


def test_a_pod_without_a_valid_limit_is_not_told() -> None:
    for limit in ("", "2", "many"):
        assert found([pod("p", 4, limit), pod("other", 12)], ("p", 9000)) == []


def test_a_card_whose_use_is_unknown_is_left_out() -> None:
    seen = [pod("burst", 4, "16"), pod("other", 4)]
    assert list(pressure(CARDS, seen, [Use("A", 1, 16000, "burst")], (), 1024)) == []


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        pytest.param(8704, [], id="its limit and the allowance"),
        pytest.param(8705, ["pod ns/p (UID p): it uses 8705 MiB of A; it may use 8192 MiB there"], id="more"),
    ],
)
def test_a_pod_with_a_limit_may_use_it(used: int, expected: list[str]) -> None:
    compared = Compared(
        cards=CARDS, unit_mib=1024, pods=[pod("p", 4, "8")], allocated=(), uses=[Use("A", 1, used, "p")]
    )
    assert [one.message for one in find_drift(compared, allowance_mib=512)] == expected


def test_a_limit_counts_over_all_cards_and_ends_at_the_card() -> None:
    def most(seen: SeenPod) -> dict[str, int]:
        assert seen.decision is not None
        return most_mib_on_cards(seen.pod, seen.decision, CARDS)

    assert most(pod("p", 4, "16", cards="AB")) == {"A": 8192, "B": 8192}
    assert most(pod("p", 4, "100")) == {"A": 16384}
    assert most(pod("p", 4)) == {"A": 4096}
    assert most(pod("p", 4, "16", exclusive=True)) == {}


def test_pressure_evicts_like_use_above_the_request() -> None:
    drift = Drift(kind=DriftKind.PRESSURE, message="m", pod=pod("p", 4).pod)
    told = frozenset({Action.METRIC, Action.EVENT})
    assert actions(drift, drift_policy("off")) == frozenset()
    assert actions(drift, drift_policy("warn")) == told
    assert actions(drift, drift_policy("evict")) == told | {Action.EVICT}
