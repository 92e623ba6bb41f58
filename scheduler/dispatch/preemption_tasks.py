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
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

import structlog

from scheduler.core.engine import Engine
from scheduler.dispatch.binding_tasks import BindingTasks
from scheduler.dispatch.event_outbox import EventOutbox
from scheduler.dispatch.nomination_writer import NominationWriter
from scheduler.dispatch.sender import Sender, Stopped, Write
from scheduler.framework.preemption import Preemption
from scheduler.kube.objects import PodCondition
from scheduler.kube.port import (
    ApiConflict,
    ApiError,
    ApiFailed,
    ApiNotFound,
    Cluster,
    NotSent,
)
from scheduler.pods.pod import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER, Pod
from scheduler.process.clock import Clock

# Maximum per log line.
_MOST_NAMED: Final = 8

log = structlog.get_logger()


class _GivenUp(Exception):
    """The nomination no longer exists, so nobody needs the victim's room."""


class PreemptionTasks:
    """Tasks of preemptions. bindings: where a victim may still be prepared. wake: set after each failure."""

    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        sender: Sender,
        events: EventOutbox,
        *,
        bindings: BindingTasks,
        nominations: NominationWriter,
        clock: Clock,
        wake: asyncio.Event,
    ) -> None:
        self._engine = engine
        self._cluster = cluster
        self._sender = sender
        self._events = events
        self._bindings = bindings
        self._nominations = nominations
        self._clock = clock
        self._wake = wake

    async def preempt(self, preemption: Preemption, tasks: asyncio.TaskGroup) -> None:
        """Nominate the pod and delete its victims."""
        await self._until_stop(self._preempt(preemption, tasks))

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
        left.sort(key=self._is_undeletable)
        refused, failed = None, False
        try:
            await self._remove_all(left, preemption, tasks)
        except ApiError as error:
            refused, failed = None if isinstance(error, NotSent) else left[-1], self._is_kept(preemption)
            log.warning("preemption.failed", pod=str(pod.key), node=preemption.node, reason=error.message)
            note = (
                f"pods of lower priority on node {preemption.node} could not be preempted: {_why(error, left[-1], pod)}"
            )
            self._events.about("Pod", str(pod.key), pod.key.uid, "FailedPreemption", note)
            self._wake.set()
        finally:
            self._engine.preemption_ended(pod, left, self._clock.monotonic_s(), failed=failed, refused=refused)

    async def _remove_all(self, left: list[Pod], preemption: Preemption, tasks: asyncio.TaskGroup) -> None:
        """Remove deleted victims from the end of `left`. Raises ApiError if the last one could not be deleted."""
        nominated = not (left and self._is_undeletable(left[-1]))
        if nominated:
            await self._begin_nomination(preemption.pod, tasks)
        while left and self._is_kept(preemption):
            if left[-1].terminating or await self._remove(left[-1], preemption, tasks):
                left.pop()
                if not nominated:
                    nominated = True
                    await self._begin_nomination(preemption.pod, tasks)

    async def _begin_nomination(self, pod: Pod, tasks: asyncio.TaskGroup) -> None:
        """Send the nomination. Nothing waits for the answer: it holds without it."""
        tasks.create_task(self._nominations.write(pod))
        await asyncio.sleep(0)

    def _is_undeletable(self, victim: Pod) -> bool:
        """Return whether an earlier deletion of the victim failed."""
        return (record := self._engine.tables.record(victim.key.uid)) is not None and record.undeletable

    def _is_kept(self, preemption: Preemption) -> bool:
        kept, victims = self._engine.nominations.of(preemption.pod.key.uid), preemption.victims
        return kept is not None and kept.node == preemption.node and kept.victims == {one.key.uid for one in victims}

    async def _remove(self, victim: Pod, preemption: Preemption, tasks: asyncio.TaskGroup) -> bool:
        """Delete a victim. Returns False if the nomination no longer exists."""
        pod = preemption.pod
        if self._bindings.cancel(victim.key.uid, f"preempted by {pod.key.shown_in(victim.key.namespace)}"):
            self._events.preempted(victim.key, note_of(preemption, victim))
            return True
        try:
            await self._sender.deliver(Write.EVICT, victim.key.namespace, self._delete, victim, preemption)
        except _GivenUp:
            return False
        except (ApiNotFound, ApiConflict):
            return True  # gone; another pod may have its name
        self._events.preempted(victim.key, note_of(preemption, victim))
        tasks.create_task(self._until_stop(self._mark(victim, pod.scheduler_name)))
        return True

    async def _mark(self, victim: Pod, scheduler_name: str) -> None:
        """Write the reason into the status of a victim. Its deletion does not wait for that."""
        why = f"{scheduler_name}: preempting to accommodate a higher priority pod"
        condition = PodCondition(DISRUPTION_TARGET, "True", PREEMPTION_BY_SCHEDULER, why)
        try:
            await self._sender.deliver(
                Write.STATUS, victim.key.namespace, self._cluster.set_pod_condition, victim.key, condition
            )
        except (ApiNotFound, ApiConflict):
            return
        except ApiError as error:
            log.warning("victim.not_marked", pod=str(victim.key), reason=error.message)

    async def _delete(self, victim: Pod, preemption: Preemption) -> None:
        if not self._is_kept(preemption):
            raise _GivenUp
        try:
            await self._cluster.delete_pod(victim.key)
        except (ApiNotFound, ApiConflict) as error:
            if self._engine.tables.record(victim.key.uid) is None:
                raise
            raise ApiFailed(error.message, error.status) from error


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
