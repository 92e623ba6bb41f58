"""Which container the kubelet means: named where it can be told, refused with the candidates where it cannot."""

import re
from collections.abc import Collection
from dataclasses import replace

import pytest

from config.protocol import names
from deviceplugin.allocation.decision import decided
from deviceplugin.allocation.identify import (
    KubeletPod,
    NodeState,
    NotIdentified,
    PodContainers,
    allocating,
    common_shares,
    holders,
    starting,
    unrecorded,
)
from deviceplugin.allocation.pods import FirstCards, NodePod
from deviceplugin.kubelet.checkpoint import CheckpointEntry
from tests.support.node.node_pods import CARDS, UNIT_MIB, entry, node_pod, on

P, Q = node_pod("p", [3]), node_pod("q", [3])
NO_DEVICES = KubeletPod({"c0": frozenset()})


def view(
    *pods: NodePod,
    entries: Collection[CheckpointEntry] = (),
    shown: dict[str, KubeletPod | None] | None = None,
    active: str = "",
) -> NodeState:
    """active: the names of pods that the kubelet knows, with containers that have no devices yet."""
    known = {f"uid-{name}": NO_DEVICES for name in active.split()}
    return NodeState(names.GPU_MEM, pods, tuple(entries), {**{p.uid: None for p in pods}, **known, **(shown or {})})


def shown(pod: NodePod, *entries: CheckpointEntry, **containers: str) -> NodeState:
    """The kubelet lists these ids of the pod's containers, each a letter."""
    listed = KubeletPod({name: frozenset(ids) for name, ids in containers.items()})
    return view(pod, entries=entries, shown={pod.uid: listed})


def test_of_pods_bound_back_to_back_it_is_the_one_that_the_kubelet_knows() -> None:
    rejected, later = node_pod("a", [3]), node_pod("z", [3])
    assert allocating(3, view(rejected, P, later, active="p")).pod == P


def test_init_containers_come_first_and_each_container_in_its_turn() -> None:
    pod = node_pod("p", [2, 0, 2], init=[2, 2], sidecars={1})
    entries: list[CheckpointEntry] = []
    order = []
    for number in range(4):
        have = {e.container: e.ids for e in entries if e.container != "i0"}
        shown = KubeletPod({name: have.get(name, frozenset()) for name in ("i1", "c0", "c1", "c2")})
        (called,) = allocating(2, view(pod, entries=entries, shown={pod.uid: shown})).containers
        order.append(called.name)
        entries.append(entry(pod, called.name, f"d{number}", f"e{number}"))
    assert order == ["i0", "i1", "c0", "c2"]


def test_an_answer_that_the_kubelet_has_not_recorded_yet_is_not_given_twice() -> None:
    pod = node_pod("p", [3, 3])
    called = allocating(3, view(pod, active="p"), answered={(pod.uid, "c0")})
    assert called.containers == (pod.containers[1],)


def test_records_of_other_resources_say_nothing() -> None:
    assert allocating(3, view(P, entries=[entry(P, "c0", "x", resource="nvidia.com/gpu")], active="p")).pod == P


NOT_ASKED = NodeState(names.GPU_MEM, (P,), ())


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        pytest.param(view(), "no pod on this node is waiting for devices", id="nobody"),
        pytest.param(view(replace(P, finished=True), active="p"), "no pod on this node is waiting", id="finished"),
        pytest.param(view(node_pod("n", [0]), active="n"), "no pod on this node is waiting", id="asks nothing"),
        pytest.param(view(P), "UID uid-p: .* has not admitted it, or has rejected it", id="unknown to the kubelet"),
        pytest.param(view(node_pod("p", [4]), active="p"), "next container requests 4", id="another count"),
        pytest.param(view(P, Q, active="p q"), "uid-p: .* matches too; UID uid-q: .* matches too", id="two"),
        pytest.param(NOT_ASKED, "unknown whether the kubelet has admitted it .*1.34", id="no Get"),
        pytest.param(view(replace(P, reported=True), active="p"), "admitted it earlier", id="record lost"),
        pytest.param(view(replace(P, terminating=True), active="p"), "is being deleted", id="terminating"),
        pytest.param(shown(P, c0="abc"), "lists 3 devices .* set of 0", id="namesake"),
        pytest.param(shown(P, main=""), "also has container main", id="other namesake"),
    ],
)
def test_an_ambiguous_allocate_is_refused_with_every_candidate(seen: NodeState, message: str) -> None:
    with pytest.raises(NotIdentified) as refused:
        allocating(3, seen)
    assert re.search(message, str(refused.value))
    assert "ns/" not in str(refused.value), "its readers may not know the other pods"
    assert str(refused.value).startswith("cannot tell which container allocates 3 devices of aliyun.com/gpu-mem; ")


@pytest.mark.parametrize(
    "stuck",
    [
        pytest.param(replace(node_pod("s", [2]), reported=True), id="record lost"),
        pytest.param(replace(node_pod("s", [2]), terminating=True), id="terminating"),
        pytest.param(node_pod("s", [2]), id="admitted unregistered"),
    ],
)
def test_a_pod_that_waits_forever_blocks_only_pods_of_its_own_count(stuck: NodePod) -> None:
    assert allocating(3, view(stuck, P, active="s p"), passed={"uid-s"}).pod == P
    with pytest.raises(NotIdentified, match=r"UID uid-s: .*matches too"):
        allocating(2, view(stuck, node_pod("p", [2]), active="s p"), passed={"uid-s"})


