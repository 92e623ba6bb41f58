"""Announced, decided, allocated and used, held side by side: what is found, how long it lasts, what follows from it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from config.protocol.container_formula import ContainerKind
from config.protocol.inventory import Card
from deviceplugin.allocation.decision import CardDecision, Share, units_on_cards
from deviceplugin.allocation.pods import NodePod, PodContainer
from deviceplugin.kubelet.checkpoint import KubeletContainer
from deviceplugin.reconcile.drift import (
    Action,
    Compared,
    Drift,
    DriftKind,
    DriftPolicy,
    Followed,
    SeenPod,
    Use,
    actions,
    find_drift,
    follow,
)
from tests.support.node.drift_policy import drift_policy

CARDS = (
    Card(index=0, uuid="A", model="M", memory_mib=16384, units=16),
    Card(index=1, uuid="B", model="M", memory_mib=16384, units=16),
)


def container(units: int, name: str = "c", kind: ContainerKind = ContainerKind.APP) -> PodContainer:
    return PodContainer(name, kind, 0, units)


def pod(*containers: PodContainer, name: str = "p", **fields: bool) -> NodePod:
    made = NodePod(
        uid=f"uid-{name}", namespace="ns", name=name, containers=containers or (container(4),), reported=True
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def on(of: NodePod, *uuids: str) -> SeenPod:
    """The pod, its containers' units spread over these cards."""
    shares = {
        c.name: tuple(Share(uuid, "AB".index(uuid), c.units // len(uuids), 16) for uuid in uuids) for c in of.asking()
    }
    return SeenPod(of, CardDecision(shares, 1024))


def held(units: int, pod_name: str = "p", container_name: str = "c") -> KubeletContainer:
    return KubeletContainer("ns", pod_name, container_name, frozenset(map(str, range(units))))


def found(
    *pods: SeenPod,
    allocated: Sequence[KubeletContainer] = (),
    assigned: Mapping[tuple[str, str], frozenset[str]] = {},
    uses: Sequence[Use] = (),
) -> list[tuple[DriftKind, str]]:
    """What each difference is, and of which container or card."""
    compared = Compared(cards=CARDS, unit_mib=1024, pods=pods, allocated=allocated, assigned=assigned, uses=uses)
    return [(one.kind, one.container or one.uuid) for one in find_drift(compared, allowance_mib=512)]


def message(*pods: SeenPod, allocated: Sequence[KubeletContainer] = (), uses: Sequence[Use] = ()) -> list[str]:
    compared = Compared(cards=CARDS, unit_mib=1024, pods=pods, allocated=allocated, uses=uses)
    return [one.message for one in find_drift(compared, allowance_mib=512)]


def test_a_node_that_is_as_decided_has_no_drift() -> None:
    uses = [Use("A", 1, 3000, "uid-p"), Use("A", 2, 1000, "uid-p")]
    assigned = {("uid-p", "c"): frozenset("A")}
    assert found(on(pod(), "A"), allocated=[held(4)], assigned=assigned, uses=uses) == []


def test_a_container_with_another_card_than_decided_is_found() -> None:
    seen = on(pod(), "A")
    assert found(seen, assigned={("uid-p", "c"): frozenset("B")}) == [(DriftKind.ON_ANOTHER_CARD, "c")]
    assert found(seen, assigned={("uid-p", "c"): frozenset("AB")}) == [(DriftKind.ON_ANOTHER_CARD, "c")]


def test_a_pod_that_uses_another_card_is_found_whatever_it_was_given() -> None:
    uses = [Use("A", 1, 100, "uid-p"), Use("B", 1, 1, "uid-p")]
    assert found(on(pod(), "A"), uses=uses) == [(DriftKind.ON_ANOTHER_CARD, "B")]


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        pytest.param(4096, [], id="what it asked"),
        pytest.param(4608, [], id="with the allowance"),
        pytest.param(4609, [(DriftKind.USES_MORE, "A")], id="more"),
    ],
)
def test_use_counts_by_pod_against_its_ask_and_the_allowance(used: int, expected: list[tuple[DriftKind, str]]) -> None:
    two = pod(container(1, "a"), container(3, "b"))
    uses = [Use("A", 1, used - 2000, "uid-p"), Use("A", 2, 2000, "uid-p")]
    assert found(on(two, "A"), uses=uses) == expected


def test_each_card_of_a_pod_is_judged_by_its_own_share() -> None:
    uses = [Use("A", 1, 2000, "uid-p"), Use("B", 1, 3000, "uid-p")]
    assert found(on(pod(), "A", "B"), uses=uses) == [(DriftKind.USES_MORE, "B")]


def test_an_exclusive_pod_may_use_all_of_its_card() -> None:
    assert found(on(pod(exclusive=True), "A"), uses=[Use("A", 1, 16000, "uid-p")]) == []


def test_processes_outside_kubernetes_are_found_by_card() -> None:
    uses = [Use("B", 7, 300, ""), Use("B", 9, 200, ""), Use("A", 1, 100, "uid-p")]
    assert found(on(pod(), "A"), uses=uses) == [(DriftKind.OUTSIDE_USE, "B")]
    assert message(on(pod(), "A"), uses=uses) == ["card B: processes outside Kubernetes use 500 MiB (PID 7, 9)"]


