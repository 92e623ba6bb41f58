"""A task per preemption: says in the status for which node the pod waits, and removes its victims.

    Helped ──▶ nominatedNodeName of those who lose their place, and of the pod
          └──▶ for each victim: condition DisruptionTarget ──▶ DELETE with its uid ──▶ Event Preempted

The decisions go on meanwhile; the place is kept in the tables. A victim whose DELETE fails ends it: the place is kept
no longer, and the pod is tried again after a back-off. So does a pod that is gone, or has another place: victims that
are left stay.
Source: kube-scheduler, framework/preemption/executor.go.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from scheduler.engine import Engine
from scheduler.framework.plugin import Preemption
from scheduler.kube.objects import PodCondition
from scheduler.kube.port import ApiConflict, ApiError, ApiNotFound, ApiRefused, ApiThrottled, Cluster
from scheduler.pods.pod import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER, Pod
from scheduler.preemption_searches import Helped
from scheduler.telemetry.recorder import Recorder

# Requests on the wire, of all preemptions together.
_MOST_REQUESTS: Final = 16
_TRIES: Final = 4
# In one line of the log.
_MOST_NAMED: Final = 8

log = structlog.get_logger()


class PreemptionTasks:
    """now_s: monotonic seconds. backoff_s: before each repetition of a request. wake: after each failure."""

    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        recorder: Recorder,
        *,
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
        self._slots = asyncio.Semaphore(_MOST_REQUESTS)

    def start(self, helped: Helped, tasks: asyncio.TaskGroup) -> None:
        """Do what was decided."""
        tasks.create_task(self._carry_out(helped))

    async def _carry_out(self, helped: Helped) -> None:
        for other in helped.displaced:
            await self._nominate(other, "")
        if helped.preemption is not None:
            await self._preempt(helped.preemption)

    async def _preempt(self, preemption: Preemption) -> None:
        pod = preemption.pod
        log.info(
            "pod.preempts",
            pod=str(pod.key),
            node=preemption.node,
            cards={share.index: share.units for share in preemption.cards},
            victims=[str(victim.key) for victim in preemption.victims[:_MOST_NAMED]],
            number=len(preemption.victims),
            violations=preemption.violations,
        )
        await self._nominate(pod, preemption.node)
        try:
            for victim in preemption.victims:
                if not self._is_kept(preemption):
                    return
                if not victim.terminating:
                    await self._remove(victim, preemption)
        except ApiError as error:
            if self._is_kept(preemption):
                self._engine.preemption_failed(pod, self._now_s())
            log.warning("preemption.failed", pod=str(pod.key), node=preemption.node, reason=error.message)
            note = f"pods of lower priority on node {preemption.node} could not be removed: {error.message}"
            self._recorder.about("Pod", str(pod.key), pod.key.uid, "FailedPreemption", note)
            self._wake()

    def _is_kept(self, preemption: Preemption) -> bool:
        kept = self._engine.nominations.of(preemption.pod.key.uid)
        return kept is not None and kept.node == preemption.node

    async def _nominate(self, pod: Pod, node: str) -> None:
        """What the status says is for others to see; the place is kept by ourselves, whether it is written or not."""
        if node and pod.nominated_node == node:
            return
        try:
            await self._patiently(lambda: self._cluster.set_nominated_node(pod.key, node))
        except (ApiNotFound, ApiConflict):
            return
        except ApiError as error:
            log.warning("nomination.lost", pod=str(pod.key), node=node, reason=error.message)

    async def _remove(self, victim: Pod, preemption: Preemption) -> None:
        pod = preemption.pod
        why = f"{pod.scheduler_name}: preempting to accommodate a higher priority pod"
        condition = PodCondition(DISRUPTION_TARGET, "True", PREEMPTION_BY_SCHEDULER, why)
        try:
            await self._patiently(lambda: self._cluster.set_pod_condition(victim.key, condition))
            await self._patiently(lambda: self._cluster.delete_pod(victim.key))
        except (ApiNotFound, ApiConflict):
            return  # gone, and perhaps another of its name is there
        self._recorder.preempted(victim, note_of(preemption))

    async def _patiently(self, request: Callable[[], Awaitable[None]]) -> None:
        """Send it; again, a few times, while the answer leaves open what became of it: each can be repeated."""
        for attempt in range(1, _TRIES):
            try:
                async with self._slots:
                    await request()
            except ApiThrottled as throttled:
                await asyncio.sleep(max(throttled.retry_after_s, self._backoff_s(attempt)))
            except ApiRefused:
                raise
            except ApiError:
                await asyncio.sleep(self._backoff_s(attempt))
            else:
                return
        async with self._slots:
            await request()


def note_of(preemption: Preemption) -> str:
    """What the owner of a victim reads: for whom, where, and for how much of which card."""
    text = f"Preempted by pod {preemption.pod.key} on node {preemption.node}"
    if not preemption.cards:
        return text
    of = ", ".join(f"{share.units} units of card {share.index}" for share in preemption.cards)
    return f"{text}, which needs {of}"
