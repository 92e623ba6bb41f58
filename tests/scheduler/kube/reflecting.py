"""A cluster whose connections are written down, and what a consumer of a reflector hears of it."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

from scheduler.kube import objects, port
from scheduler.kube.port import PODS, Changed, Cluster, ListBegins, ListEnds
from scheduler.kube.reflector import WatchBackoff, reflect
from tests.support.virtual_time import run


def pod(name: str, uid: str = "", version: str = "") -> objects.PodObject:
    return objects.PodObject(objects.ObjectMeta(name, "default", uid or f"uid-{name}", version))


def rng(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 a seed, no secret


def watch_backoff(seed: int = 1) -> WatchBackoff:
    return WatchBackoff(rng(seed), reconnect_max_s=1.0)


def listed(version: str, *pods: objects.PodObject) -> list[Any]:
    return [ListBegins(), *map(Changed, pods), ListEnds(version)]


@dataclass
class Script:
    """Connections of a cluster: each a sequence of batches, seconds to wait, and an error at the end; then silence."""

    connections: Sequence[Sequence[Any]]
    asked: list[tuple[float, str | None]] = field(default_factory=list)
    closed: int = 0

    async def watch(self, kind: port.Kind[objects.PodObject], since: str | None) -> AsyncIterator[list[Any]]:
        assert kind is PODS
        self.asked.append((asyncio.get_running_loop().time(), since))
        try:
            nth = len(self.asked) - 1
            for step in self.connections[nth] if nth < len(self.connections) else [1e9]:
                if isinstance(step, port.ApiError):
                    raise step
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    yield list(step)
        finally:
            self.closed += 1

    @property
    def versions(self) -> list[str | None]:
        return [since for _, since in self.asked]

    @property
    def pauses_s(self) -> list[float]:
        return [later - earlier for (earlier, _), (later, _) in pairwise(self.asked)]


@dataclass
class Heard:
    events: list[Any]
    batches: list[int]
    troubles: list[port.ApiError | None]
    answers: list[bool] = field(default_factory=list)
    """Of each answer, whether it opened a connection."""


def listen(script: Script, hours: float = 1.0) -> Heard:
    """What a consumer hears in this (virtual) time."""
    heard = Heard([], [], [])

    async def main() -> None:
        def on_trouble(_: port.Kind[objects.PodObject], error: port.ApiError | None) -> None:
            heard.troubles.append(error)

        with suppress(TimeoutError):
            async with asyncio.timeout(3600 * hours):
                batches = reflect(
                    cast("Cluster", script),
                    PODS,
                    backoff=watch_backoff(7),
                    on_trouble=on_trouble,
                    on_answer=lambda _, opened: heard.answers.append(opened),
                )
                async for batch in batches:
                    heard.events += batch
                    heard.batches.append(len(batch))

    run(main())
    return heard
