"""The whole scheduler without the world: queue, tables and one cycle per profile. Pure; time is an argument.

    decide ── pops the best pod ─▶ Placement (assumed; the shell binds it, then tells bound / refused)
                                └▶ NoFit     (waits until something opens that helps its class)
    check  ── asks one class of waiting pods whether what has opened helps it: its best pod is then the next to decide

The app and the simulator drive the same engine.
"""

from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from scheduler.framework.runtime import Signature
from scheduler.kube import objects
from scheduler.pods.pod import Pod
from scheduler.queue.entry import QueuedPod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.scheduling_cycle import Judgement, NoFit, Outcome, Placement, SchedulingCycle
from scheduler.state.amounts import RowsLeft
from scheduler.state.audit import NodeAudit, audit_node
from scheduler.state.columns.selectors import Expressions
from scheduler.state.tables import Tables
from scheduler.state.volumes.volumes import Volumes


class Decision(msgspec.Struct, frozen=True):
    """What became of one attempt. queued: the pod with its attempts and times."""

    queued: QueuedPod
    outcome: Outcome


class Engine:
    """The one door to tables and queue: whoever changes them calls a method here; others only read them.

    Owned by the event loop; no method awaits.
    """

    def __init__(self, tables: Tables, queue: SchedulingQueue, cycles: Mapping[str, SchedulingCycle]) -> None:
        """cycles: by scheduler name."""
        self.tables = tables
        self.queue = queue
        self._cycles = cycles
        self.scheduler_names = frozenset(cycles)
        self._left = RowsLeft(tables)
        # The pod that a check has woken last, and the version of the tables that it saw.
        self._shown = ("", -1)

    # What the watches show

    def pod_waiting(self, pod: Pod, now_s: float) -> None:
        """A pod of ours without a node was seen. One that we have placed already is told apart by the tables."""
        if self.tables.record(pod.key.uid) is None or pod.key.uid in self.queue:
            self.queue.add_or_update(pod, now_s, self._key)

    def pod_assigned(self, pod: Pod) -> str:
        """A pod with a node was seen: nobody needs to place it. Returns what is wrong with its allocation, or ""."""
        if not self.tables.is_assumed(pod.key.uid):
            self.queue.delete(pod.key.uid)
        return self.tables.add(pod)

    def pod_terminating(self, uid: str) -> None:
        """A pod without a node is being deleted: nobody needs to place it any more."""
        self.queue.delete(uid)

    def pod_gone(self, uid: str) -> None:
        """The pod is gone or finished: it holds nothing."""
        self.tables.remove(uid)
        self.queue.delete(uid)

    def node_changed(self, node: objects.Node) -> str:
        """A node was seen. Returns what is wrong with its inventory, or "". QuantityError: as Tables.upsert_node."""
        return self.tables.upsert_node(node)

    def node_gone(self, name: str) -> None:
        """The node is gone, or cannot be read: nothing new is placed there."""
        self.tables.remove_node(name)

    def namespace_changed(self, name: str, labels: dict[str, str] | None) -> None:
        """Labels of a namespace; None when it is gone."""
        self.tables.set_namespace(name, labels)

    def selector_changed(self, namespace: str, uid: str, selector: Expressions, *, of_service: bool) -> None:
        """Of a Service or a controller; () when it selects nothing, or is gone."""
        self.tables.set_selector(namespace, uid, selector, of_service=of_service)

    def change_volumes(self, change: Callable[[Volumes], None]) -> None:
        """Claims, volumes, storage classes, or what nodes attach."""
        self.tables.change_volumes(change)

    def cards_marked_unhealthy(self, node: str, indexes: frozenset[int]) -> None:
        """The cards of `node`, by index, that the legacy ConfigMap takes out of use."""
        self.tables.mark_unhealthy(node, indexes)

    def audit_node(self, name: str) -> NodeAudit | None:
        """Count a node again from its objects, and repair the tables where they differ; None when it is not there."""
        return audit_node(self.tables, name)

    # Attempts

    def decide(self, now_s: float, now_ns: int) -> Decision | None:
        """One attempt for the next pod; None when no pod is ready. now_ns: Unix nanoseconds, for the annotations."""
        while self.check(now_s):
            pass
        queued = self.queue.pop(now_s)
        if queued is None:
            return None
        pod = queued.pod
        cycle = self._cycles[pod.scheduler_name]
        outcome = cycle.schedule(pod, now_ns)
        if isinstance(outcome, NoFit):
            # A pod that is shown its place again and again by a rule that then refuses it would be tried forever.
            shown = self._shown == (pod.key.uid, self.tables.changes.version)
            # What the attempt itself gave back (Permit said no) is no news for the pod that gave it back.
            self._note_openings()
            signature = cycle.signature(pod)
            self.queue.unschedulable(
                pod.key.uid,
                (pod.scheduler_name, signature),
                now_s,
                wakes_on=outcome.wakes_on,
                needs=cycle.needs(pod, signature),
                in_vain=outcome.by_permit or shown,
            )
        return Decision(queued, outcome)

    def check(self, now_s: float) -> bool:
        """Ask one class of waiting pods that sorts before the next pod to decide; False when there is none to ask."""
        self._note_openings()
        check = self.queue.next_check(self._left)
        if check is None:
            return False
        pod, cycle = check.pod, self._cycles[check.pod.scheduler_name]
        key = self._key(pod)
        if key != check.signature:
            if pod.volumes.claims and cycle.fits_nowhere(pod, key[1]):
                # Its claims stand otherwise than its owner was told, and still no node can help.
                self.queue.fits(check, now_s)
            else:
                self.queue.reclassify(check, key, cycle.needs(pod, key[1]))
            return True
        fits, wakes_on = cycle.fits_on(pod, None if check.rows is None else np.array(sorted(check.rows), dtype=np.intp))
        if fits:
            self._shown = (pod.key.uid, self.tables.changes.version)
            self.queue.fits(check, now_s)
        else:
            self.queue.fits_not(check, wakes_on=wakes_on)
        return True

    # Questions, of tables that nobody schedules by

    def judge(self, pod: Pod) -> Judgement:
        """What every rule says of every node about the pod; changes nothing."""
        return self._cycles[pod.scheduler_name].judge(pod)

    def fits(self, pod: Pod, node: str) -> bool:
        """Whether the node takes the pod as the tables are."""
        return self._cycles[pod.scheduler_name].fits_on(pod, np.array([self.tables.row_of[node]], dtype=np.intp))[0]

    def attempt(self, pod: Pod, now_ns: int) -> Outcome:
        """Place a pod that is in no queue, or say why not."""
        return self._cycles[pod.scheduler_name].schedule(pod, now_ns)

    def hold_back(self, holds: Callable[[str], bool], now_s: float) -> bool:
        """Let others pass the next pod to decide, if its namespace is one that `holds`; whether that was so."""
        return self.queue.hold_back(holds, now_s)

    def serve(self, serves: Callable[[str], object]) -> bool:
        """A pod that was held back is ready again, of a namespace that `serves`; whether there is one."""
        return self.queue.serve(serves)

    def bound(self, placement: Placement) -> None:
        """The API server has bound the pod."""
        self.tables.confirm(placement.pod.key.uid)
        self.queue.done(placement.pod.key.uid)

    def refused(self, placement: Placement, now_s: float, *, longest_backoff_s: float = 0.0) -> None:
        """The pod did not get its place. longest_backoff_s: as `SchedulingQueue.failed`.

        Whether it still exists is the watch's to say: until then it stays in the queue.
        """
        pod = placement.pod
        self._cycles[pod.scheduler_name].unreserve(pod)
        if self.tables.record(pod.key.uid) is not None:
            # Somebody else bound it meanwhile.
            self.queue.done(pod.key.uid)
        else:
            self.queue.failed(pod.key.uid, now_s, longest_s=longest_backoff_s)

    def _key(self, pod: Pod) -> tuple[str, Signature]:
        return (pod.scheduler_name, self._cycles[pod.scheduler_name].signature(pod))

    def _note_openings(self) -> None:
        """Tell the queue where something may have become possible."""
        if self.tables.openings:
            self.queue.opened(self.tables.take_openings())
