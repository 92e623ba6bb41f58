"""How long drift lasts, and what follows from it."""

import pytest

from deviceplugin.allocation.pods import NodePod
from deviceplugin.reconcile.drift import Action, Drift, DriftKind, DriftPolicy, Followed, actions, follow
from tests.support.node.drift_policy import drift_policy

TOLD = frozenset({Action.METRIC, Action.EVENT})
POD = NodePod(uid="u", namespace="ns", name="p", containers=())
STATIC = NodePod(uid="u", namespace="ns", name="p", containers=(), static=True)
LEAVING = NodePod(uid="u", namespace="ns", name="p", containers=(), terminating=True)


def of(kind: DriftKind, pod: NodePod | None = POD, *, mib: int = 0, uuid: str = "") -> Drift:
    return Drift(kind=kind, message="message", pod=pod, mib=mib, uuid=uuid)


@pytest.mark.parametrize(
    ("drift", "policy", "expected"),
    [
        pytest.param(of(DriftKind.USES_MORE), drift_policy(monitor="off"), frozenset(), id="nobody monitors"),
        pytest.param(of(DriftKind.USES_MORE), drift_policy(), TOLD, id="a warning"),
        pytest.param(of(DriftKind.USES_MORE), drift_policy(monitor="evict"), TOLD | {Action.EVICT}, id="uses too much"),
        pytest.param(of(DriftKind.USES_MORE, LEAVING), drift_policy(monitor="evict"), TOLD, id="is going already"),
        pytest.param(of(DriftKind.WITHOUT_DEVICES), drift_policy(), TOLD, id="waits"),
        pytest.param(
            of(DriftKind.UNSCHEDULED, STATIC),
            drift_policy(evict_unscheduled=True),
            TOLD,
            id="a static pod, which would come again",
        ),
        pytest.param(
            of(DriftKind.WITHOUT_DEVICES),
            drift_policy(evict_unregistered=True),
            TOLD | {Action.EVICT},
            id="waits forever",
        ),
        pytest.param(
            of(DriftKind.ON_ANOTHER_CARD), drift_policy(evict_mismatched=True), TOLD | {Action.EVICT}, id="another card"
        ),
        pytest.param(
            of(DriftKind.ON_ANOTHER_CARD),
            drift_policy(evict_unregistered=True, monitor="evict"),
            TOLD,
            id="each its own",
        ),
        pytest.param(of(DriftKind.OUTSIDE_USE, None), drift_policy(), TOLD, id="outside"),
        pytest.param(
            of(DriftKind.OUTSIDE_USE, None),
            drift_policy(announce_outside_use=True),
            TOLD | {Action.ANNOUNCE_LESS},
            id="outside, announced",
        ),
    ],
)
def test_what_follows_is_configured(drift: Drift, policy: DriftPolicy, expected: frozenset[Action]) -> None:
    assert actions(drift, policy) == expected


@pytest.mark.parametrize("kind", DriftKind)
def test_nothing_is_evicted_by_default(kind: DriftKind) -> None:
    assert Action.EVICT not in actions(of(kind), drift_policy())


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
    assert (
        follow(once, [of(DriftKind.USES_MORE, NodePod(uid="v", namespace="ns", name="p", containers=()))]).lasting == ()
    )
