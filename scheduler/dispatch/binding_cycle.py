"""Binds a placed pod: waits for Permit and PreBind, then repeats one POST until its outcome is known.

    POST ── 201 ───────────────────────────────▶ bound
      │ ├─ 409 ─▶ GET: our node and annotations? ─▶ bound; another node or pod ─▶ rejected; otherwise a rejection
      │ ├─ 404, 403, other 4xx: a rejection ───▶ rejected, if no POST before it is in doubt
      │ ├─ 429 ─▶ not executed: wait, retry
      │ └─ 5xx, no answer of the API server ───▶ in doubt: wait, retry the identical POST
      └─ in doubt, and for 60 s no POST that may still take effect ─▶ GET decides: as above; a pod without a node
                                                     ─▶ rejected; 404 ─▶ no answer: wait, retry
    the watch shows that the pod is gone ──────▶ rejected, between any two of these

In doubt: a POST may have taken effect, and except after a 500 may still do so. The rejection of a later POST does not
settle the doubt. Neither does a 404, which can come from a single misdirected load balancer or API server. Only the
watch shows that a pod is gone.

While the outcome is in doubt the pod stays assumed: nothing else prevents two pods on one card. It waits without a
request in flight (sender.py). Source of the API server's answers: pkg/registry/core/pod/storage/storage.go.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from config.protocol import names
from scheduler.core.scheduling_cycle import PermitWait
from scheduler.dispatch.event_outbox import EventOutbox
from scheduler.dispatch.sender import Sender, Stopped, Write
from scheduler.kube import objects
from scheduler.kube.bind_outcome import BindRejected, BindUnknown
from scheduler.kube.port import ApiConflict, ApiError, ApiFailed, ApiRejected, ApiThrottled, Binding, Cluster, NotSent
from scheduler.metrics.observer import ServiceObserver
from scheduler.process.clock import Clock
from scheduler.state.tables import Tables

# kube-apiserver's --request-timeout: a request older than this can no longer take effect.
SERVER_REQUEST_TIMEOUT_S: Final = 60.0
# The legacy plugin overwrites these at Allocate (docs/develop/protocol.md, "Compatibility with the legacy plugin").
_OVERWRITTEN: Final = frozenset({names.MEM_ASSIGNED, names.MEM_ASSUME_TIME})


@dataclass(slots=True)
class _Doubt:
    """Doubt about the outcome of one pod's POSTs so far. Times in monotonic seconds.

    first_s: when the first POST was decided. sent_s: when the last one was sent. open_s: the same for the last POST
    that may still take effect while the server works on it. any: whether any POST may have taken effect.
    """

    first_s: float
    sent_s: float = 0.0
    open_s: float | None = None
    any: bool = False

    def ends_in_time(self, now_s: float) -> bool:
        """Whether one of the POSTs may still take effect."""
        return self.open_s is not None and now_s - self.open_s < SERVER_REQUEST_TIMEOUT_S

    def lasted(self, now_s: float) -> bool:
        """Whether no POST that may still take effect was sent in the last minute."""
        return now_s - (self.first_s if self.open_s is None else self.open_s) >= SERVER_REQUEST_TIMEOUT_S


@dataclass(slots=True, kw_only=True)
class Binder:
    """Binder of pods. timeout_s: for one POST."""

    cluster: Cluster
    sender: Sender
    tables: Tables
    observer: ServiceObserver
    events: EventOutbox
    clock: Clock
    timeout_s: float

    async def bind(self, binding: Binding) -> None:
        """Wait until the pod is bound as in `binding`. Raises BindRejected if it never will be.

        Raises Stopped if the process ends before the outcome is known.
        """
        doubt = _Doubt(self.clock.monotonic_s())
        try:
            await self._until_definite(binding, doubt)
        except Stopped as stopped:
            stopped.in_doubt = doubt.any
            raise

    async def _until_definite(self, binding: Binding, doubt: _Doubt) -> None:
        attempt = 0
        while True:
            try:
                await self._attempt(binding, doubt)
            except BindUnknown as unknown:
                attempt += 1
                self._report(binding, unknown)
                await self.sender.back_off(attempt, unknown.retry_after_s)
            else:
                return
            if self.tables.is_gone(binding.pod.uid):
                message = f"the watch shows that pod {binding.pod} was deleted"
                raise BindRejected(message, settled=True)

    async def _attempt(self, binding: Binding, doubt: _Doubt) -> None:
        """Send one POST, then a GET if its answer leaves the outcome open. Raises BindRejected or BindUnknown."""
        try:
            await self.sender.send(Write.BIND, binding.pod.namespace, self._post, binding, doubt)
        except NotSent as error:
            raise BindUnknown(error.message, error.status) from error
        except ApiConflict as conflict:
            rejection = BindRejected(conflict.message, status=conflict.status, lasting=True)
            await self._read(binding, doubt, rejection)
        except ApiThrottled as throttled:
            raise BindUnknown(throttled.message, throttled.status, throttled.retry_after_s) from throttled
        except ApiRejected as rejected:
            if doubt.ends_in_time(self.clock.monotonic_s()):
                raise BindUnknown(rejected.message, rejected.status) from rejected
            rejection = BindRejected(rejected.message, status=rejected.status, lasting=True)
            if not doubt.any:
                raise rejection from rejected
            await self._read(binding, doubt, rejection)
        except ApiError as error:
            await self._doubted(binding, doubt, error)

    async def _post(self, binding: Binding, doubt: _Doubt) -> None:
        doubt.sent_s = self.clock.monotonic_s()
        await self.cluster.bind(binding, self.timeout_s)

    def _report(self, binding: Binding, unknown: BindUnknown) -> None:
        self.observer.bind_retried(binding, unknown.status, unknown.reason)
        if unknown.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return
        # Write no condition: the pod is already bound, or may be at any moment.
        note = f"binding to {binding.node} has had no definite answer yet; retrying: {unknown.reason}"
        self.events.about("Pod", str(binding.pod), binding.pod.uid, "FailedScheduling", note)

    async def _doubted(self, binding: Binding, doubt: _Doubt, error: ApiError) -> None:
        """Record that the POST may have taken effect. After a 500 it has ended, so it cannot take effect later."""
        doubt.any = True
        if not (isinstance(error, ApiFailed) and error.status == HTTPStatus.INTERNAL_SERVER_ERROR):
            doubt.open_s = doubt.sent_s
        if not doubt.lasted(self.clock.monotonic_s()):
            raise BindUnknown(error.message, error.status) from error
        await self._read(binding, doubt, BindRejected(f"the API server failed to bind it: {error.message}"))

    async def _read(self, binding: Binding, doubt: _Doubt, rejected: BindRejected) -> None:
        """GET the pod. Returns if it is bound as in `binding`; otherwise raises BindRejected or BindUnknown."""
        try:
            pod = await self.cluster.pod(binding.pod.namespace, binding.pod.name)
        except ApiError as error:
            message = f"reading the pod: {error.message}"
            raise BindUnknown(message, error.status) from error
        if pod is None:
            if doubt.any:
                message = f"{rejected.reason}; reading the pod: not found"
                raise BindUnknown(message, HTTPStatus.NOT_FOUND)
            raise rejected
        if pod.metadata.uid != binding.pod.uid:
            message = f"pod {binding.pod} no longer exists"
            raise BindRejected(message, settled=True)
        if is_bound_as(pod, binding.node, binding.annotations):
            return
        if pod.spec.node_name:
            raise BindRejected(rejected.reason, status=rejected.status, settled=True, found=pod)
        if doubt.ends_in_time(self.clock.monotonic_s()):
            raise BindUnknown(rejected.reason, rejected.status)
        raise rejected


@dataclass(slots=True)
class _WaitingPod:
    """A pod that waits for Permit. left: plugins that have not allowed it yet.

    decided: done once no plugin is left; fails with the rejection.
    """

    left: set[str]
    decided: asyncio.Future[None]


class WaitingPods:
    """Placed pods that wait for Permit plugins, by UID. Corresponds to kube-scheduler's waitingPodsMap.

            placed ──Permit says Wait──▶ WAITING ──every plugin allows──▶ binds
                                           │
                                           └── one rejects, or time-out ──▶ undone

    Owned by the event loop.
    """

    def __init__(self) -> None:
        self._pods: dict[str, _WaitingPod] = {}

    async def wait(self, uid: str, waits: Sequence[PermitWait]) -> None:
        """Wait until every plugin in `waits` allows the pod. Raises BindRejected if one rejects it, or on time-out.

        Raises Stopped if the process ends first.
        """
        if not waits:
            return
        waiting = _WaitingPod({wait.plugin for wait in waits}, asyncio.get_running_loop().create_future())
        self._pods[uid] = waiting
        first = min(waits, key=lambda wait: wait.timeout_s)
        try:
            async with asyncio.timeout(first.timeout_s):
                await waiting.decided
        except TimeoutError as error:
            message = f"{first.plugin} did not allow it within {first.timeout_s:g} s"
            raise BindRejected(message) from error
        finally:
            del self._pods[uid]

    def allow(self, uid: str, plugin: str) -> None:
        """Record that a plugin allows the pod. No effect if the pod does not wait."""
        waiting = self._pods.get(uid)
        if waiting is None:
            return
        waiting.left.discard(plugin)
        if not waiting.left and not waiting.decided.done():
            waiting.decided.set_result(None)

    def reject(self, uid: str, plugin: str, reason: str) -> None:
        """Record that a plugin rejects the pod. No effect if the pod does not wait."""
        waiting = self._pods.get(uid)
        if waiting is not None and not waiting.decided.done():
            waiting.decided.set_exception(BindRejected(f"{plugin}: {reason}"))

    def stop(self) -> None:
        """Raise Stopped in all waiting pods, because the process ends."""
        for waiting in self._pods.values():
            if not waiting.decided.done():
                waiting.decided.set_exception(Stopped())


def is_bound_as(pod: objects.PodObject, node: str, annotations: Mapping[str, str]) -> bool:
    """Whether the pod is on `node` with all of `annotations`: only our Binding can have caused that.

    Ignores annotations that a legacy plugin may have overwritten since.
    """
    written = pod.metadata.annotations or {}
    ours = {key: value for key, value in annotations.items() if key not in _OVERWRITTEN}
    return pod.spec.node_name == node and ours.items() <= written.items()
