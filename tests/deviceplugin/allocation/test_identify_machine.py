"""Whatever happens on a node, an answer names the right container, or there is none.

Where the caller is missing from a late view, Allocate may be wrong in three states (see `identify`): there no container
starts with the wrong answer.
"""

from dataclasses import replace
from random import Random
from typing import Final

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from config.protocol import names
from deviceplugin.allocation.container_share import RecordedAnswer, container_environment, replay_objection
from deviceplugin.allocation.decision import decided
from deviceplugin.allocation.identify import (
    NodeState,
    NotIdentified,
    allocating,
    common_shares,
    holders,
    starting,
    unrecorded,
)
from deviceplugin.allocation.pods import NodePod, PodContainer
from tests.support.node.kubelet_model import Kubelet, Rejected
from tests.support.node.node_pods import CARDS, UNIT_MIB, node_pod, on

# Few sizes, so that the count of devices seldom tells pods apart.
SIZES: Final = (0, 1, 1, 1, 2)
# How often each happens, by the name of the method.
HAPPENINGS: Final = {
    "bind": 6,
    "admit": 6,
    "see": 3,
    "see_all": 1,
    "report": 3,
    "delete": 2,
    "end": 1,
    "start": 4,
    "restart_kubelet": 1,
    "register": 2,
}
HAPPENING: Final = st.sampled_from([name for name, often in HAPPENINGS.items() for _ in range(often)])
HISTORIES: Final = st.lists(st.tuples(HAPPENING, st.integers(0, 999)), min_size=20, max_size=100)