def test_only_pods_that_wait_need_to_be_asked_for() -> None:
    seen = view(P, Q, node_pod("n", [0]), entries=[entry(P, "c0", "a", "b", "c")])
    assert [found.pod for found in unrecorded(seen)] == [Q]


HELD = frozenset("abc")
HAS = KubeletPod({"c0": HELD})


def test_the_container_that_the_kubelet_recorded_starts() -> None:
    entries = [entry(Q, "c0", "x", "y", "z"), entry(P, "c0", "a", "b", "c")]
    assert starting(HELD, view(P, Q, entries=entries, shown={P.uid: HAS})) == PodContainers(P, (P.containers[0],))


def test_an_init_container_is_found_though_pod_resources_does_not_show_it() -> None:
    pod = node_pod("p", [1], init=[3])
    entries = [entry(pod, "i0", "a", "b", "c"), entry(pod, "c0", "a")]
    found = starting(HELD, view(pod, entries=entries, shown={pod.uid: KubeletPod({"c0": frozenset("a")})}))
    assert found.containers == (pod.containers[0],)


def test_init_and_app_container_with_the_same_devices_get_the_same_cards() -> None:
    pod = on(node_pod("p", [3], init=[3]), CARDS[1])
    entries = [entry(pod, "i0", "a", "b", "c"), entry(pod, "c0", "a", "b", "c")]
    found = starting(HELD, view(pod, entries=entries, shown={pod.uid: HAS}))
    assert found.containers == pod.containers
    assert [share.uuid for share in common_shares(found, decided(pod, CARDS, UNIT_MIB))] == ["GPU-b"]


def test_init_and_app_container_with_the_same_devices_on_two_cards_is_refused() -> None:
    pod = node_pod("p", [3], init=[3])
    first = FirstCards(UNIT_MIB, {"i0": {"GPU-b": 3}, "c0": {"GPU-a": 3}})
    with pytest.raises(NotIdentified, match=r"i0 on GPU-b, c0 on GPU-a"):
        common_shares(PodContainers(pod, pod.containers), decided(replace(pod, first_cards=first), CARDS, UNIT_MIB))


def test_the_record_of_a_dead_pod_with_the_same_devices_is_left_out() -> None:
    dead = replace(Q, finished=True)
    entries = [entry(dead, "c0", "a", "b", "c"), entry(P, "c0", "a", "b", "c")]
    assert starting(HELD, view(dead, P, entries=entries, shown={P.uid: HAS})).pod == P


def held_by(*pods: NodePod) -> list[CheckpointEntry]:
    return [entry(pod, "c0", "a", "b", "c") for pod in pods]


BOTH_HOLD = view(P, Q, entries=held_by(P, Q), shown={P.uid: HAS, Q.uid: HAS})
NOT_CONFIRMED = NodeState(names.GPU_MEM, (P,), tuple(held_by(P)))
STATIC = replace(P, uid="f" * 32)


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        pytest.param(view(P), "no live container with exactly these devices", id="nobody holds them"),
        pytest.param(view(P, entries=[entry(P, "c0", "a", "b")]), "no live container", id="fewer are recorded"),
        pytest.param(BOTH_HOLD, "uid-p: holds the same devices; UID uid-q: holds the same devices", id="two pods"),
        pytest.param(
            shown(P, *held_by(P, Q), c0="abc"), "UID uid-q: .*has not seen the pod yet", id="one is not known yet"
        ),
        pytest.param(view(entries=held_by(P)), "UID uid-p: .*has not seen the pod yet", id="not known yet"),
        pytest.param(
            view(P, entries=held_by(STATIC)),
            f"UID {STATIC.uid}: a static pod; no scheduler has chosen cards for it",
            id="a static pod",
        ),
        pytest.param(view(replace(P, finished=True), entries=held_by(P)), "no live container", id="finished"),
        pytest.param(view(P, entries=held_by(P)), "PodResources.Get did not find it", id="inactive"),
        pytest.param(NOT_CONFIRMED, "PodResources.Get has not confirmed it", id="not asked"),
        pytest.param(shown(P, *held_by(P), c0="xyz"), "a different set of 3", id="namesake"),
        pytest.param(shown(node_pod("p", [4]), *held_by(P), c0="abc"), "c0 requests 4", id="other limit"),
        pytest.param(shown(P, entry(P, "gone", *"abc"), c0="abc"), "gone requests 0", id="no such container"),
    ],
)
def test_an_ambiguous_start_is_refused(seen: NodeState, message: str) -> None:
    with pytest.raises(NotIdentified) as refused:
        starting(HELD, seen)
    assert re.search(message, str(refused.value))
    assert "ns/" not in str(refused.value), "its readers may not know the other pods"


def test_the_pods_to_ask_for_are_those_that_hold_exactly_the_devices() -> None:
    entries = [*held_by(P), entry(Q, "c0", "a", "b"), entry(Q, "c0", "a", "b", "c", resource="other")]
    assert holders(["c", "b", "a"], view(P, Q, entries=entries)) == held_by(P)
