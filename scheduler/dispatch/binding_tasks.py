"""One task per placed pod: waits for Permit and PreBind, binds, and reports the outcome to the engine."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog

from config.protocol.quantity import QuantityError
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.dispatch.binding_cycle import Binder, WaitingPods
from scheduler.dispatch.breaker import failure_kind
from scheduler.dispatch.sender import Sender, Stopped, Write
from scheduler.dispatch.status import Status
from scheduler.dispatch.volume_binder import VolumeBinder, VolumesFailed
from scheduler.kube.bind_outcome import BindRejected
from scheduler.kube.port import ApiError, Binding
from scheduler.metrics.observer import ServiceObserver
from scheduler.pods.pod import Pod, PodReader
from scheduler.process.clock import Clock
from scheduler.process.contact import BINDINGS, Contact
from scheduler.queue.entry import QueuedPod

# Longest back-off after a request that will probably fail again.
_LASTING_BACKOFF_S: Final = 300.0
_VOLUMES: Final = "binding volumes"
# By then, a healthy provisioner has created a volume.
_VOLUMES_LATE_S: Final = 10.0
_MOST_NAMED: Final = 3
# Pods of a namespace that try while it is not known that it gets answers. One that no server can bind must not block
# the others.
_FEWEST_TRYING: Final = 4

log = structlog.get_logger()


@dataclass(slots=True)
class _Preparing:
    """A pod that waits. until: its cancellation ends the wait. cancelled: the reason, "" if not cancelled."""

    until: asyncio.Timeout
    cancelled: str = ""


class BindingTasks:
    """Owner of each placed pod from the decision until the outcome of its Binding is known."""

    def __init__(
        self,
        engine: Engine,
        reader: PodReader,
        binder: Binder,
        *,
        observer: ServiceObserver,
        status: Status,
        contact: Contact,
        sender: Sender,
        volume_binder: VolumeBinder,
        clock: Clock,
        wake: asyncio.Event,
    ) -> None:
        """wake: set when another pod may perhaps be placed."""
        self.waiting_pods = WaitingPods()
        self.being_bound = 0  # placed pods, whatever they wait for
        self.not_sent: set[str] = set()  # UIDs of pods whose Binding was not sent before the end
        self._starting = 0  # tasks that have not begun
        # By namespace: pods whose task has not begun, or whose Binding is sent or retried.
        self._trying: Counter[str] = Counter()
        # By UID: pods that wait for Permit, volumes or PreBind. Their Binding is not sent yet.
        self._preparing: dict[str, _Preparing] = {}
        self._engine = engine
        self._binder = binder
        self._sender = sender
        self._volume_binder = volume_binder
        self._observer = observer
        self._status = status
        self._contact = contact
        self._reader = reader
        self._clock = clock
        self._wake = wake

    @property
    def may_place(self) -> bool:
        """Whether another pod would be bound at once. Otherwise it stays in the queue, which is in priority order."""
        return self._starting < self._sender.free(Write.BIND)

    def may_bind(self, namespace: str) -> bool:
        """Whether another pod of the namespace may be placed: its Binding would be sent at once, or few are tried."""
        return self._trying[namespace] < max(_FEWEST_TRYING, self._sender.share(Write.BIND, namespace))

    def failing(self, namespace: str) -> str:
        """How Bindings of the namespace fail now; "" if they do not."""
        return failure_kind(self._sender.failure(Write.BIND, namespace))

    def start(self, queued: QueuedPod, placement: Placement, tasks: asyncio.TaskGroup) -> None:
        """Bind the pod as decided."""
        self._starting += 1
        self._trying[placement.pod.key.namespace] += 1
        self.being_bound += 1
        tasks.create_task(self._bind(queued, placement))

    def report_delayed(self, pod: Pod) -> None:
        """Report that a waiting pod is not placed, because Bindings of its namespace fail."""
        namespace = pod.key.namespace
        why = self._sender.failure(Write.BIND, namespace)
        reason = f"bindings in namespace {namespace} are currently failing: {why}"
        self._observer.bind_held_back(pod, reason)
        self._status.bind_failed(pod, f"binding is delayed: {reason}", (self.failing(namespace),))

    def cancel(self, uid: str, reason: str) -> bool:
        """Undo the placement of a pod whose Binding is not sent. Returns False if there is no such pod.

        Source: kube-scheduler, framework/preemption/executor.go, on waiting pods and pods in PreBind.
        """
        preparing = self._preparing.get(uid)
        if preparing is None:
            return False
        if not preparing.cancelled:
            preparing.cancelled = reason
            preparing.until.reschedule(0.0)
        return True

    def stop(self) -> None:
        """Raise Stopped in pods that wait, because the process ends."""
        self.waiting_pods.stop()
        self._volume_binder.stop()

    async def _bind(self, queued: QueuedPod, placement: Placement) -> None:
        pod = placement.pod
        self._starting -= 1
        if not self._starting:
            self._wake.set()  # some of them wait for a place, and take none
        try:
            if placement.permit_waits or placement.volumes is not None or placement.pre_bind:
                self._tries(pod, -1)
                await self._unless_cancelled(placement)
                self._tries(pod, 1)
            try:
                await self._binder.bind(Binding(pod.key, placement.node, placement.annotations))
            finally:
                self._tries(pod, -1)
        except BindRejected as rejected:
            if rejected.status == HTTPStatus.UNAUTHORIZED:
                self._contact.failed(BINDINGS, rejected.reason)
            self._rejected(placement, rejected)
        except Stopped as stopped:
            if not stopped.in_doubt:
                self.not_sent.add(pod.key.uid)
            self._observer.left_open(placement)
        else:
            self._contact.recovered(BINDINGS)
            self._engine.bound(placement)
            self._observer.bound(queued, placement, self._clock.monotonic_s())
            self._status.bound(pod, placement.node, placement.cards)
        finally:
            self.being_bound -= 1
            self._wake.set()

    def _tries(self, pod: Pod, change: int) -> None:
        namespace = pod.key.namespace
        self._trying[namespace] += change
        if not self._trying[namespace]:
            del self._trying[namespace]

    async def _unless_cancelled(self, placement: Placement) -> None:
        """Run `_prepared`. Raises BindRejected also if `cancel` interrupts it."""
        uid = placement.pod.key.uid
        preparing = self._preparing[uid] = _Preparing(asyncio.timeout(None))
        try:
            async with preparing.until:
                await self._prepared(placement)
        except TimeoutError as error:
            if not preparing.cancelled:
                raise
            raise BindRejected(preparing.cancelled) from error
        finally:
            del self._preparing[uid]
        if preparing.cancelled:
            # The wait had just ended, but the caller of `cancel` relies on the freed room.
            raise BindRejected(preparing.cancelled)

    async def _prepared(self, placement: Placement) -> None:
        """Wait for Permit, then for the volumes, then run PreBind. Raises BindRejected if one of them rejects."""
        await self.waiting_pods.wait(placement.pod.key.uid, placement.permit_waits)
        late = asyncio.get_running_loop().call_later(_VOLUMES_LATE_S, self._volumes_are_late, placement)
        try:
            await self._volume_binder.bind(placement)
        except VolumesFailed as failed:
            message = f"{_VOLUMES}: {failed.reason}"
            raise BindRejected(message, status=failed.status, settled=failed.gone, lasting=failed.lasting) from failed
        finally:
            late.cancel()
        for plugin in placement.pre_bind:
            try:
                await plugin.pre_bind(placement.pod, placement.node)
            except ApiError as error:
                message = f"{plugin.name}: {error.message}"
                raise BindRejected(message, status=error.status, lasting=True) from error

    def _volumes_are_late(self, placement: Placement) -> None:
        """Report that the pod occupies its node while it waits, because no condition of a placed pod shows this."""
        if placement.volumes is None:
            return
        pod, claims = placement.pod, [claim for claim, _ in placement.volumes]
        named = [f"{namespace}/{name}" for namespace, name in claims[:_MOST_NAMED]]
        more = [f"{len(claims) - _MOST_NAMED} more"] * (len(claims) > _MOST_NAMED)
        cards = ", ".join(str(share.index) for share in placement.cards)
        place = f"{placement.node}, card {cards}" if cards else placement.node
        note = (
            f"assigned to node {place}; waiting up to {placement.volumes.timeout_s:g} s for "
            f"the volumes of its claims: {', '.join([*named, *more])}"
        )
        log.warning("pod.waits_for_volumes", pod=str(pod.key), node=placement.node, claims=[*named, *more])
        self._status.events.about("Pod", str(pod.key), pod.key.uid, "WaitingForVolumes", note)

    def _rejected(self, placement: Placement, rejected: BindRejected) -> None:
        if rejected.found is not None and self._engine.tables.is_assumed(placement.pod.key.uid):
            # The watch may lag: until it shows the same, the pod would be retried and get a wrong message.
            with suppress(QuantityError):
                self._engine.pod_assigned(self._reader.read(rejected.found))
        longest_s = _LASTING_BACKOFF_S if rejected.lasting else 0.0
        self._engine.bind_failed(placement, self._clock.monotonic_s(), longest_backoff_s=longest_s)
        self._observer.bind_rejected(placement, rejected)
        if not rejected.settled:
            message = f"binding to {placement.node} was rejected: {rejected.reason}"
            self._status.bind_failed(placement.pod, message, (rejected.reason,))