class OneNode:
    """api: the pods as the API server has them. cache: as the plugin's watch shows them, each as late as it likes.

    Only deletions it shows at once, no name comes again, and no record is lost before what runs was reported.
    """

    reports_before_losing = True

    def __init__(self) -> None:
        self.kubelet = Kubelet()
        self.api: dict[str, NodePod] = {}
        self.cache: dict[str, NodePod] = {}
        self.answered: set[tuple[str, str]] = set()
        self.passed: set[str] = set()
        self.number = 0

    def name_of(self, number: int) -> str:
        return f"p{number}"

    def bind(self, chance: Random) -> None:
        name = self.name_of(self.number)
        app, init = (chance.choices(SIZES, k=chance.choice(many)) for many in ((1, 1, 2, 3), (0, 0, 1, 2)))
        pod = node_pod(name, app, init=init, sidecars=chance.choice(((), (0,), (1,))), uid=f"u{self.number:03}")
        if not pod.asking() or any(other.name == name for other in self.api.values()):
            return
        self.number += 1
        self.api[pod.uid] = on(pod, chance.choice(CARDS[:3]))
        if chance.random() < 0.7:
            self.cache[pod.uid] = self.api[pod.uid]

    def admit(self, chance: Random) -> None:
        """The kubelet learns of a pod."""
        waiting = self.waiting()
        if not waiting:
            return
        pod, rejected = chance.choice(waiting), chance.choice(("", "", "", "before", "after"))
        if rejected == "before":
            self.kubelet.reject(pod)
            return
        self.kubelet.admit(pod, self.allocate, doubled=chance.random() < 0.2)
        if rejected == "after":
            self.kubelet.reject(pod)

    def see(self, chance: Random) -> None:
        """The watch catches up with one pod."""
        known = sorted({*self.api, *self.cache})
        if known:
            self.catch_up(chance.choice(known))

    def see_all(self, _: Random) -> None:
        for uid in {*self.api, *self.cache}:
            self.catch_up(uid)

    def report(self, _: Random) -> None:
        """The kubelet's word on its pods reaches the API server."""
        for uid in self.kubelet.known.keys() & self.api.keys():
            finished = uid in self.kubelet.finished
            reported = self.api[uid].reported or uid in self.kubelet.admitted
            self.api[uid] = replace(self.api[uid], finished=finished, reported=reported)

    def delete(self, chance: Random) -> None:
        """Gracefully, or forced: then the API server forgets the pod before the kubelet does."""
        if self.api:
            uid = chance.choice(sorted(self.api))
            self.api[uid] = replace(self.api[uid], terminating=True)
            if chance.random() < 0.3:
                del self.api[uid]
            self.deleted(uid)

    def deleted(self, uid: str) -> None:
        if uid in self.cache:
            self.catch_up(uid)

    def end(self, _: Random) -> None:
        """Pods that are being deleted, or are deleted, end."""
        for uid in list(self.kubelet.known):
            if uid not in self.api or self.api[uid].terminating:
                self.kubelet.end(uid)
                self.api.pop(uid, None)

    def restart_kubelet(self, chance: Random) -> None:
        record_lost = chance.random() < 0.4
        if record_lost and self.reports_before_losing:
            self.report(chance)
        self.kubelet.restart(record_lost=record_lost)

    def register(self, chance: Random) -> None:
        """The plugin lists its node's pods, takes note of those that the kubelet has already, and registers."""
        if not self.kubelet.registered:
            self.see_all(chance)
            self.answered.clear()
            self.passed = {uid for uid, pod in self.cache.items() if self.kubelet.get(pod.name) is not None}
            self.kubelet.register()

    def start(self, chance: Random) -> None:
        """Each container of a pod starts, as far as the plugin lets it."""
        admitted = sorted(self.kubelet.admitted & self.kubelet.active())
        if not admitted:
            return
        uid = chance.choice(admitted)
        pod = self.kubelet.known[uid]
        for container in pod.asking():
            ids = self.kubelet.assigned.get((uid, container.name))
            if ids is None or not self.started(pod, container, ids):
                return
        self.kubelet.running.add(uid)

    def started(self, pod: NodePod, container: PodContainer, ids: frozenset[str]) -> bool:
        view = self.view({entry.pod_uid for entry in holders(ids, self.view(set()))})
        try:
            found = starting(ids, view)
        except NotIdentified:
            return False
        assert found.pod.uid == pod.uid
        assert container.name in {one.name for one in found.containers}
        shares = common_shares(found, decided(found.pod, CARDS, UNIT_MIB))
        assert shares == decided(pod, CARDS, UNIT_MIB).shares[container.name]
        recorded = msgspec.json.decode(self.kubelet.answers[pod.uid, container.name], type=dict[str, str])
        right = container_environment(shares, by_cdi=False)
        if replay_objection(RecordedAnswer(recorded), shares):
            assert recorded != right
            return False
        assert recorded == right
        return True

    def allocate(self, pod: NodePod, container: PodContainer, units: int) -> bytes:
        waiting = unrecorded(self.view(set()), self.answered)
        view = self.view({found.pod.uid for found in waiting})
        try:
            found = allocating(units, view, answered=self.answered, passed=self.passed)
        except NotIdentified as refused:
            raise Rejected from refused
        self.judge(found.pod, found.containers[0], pod, container)
        self.answered.add((found.pod.uid, found.containers[0].name))
        shares = common_shares(found, decided(found.pod, CARDS, UNIT_MIB))
        return msgspec.json.encode(container_environment(shares, by_cdi=False))

    def judge(self, pod: NodePod, container: PodContainer, right_pod: NodePod, right: PodContainer) -> None:
        assert (pod.uid, container) == (right_pod.uid, right)

    def view(self, uids: set[str]) -> NodeState:
        shown = {uid: self.kubelet.get(self.cache[uid].name) for uid in uids if uid in self.cache}
        return NodeState(names.GPU_MEM, tuple(self.cache.values()), self.kubelet.checkpoint, shown)

    def waiting(self) -> list[NodePod]:
        """What the kubelet has not learnt of yet, oldest first; the API server tells it nothing of finished pods."""
        return [pod for uid, pod in sorted(self.api.items()) if uid not in self.kubelet.known and not pod.finished]

    def catch_up(self, uid: str) -> None:
        if uid in self.api:
            self.cache[uid] = self.api[uid]
        else:
            self.cache.pop(uid, None)


class LateNode(OneNode):
    """The watch is late for deletions too, names come again, and records are lost at any time."""

    reports_before_losing = False

    def name_of(self, number: int) -> str:
        return f"web-{number % 2}"

    def deleted(self, uid: str) -> None:
        pass

    def judge(self, pod: NodePod, container: PodContainer, right_pod: NodePod, right: PodContainer) -> None:
        """What is answered may be another pod's: `started` shows that no container starts with it."""
        assert container.units == right.units, f"{pod} for {right_pod}"


def happen(node: OneNode, history: list[tuple[str, int]], *, registered: bool) -> None:
    node.kubelet.registered = node.kubelet.knows_resource = registered
    for happening, seed in history:
        getattr(node, happening)(Random(seed))  # noqa: S311  (nothing secret)


@settings(max_examples=300, deadline=None)
@given(history=HISTORIES, registered=st.booleans())
def test_an_answer_is_right_in_any_history(history: list[tuple[str, int]], *, registered: bool) -> None:
    happen(OneNode(), history, registered=registered)


@settings(max_examples=300, deadline=None)
@given(history=HISTORIES, registered=st.booleans())
def test_no_container_starts_with_another_ones_cards_however_late_the_watch(
    history: list[tuple[str, int]], *, registered: bool
) -> None:
    happen(LateNode(), history, registered=registered)
