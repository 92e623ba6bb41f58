"""Evicts the pods that have to go, by the API server: disruption budgets hold."""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

import structlog

from scheduler.kube.port import ApiConflict, ApiError, ApiNotFound, PodKey

_AT_ONCE: Final = 8
log = structlog.get_logger()


class Evictor(Protocol):
    """Evicts pods from the node."""

    async def evict(self, pod: PodKey) -> None:
        """Ask for the eviction of this very pod. Raises ApiError; ApiThrottled: it may not go now."""
        ...


async def evict(evictor: Evictor, leaving: Mapping[PodKey, str]) -> list[str]:
    """Evict each of them; why some are not evicted yet. leaving: pod -> the reason, for the log."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(pod: PodKey, reason: str) -> str:
        async with turn:
            return await _evict(evictor, pod, reason)

    answers = await asyncio.gather(*(one(pod, reason) for pod, reason in leaving.items()))
    return [problem for problem in answers if problem]


async def _evict(evictor: Evictor, pod: PodKey, reason: str) -> str:
    try:
        await evictor.evict(pod)
    except (ApiNotFound, ApiConflict):
        log.info("pod.gone", pod=str(pod), uid=pod.uid)
    except ApiError as error:
        return f"pod {pod} is not evicted yet: {error.message}"
    else:
        log.warning("pod.evicted", pod=str(pod), uid=pod.uid, reason=reason)
    return ""
