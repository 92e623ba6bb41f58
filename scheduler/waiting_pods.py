"""Pods that have a place and that a Permit plugin holds back. kube-scheduler's waitingPodsMap.

    placed ──Permit says Wait──▶ WAITING ──every plugin allows──▶ binds
                                   │
                                   └── one rejects, or its time is over ──▶ undone

Owned by the event loop.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.binding_cycle import BindRefused
from scheduler.scheduling_cycle import Hold


@dataclass(slots=True)
class _WaitingPod:
    """left: plugins that have not allowed it yet. decided: done when that is nobody, or with the refusal."""

    left: set[str]
    decided: asyncio.Future[None]


class WaitingPods:
    """By uid."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._pods: dict[str, _WaitingPod] = {}

    async def wait(self, uid: str, holds: Sequence[Hold]) -> None:
        """Return when every plugin of `holds` has allowed the pod. BindRefused when one rejects, or time is over."""
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
        """One plugin lets the pod go; nothing when it does not wait."""
        waiting = self._pods.get(uid)
        if waiting is None:
            return
        waiting.left.discard(plugin)
        if not waiting.left and not waiting.decided.done():
            waiting.decided.set_result(None)

    def reject(self, uid: str, plugin: str, reason: str) -> None:
        """One plugin refuses; nothing when the pod does not wait."""
        waiting = self._pods.get(uid)
        if waiting is not None and not waiting.decided.done():
            waiting.decided.set_exception(BindRefused(f"{plugin}: {reason}"))