def test_pods_that_asked_for_nothing_are_found() -> None:
    nothing = SeenPod(pod(container(0), name="q"), None)
    uses = [Use("A", 1, 300, "uid-q"), Use("A", 2, 50, "uid-of-a-pod-that-is-gone")]
    assert message(nothing, uses=uses) == [
        "pod ns/q (UID uid-q): it uses 300 MiB of A but requests none",
        "card A: pods unknown to the API server use 50 MiB (UID uid-of-a-pod-that-is-gone)",
    ]


def test_a_pod_that_was_admitted_before_the_resource_was_registered_is_found() -> None:
    assert found(on(pod(), "A"), allocated=[held(0)]) == [(DriftKind.WITHOUT_DEVICES, "c")]


@pytest.mark.parametrize(
    ("changed", "allocated"),
    [
        pytest.param({"reported": False}, [held(0)], id="not admitted yet"),
        pytest.param({"terminating": True}, [held(0)], id="is going"),
        pytest.param({}, [], id="the kubelet did not list it"),
    ],
)
def test_a_pod_without_devices_is_left_alone_while_that_may_be_right(
    changed: dict[str, bool], allocated: list[KubeletContainer]
) -> None:
    assert found(on(replace(pod(), **changed), "A"), allocated=allocated) == []  # type: ignore[arg-type]


def test_init_containers_that_the_kubelet_does_not_list_are_no_drift() -> None:
    of = pod(container(8, "i", ContainerKind.INIT), container(4))
    assert found(on(of, "A"), allocated=[held(4)]) == []


def test_a_container_with_devices_and_no_decision_is_found_with_the_reason() -> None:
    seen = SeenPod(pod(), None, "pod ns/p has no allocation")
    assert found(seen, allocated=[held(4)]) == [(DriftKind.WITHOUT_DECISION, "c")]
    assert message(seen, allocated=[held(4)])[0].endswith("but no card: pod ns/p has no allocation")


def test_devices_of_a_pod_that_the_api_server_lacks_are_found() -> None:
    assert found(allocated=[held(4, "gone"), held(0, "other")]) == [(DriftKind.WITHOUT_DECISION, "ns/gone/c")]


def test_other_units_than_the_limit_are_found() -> None:
    assert found(on(pod(), "A"), allocated=[held(3)]) == [(DriftKind.OTHER_UNITS, "c")]


def test_a_card_with_more_decided_than_announced_is_found() -> None:
    pods = [on(pod(container(9), name=name), "A") for name in ("p", "q")]
    assert found(*pods) == [(DriftKind.OVERBOOKED, "A")]
    assert message(*pods) == ["card A has 16 units; 18 are allocated to pods"]


def test_a_pod_has_booked_what_its_containers_need_at_the_same_time() -> None:
    sidecar, init = container(2, "s", ContainerKind.SIDECAR), container(4, "i", ContainerKind.INIT)
    seen = on(pod(sidecar, init, container(3)), "A")
    assert seen.decision is not None
    assert units_on_cards(seen.pod, seen.decision, 1024) == {"A": 6}


TOLD = frozenset({Action.METRIC, Action.EVENT})
POD = NodePod(uid="u", namespace="ns", name="p", containers=())
# It would come again.
STATIC = NodePod(uid="u", namespace="ns", name="p", containers=(), static=True)
LEAVING = NodePod(uid="u", namespace="ns", name="p", containers=(), terminating=True)


def of(kind: DriftKind, pod: NodePod | None = POD, *, mib: int = 0, uuid: str = "") -> Drift:
    return Drift(kind=kind, message="message", pod=pod, mib=mib, uuid=uuid)


EVICTED = TOLD | {Action.EVICT}
UNREGISTERED = drift_policy(evict_unregistered=True)
OUTSIDE = of(DriftKind.OUTSIDE_USE, None)
LESS = TOLD | {Action.ANNOUNCE_LESS}


@pytest.mark.parametrize(
    ("drift", "policy", "expected"),
    [
        pytest.param(of(DriftKind.USES_MORE), drift_policy("off"), frozenset(), id="nobody monitors"),
        pytest.param(of(DriftKind.USES_MORE), drift_policy(), TOLD, id="a warning"),
        pytest.param(of(DriftKind.USES_MORE), drift_policy("evict"), EVICTED, id="uses too much"),
        pytest.param(of(DriftKind.USES_MORE, LEAVING), drift_policy("evict"), TOLD, id="is going already"),
        pytest.param(of(DriftKind.WITHOUT_DEVICES), drift_policy(), TOLD, id="waits"),
        pytest.param(of(DriftKind.UNSCHEDULED, STATIC), drift_policy(evict_unscheduled=True), TOLD, id="a static pod"),
        pytest.param(of(DriftKind.WITHOUT_DEVICES), UNREGISTERED, EVICTED, id="waits forever"),
        pytest.param(of(DriftKind.ON_ANOTHER_CARD), drift_policy(evict_mismatched=True), EVICTED, id="another card"),
        pytest.param(of(DriftKind.ON_ANOTHER_CARD), replace(UNREGISTERED, monitor="evict"), TOLD, id="each its own"),
        pytest.param(OUTSIDE, drift_policy(), TOLD, id="outside"),
        pytest.param(OUTSIDE, drift_policy(announce_outside_use=True), LESS, id="outside, announced"),
    ],
)
def test_what_follows_is_configured(drift: Drift, policy: DriftPolicy, expected: frozenset[Action]) -> None:
    assert actions(drift, policy) == expected


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
