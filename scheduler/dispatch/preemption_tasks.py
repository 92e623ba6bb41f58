"""One task per preemption: writes the nomination into the pod's status and deletes the victims.

    PostFiltered ──▶ nominatedNodeName of displaced pods, and of the pod
          └──▶ for each victim: DELETE with its UID ── accepted ──▶ Event Preempted, condition DisruptionTarget
                                └─ its Binding is not sent yet: it is cancelled, and the victim waits again

Other pods are scheduled in the meantime, because the nomination is booked in the tables. If a DELETE fails, the task
ends: the nomination is dropped, and victims are deleted for the pod again after a back-off. The task also ends if the
pod is gone or nominated elsewhere; the remaining victims stay. Only the watch proves that a victim is gone; a 404 or
409 does not, while the watch still shows it. A victim whose DELETE failed before is deleted first, and nothing else is
written until that is accepted. So a deletion that keeps failing costs one request per back-off. Source: kube-scheduler,
framework/preemption/executor.go, which writes the condition first. Reason for the difference:
docs/develop/decisions/0035-choose-victims-per-card.md.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final
from weakref import WeakValueDictionary

import structlog

from scheduler.core.engine import Engine
from scheduler.core.preemption_searches import PostFiltered
from scheduler.dispatch.in_flight_limit import InFlightLimit, Stopped
from scheduler.dispatch.recorder import Recorder
from scheduler.framework.preemption import Preemption
from scheduler.kube.objects import PodCondition
from scheduler.kube.port import (
    ApiConflict,
    ApiError,
    ApiFailed,
    ApiNotFound,
    ApiRejected,
    ApiThrottled,
    Cluster,
    NotSent,
)
from scheduler.pods.pod import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER, Pod

_TRIES: Final = 4
# Maximum per log line.
_MOST_NAMED: Final = 8

log = structlog.get_logger()


class PreemptionTasks:
    """Tasks of preemptions. limit: in-flight limit of their requests. cancel: see `BindingTasks.cancel`.

    now_s: monotonic seconds. backoff_s: wait before each retry of a request. wake: called after each failure.
    """

    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        recorder: Recorder,
        limit: InFlightLimit,
        *,
        cancel: Callable[[str, str], bool],
        now_s: Callable[[], float],
        backoff_s: Callable[[int], float],
        wake: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._cluster = cluster
        self._recorder = recorder
        self._now_s = now_s
        self._backoff_s = backoff_s
        self._wake = wake
        self._limit = limit
        self._cancel = cancel
        # By UID of the pod: the status must end with the later of two nominations.
        self._nominating: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def start(self, post_filtered: PostFiltered, tasks: asyncio.TaskGroup) -> None:
        """Carry out a result of PostFilter."""
        for other in post_filtered.displaced:
            tasks.create_task(self.follow(other))
        if post_filtered.preemption is not None:
            tasks.create_task(self._until_stop(self._preempt(post_filtered.preemption, tasks)))

    async def follow(self, pod: Pod) -> None:
        """Write the current nomination, if any, into the pod's status."""
        await self._until_stop(self._nominate(pod))

    def stop(self) -> None:
        """Send nothing more. Requests in flight still get their answers; the next process decides again."""
        self._limit.stop()

    async def _until_stop(self, work: Awaitable[None]) -> None:
        with suppress(Stopped):
            await work

    async def _preempt(self, preemption: Preemption, tasks: asyncio.TaskGroup) -> None:
        pod = preemption.pod
        log.info(
            "pod.preempts",
            pod=str(pod.key),
            node=preemption.node,
            cards={share.index: share.units for share in preemption.cards},
            victims=[str(victim.key) for victim in preemption.removed[:_MOST_NAMED]],
            number=len(preemption.removed),
            violations=preemption.protected,
        )
        left = [*reversed(preemption.victims)]
        # If an undeletable victim fails again, no other victim has been deleted for nothing.
        left.sort(key=self._engine.is_undeletable)
        try:
            await self._remove_all(left, preemption, tasks)
        except ApiError as error:
            if not isinstance(error, NotSent):
                self._engine.mark_undeletable(left[-1])
            if self._is_kept(preemption):
                self._engine.preemption_failed(pod, self._now_s())
            log.warning("preemption.failed", pod=str(pod.key), node=preemption.node, reason=error.message)
            note = (
                f"pods of lower priority on node {preemption.node} could not be preempted: {_why(error, left[-1], pod)}"
            )
            self._recorder.about("Pod", str(pod.key), pod.key.uid, "FailedPreemption", note)
            self._wake()
        finally:
            self._engine.victims_spared(left)

    async def _remove_all(self, left: list[Pod], preemption: Preemption, tasks: asyncio.TaskGroup) -> None:
        """Remove deleted victims from the end of `left`. Raises ApiError if the last one could not be deleted."""
        nominated = not (left and self._engine.is_undeletable(left[-1]))
        if nominated:
            await self._nominate(preemption.pod)
        while left and self._is_kept(preemption):
            if left[-1].terminating or await self._remove(left[-1], preemption, tasks):
                left.pop()
                if not nominated:
                    nominated = True
                    await self._nominate(preemption.pod)
        if not left:
            self._engine.victims_deleted(preemption.pod)

    def _is_kept(self, preemption: Preemption) -> bool:
        kept, victims = self._engine.nominations.of(preemption.pod.key.uid), preemption.victims
        return kept is not None and kept.node == preemption.node and kept.victims == {one.key.uid for one in victims}

    async def _nominate(self, pod: Pod) -> None:
        """Write nominatedNodeName for other readers. The nomination holds even if the write fails."""
        async with self._nominating.setdefault(pod.key.uid, asyncio.Lock()):
            kept = self._engine.nominations.of(pod.key.uid)
            node = "" if kept is None else kept.node
            try:
                await self._patiently(pod, lambda: self._cluster.set_nominated_node(pod.key, node))
            except (ApiNotFound, ApiConflict):
                return
            except ApiError as error:
                log.warning("nomination.lost", pod=str(pod.key), node=node, reason=error.message)

    async def _remove(self, victim: Pod, preemption: Preemption, tasks: asyncio.TaskGroup) -> bool:
        """Delete a victim. Returns False if the nomination no longer exists."""
        pod = preemption.pod
        if self._cancel(victim.key.uid, f"preempted by {pod.key.shown_in(victim.key.namespace)}"):
            self._recorder.preempted(victim, note_of(preemption, victim))
            return True
        try:
            await self._patiently(victim, lambda: self._delete(victim))
        except (ApiNotFound, ApiConflict):
            return True  # gone; another pod may have its name
        self._recorder.preempted(victim, note_of(preemption, victim))
        tasks.create_task(self._until_stop(self._mark(victim, pod.scheduler_name)))
        return True

    async def _mark(self, victim: Pod, scheduler_name: str) -> None:
        """Write the reason into the status of a victim. Its deletion does not wait for that."""
        why = f"{scheduler_name}: preempting to accommodate a higher priority pod"
        condition = PodCondition(DISRUPTION_TARGET, "True", PREEMPTION_BY_SCHEDULER, why)
        try:
            await self._patiently(victim, lambda: self._cluster.set_pod_condition(victim.key, condition))
        except (ApiNotFound, ApiConflict):
            return
        except ApiError as error:
            log.warning("victim.not_marked", pod=str(victim.key), reason=error.message)

    async def _delete(self, victim: Pod) -> None:
        try:
            await self._cluster.delete_pod(victim.key)
        except (ApiNotFound, ApiConflict) as error:
            if self._engine.tables.record(victim.key.uid) is None:
                raise
            raise ApiFailed(error.message, error.status) from error

    async def _patiently(self, about: Pod, request: Callable[[], Awaitable[None]]) -> None:
        """Send an idempotent request, and retry it a few times while its outcome is unknown.

        Uses `InFlightLimit`, so a namespace whose webhook hangs does not delay the requests of others.
        """
        namespace = about.key.namespace
        for attempt in range(1, _TRIES):
            try:
                await self._send(namespace, request)
            except ApiThrottled as throttled:
                await self._limit.pause(max(throttled.retry_after_s, self._backoff_s(attempt)))
            except ApiRejected:
                raise
            except ApiError:
                await self._limit.pause(self._backoff_s(attempt))
            else:
                return
        await self._send(namespace, request)

    async def _send(self, namespace: str, request: Callable[[], Awaitable[None]]) -> None:
        with self._limit.binding(namespace):
            async with self._limit.request(namespace):
                await request()


def _why(error: ApiError, victim: Pod, preemptor: Pod) -> str:
    """Return the API server's answer about a victim, without the victim's name if the pod is in another namespace."""
    if victim.key.namespace == preemptor.key.namespace:
        return error.message
    answer = f"HTTP status {error.status}" if error.status else "no answer"
    return f"{victim.key.shown_in(preemptor.key.namespace)}: {answer} from the API server"


def note_of(preemption: Preemption, victim: Pod) -> str:
    """Text for the victim's Event: which pod needs the room, on which node, and how much of which card."""
    text = f"Preempted by {preemption.pod.key.shown_in(victim.key.namespace)} on node {preemption.node}"
    if not preemption.cards:
        return text
    of = ", ".join(f"{share.units} units of card {share.index}" for share in preemption.cards)
    return f"{text}, which needs {of}"
