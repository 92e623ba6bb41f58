"""How long a difference lasts, and what follows from it."""

import pytest

from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin.allocation.pods import NodePod
from deviceplugin.reconcile.drift import Action, Drift, DriftKind, Followed, actions, follow, unbooked_mib

TOLD = frozenset({Action.METRIC, Action.EVENT})
POD = NodePod("u", "ns", "p", ())
LEAVING = NodePod("u", "ns", "p", (), terminating=True)


def of(kind: DriftKind, pod: NodePod | None = POD, *, mib: int = 0, uuid: str = "") -> Drift:
    return Drift(kind, "message", pod, mib=mib, uuid=uuid)


def configured(**fields: object) -> DevicePluginConfiguration:
    return DevicePluginConfiguration.model_validate({"nodeName": "n"} | fields, by_alias=True, by_name=False)


@pytest.mark.parametrize(
    ("difference", "fields", "expected"),
    [
        pytest.param(of(DriftKind.USES_MORE), {"monitor": "off"}, frozenset(), id="nobody monitors"),
        pytest.param(of(DriftKind.USES_MORE), {}, TOLD, id="a warning"),
        pytest.param(of(DriftKind.USES_MORE), {"monitor": "evict"}, TOLD | {Action.EVICT}, id="uses too much"),
        pytest.param(of(DriftKind.USES_MORE, LEAVING), {"monitor": "evict"}, TOLD, id="is going already"),
        pytest.param(of(DriftKind.WITHOUT_DEVICES), {}, TOLD, id="waits"),
        pytest.param(
            of(DriftKind.WITHOUT_DEVICES), {"evictUnregistered": True}, TOLD | {Action.EVICT}, id="waits forever"
        ),
        pytest.param(
            of(DriftKind.ON_ANOTHER_CARD), {"evictMismatched": True}, TOLD | {Action.EVICT}, id="another card"
        ),
        pytest.param(
            of(DriftKind.ON_ANOTHER_CARD), {"evictUnregistered": True, "monitor": "evict"}, TOLD, id="each its own"
        ),
        pytest.param(of(DriftKind.OUTSIDE_USE, None), {}, TOLD, id="outside"),
        pytest.param(
            of(DriftKind.OUTSIDE_USE, None),
            {"announceOutsideUse": True},
            TOLD | {Action.ANNOUNCE_LESS},
            id="outside, announced",
        ),
    ],
)
def test_what_follows_is_configured(difference: Drift, fields: dict[str, object], expected: frozenset[Action]) -> None:
    assert actions(difference, configured(**fields)) == expected


@pytest.mark.parametrize("kind", DriftKind)
def test_nothing_is_evicted_by_default(kind: DriftKind) -> None:
    assert Action.EVICT not in actions(of(kind), configured())


def test_drift_counts_when_two_comparisons_show_it() -> None:
    once = follow(Followed(), [of(DriftKind.USES_MORE, mib=5)])
    twice = follow(once, [of(DriftKind.USES_MORE, mib=7)])
    assert (once.lasting, once.news) == ((), ())
    assert (twice.lasting, twice.news) == ((of(DriftKind.USES_MORE, mib=7),),) * 2


def test_it_is_news_once_and_again_after_it_was_gone() -> None:
    difference = of(DriftKind.WITHOUT_DEVICES)
    followed, news = Followed(), []
    for found in ([difference],) * 3 + ([],) + ([difference],) * 2:
        followed = follow(followed, found)
        news.append(len(followed.news))
    assert news == [0, 1, 0, 0, 0, 1]


def test_the_drift_of_another_pod_is_another() -> None:
    once = follow(Followed(), [of(DriftKind.USES_MORE)])
    assert follow(once, [of(DriftKind.USES_MORE, NodePod("v", "ns", "p", ()))]).lasting == ()


def test_memory_that_nobody_booked_is_summed_by_card() -> None:
    found = [
        of(DriftKind.OUTSIDE_USE, None, mib=100, uuid="A"),
        of(DriftKind.USES_UNASKED, mib=20, uuid="A"),
        of(DriftKind.OUTSIDE_USE, None, mib=3, uuid="B"),
        of(DriftKind.USES_MORE, mib=4000, uuid="A"),
    ]
    assert unbooked_mib(found) == {"A": 120, "B": 3}
