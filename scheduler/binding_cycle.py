"""Bind a placed pod: wait for Permit, PreBind, then the same POST until its outcome is known.

    POST ── 201 ───────────────────────────────▶ bound
      │ ├─ 409 ─▶ GET: our node and annotations? ─▶ bound, else refused
      │ ├─ 404, 403, other 4xx ────────────────▶ refused
      │ ├─ 429 ─▶ not executed: wait, again
      │ └─ no answer, 5xx ─▶ unknown: wait, the identical POST again
      └─ for 60 s no POST that may still take effect, and this one failed ─▶ GET decides

A refusal after a POST without an answer is not final: that POST may still take effect.

While the outcome is unknown the pod stays assumed: the first POST may still take effect, and nothing else
prevents two pods on one card. Source of the API server's answers: pkg/registry/core/pod/storage/storage.go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from config.protocol import names
from scheduler.kube import objects
from scheduler.kube.port import (
    ApiConflict,
    ApiError,
    ApiFailed,
    ApiNotFound,
    ApiRefused,
    ApiThrottled,
    Binding,
    Cluster,
)
from scheduler.scheduling_cycle import Hold

# kube-apiserver's --request-timeout: a request older than this can no longer take effect.
SERVER_REQUEST_TIMEOUT_S: Final = 60.0
_INTERNAL_ERROR: Final = 500
# By the legacy plugin, at Allocate (docs/protocol.md, "Compatibility with the legacy plugin").
_OVERWRITTEN: Final = frozenset({names.MEM_ASSIGNED, names.MEM_ASSUME_TIME})


class BindRefused(Exception):
    """Refused: the placement is undone and the pod backs off."""

    def __init__(self, reason: str, *, status: int = 0, gone: bool = False, assigned: bool = False) -> None:
        """status: HTTP status of the answer, 0 when a GET decided.

        gone: the pod itself no longer exists. assigned: it has another place. No POST can change either.
        """
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.gone = gone
        self.settled = gone or assigned


class BindUnknown(Exception):
    """No definite answer: stay assumed and send the identical POST again."""

    def __init__(self, reason: str, *, may_take_effect: bool = False, retry_after_s: float | None = None) -> None:
        """may_take_effect: this POST, still. retry_after_s: as the server demands; None when it failed."""
        super().__init__(reason)
        self.reason = reason
        self.may_take_effect = may_take_effect
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Time:
    """The clock and the sleep of the process. monotonic_s: seconds."""

    monotonic_s: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class Binder:
    """Sends Bindings.

    timeout_s: of one POST. backoff_s: how long to wait after so many attempts in a row without a definite answer.
    on_retry: told of each of them.
    """

    cluster: Cluster
    time: Time
    timeout_s: float
    backoff_s: Callable[[int], float]
    on_retry: Callable[[Binding, str], None]

    async def bind(self, binding: Binding) -> None:
        """Return when the pod is bound as `binding` says; raise BindRefused when it is not and will not be."""
        last_open_s: float | None = None  # when the last POST was sent that may still take effect
        first_s = self.time.monotonic_s()
        attempt = 0
        while True:
            sent_s = self.time.monotonic_s()
            try:
                await self._once(binding)
            except BindUnknown as unknown:
                failure = unknown
            except BindRefused as refused:
                if refused.settled or last_open_s is None or sent_s - last_open_s >= SERVER_REQUEST_TIMEOUT_S:
                    raise
                failure = BindUnknown(f"{refused.status}: {refused.reason}")
            else:
                return
            attempt += 1
            self.on_retry(binding, failure.reason)
            if failure.may_take_effect:
                last_open_s = sent_s
            elif failure.retry_after_s is None and self._outlasted(first_s if last_open_s is None else last_open_s):
                await self._decide_by_reading(binding)
                return
            await self.time.sleep(max(self.backoff_s(attempt), failure.retry_after_s or 0.0))

    def _outlasted(self, since_s: float) -> bool:
        return self.time.monotonic_s() - since_s >= SERVER_REQUEST_TIMEOUT_S

    async def _once(self, binding: Binding) -> None:
        """One POST: bound, or BindRefused, or BindUnknown."""
        try:
            await self.cluster.bind(binding, self.timeout_s)
        except ApiConflict as conflict:
            await self._decide_by_reading(binding, conflict.message)
        except ApiNotFound as missing:
            raise BindRefused(missing.message, gone=True, status=missing.status) from missing
        except ApiThrottled as throttled:
            message = f"429: {throttled.message}"
            raise BindUnknown(message, retry_after_s=throttled.retry_after_s) from throttled
        except ApiRefused as refused:
            raise BindRefused(refused.message, status=refused.status) from refused
        except ApiError as error:
            ended = isinstance(error, ApiFailed) and error.status == _INTERNAL_ERROR
            message = f"{error.status or 'no answer'}: {error.message}"
            raise BindUnknown(message, may_take_effect=not ended) from error

    async def _decide_by_reading(self, binding: Binding, refusal: str = "the API server failed to bind it") -> None:
        """GET the pod until there is an answer; BindRefused unless it is bound as `binding` says."""
        attempt = 0
        while True:
            try:
                pod = await self.cluster.pod(binding.pod.namespace, binding.pod.name)
                break
            except ApiError as error:
                attempt += 1
                self.on_retry(binding, f"reading the pod: {error.message}")
                await self.time.sleep(self.backoff_s(attempt))
        if pod is None or pod.metadata.uid != binding.pod.uid:
            message = f"pod {binding.pod} no longer exists"
            raise BindRefused(message, gone=True)
        if not is_bound_as(pod, binding.node, binding.annotations):
            raise BindRefused(refusal, assigned=bool(pod.spec.node_name))


@dataclass(slots=True)
class _WaitingPod:
    """left: plugins that have not allowed it yet. decided: done when none is left, or with the refusal."""

    left: set[str]
    decided: asyncio.Future[None]


class WaitingPods:
    """Pods that have a place and that a Permit plugin holds back, by uid. kube-scheduler's waitingPodsMap.

        placed ──Permit says Wait──▶ WAITING ──every plugin allows──▶ binds
                                       │
                                       └── one rejects, or time is up ──▶ undone

    Owned by the event loop.
    """

    def __init__(self) -> None:
        """No pod waits."""
        self._pods: dict[str, _WaitingPod] = {}

    async def wait(self, uid: str, holds: Sequence[Hold]) -> None:
        """Return when every plugin of `holds` has allowed the pod. BindRefused when one rejects, or time is up."""
        if not holds:
            return
        waiting = _WaitingPod({hold.plugin for hold in holds}, asyncio.get_running_loop().create_future())
        self._pods[uid] = waiting
        first = min(holds, key=lambda hold: hold.timeout_s)
        try:
            async with asyncio.timeout(first.timeout_s):
                await waiting.decided
        except TimeoutError as error:
            message = f"{first.plugin} did not allow it within {first.timeout_s:g} s"
            raise BindRefused(message) from error
        finally:
            del self._pods[uid]

    def allow(self, uid: str, plugin: str) -> None:
        """One plugin allows the pod; no effect when it does not wait."""
        waiting = self._pods.get(uid)
        if waiting is None:
            return
        waiting.left.discard(plugin)
        if not waiting.left and not waiting.decided.done():
            waiting.decided.set_result(None)

    def reject(self, uid: str, plugin: str, reason: str) -> None:
        """One plugin rejects the pod; no effect when it does not wait."""
        waiting = self._pods.get(uid)
        if waiting is not None and not waiting.decided.done():
            waiting.decided.set_exception(BindRefused(f"{plugin}: {reason}"))


def is_bound_as(pod: objects.Pod, node: str, annotations: Mapping[str, str]) -> bool:
    """Whether the pod is on `node` with all of `annotations`: only our Binding can have done that.

    What a legacy plugin may have overwritten since does not count.
    """
    written = pod.metadata.annotations or {}
    ours = {key: value for key, value in annotations.items() if key not in _OVERWRITTEN}
    return pod.spec.node_name == node and ours.items() <= written.items()
