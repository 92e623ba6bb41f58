"""The kubelet's calls to a device plugin, one after the other as it makes them, each timed at the caller."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc

from config.protocol import names
from deviceplugin.cdi.mode import Mode
from e2e.bench.plugin.pods import (
    BoundPod,
    Checkpoint,
    main_container,
    wrong_by_cdi,
    wrong_by_environment,
)
from tests.support.node.kubelet_double import KubeletDouble

T = TypeVar("T")


@dataclass(slots=True)
class Calls:
    """allocate_ms, pre_start_ms: of each call, in order. wrong: a message for each container without its card."""

    allocate_ms: list[float] = field(default_factory=list)
    pre_start_ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Caller:
    """A kubelet that knows the pods. cdi: where the plugin writes its documents."""

    kubelet: KubeletDouble
    checkpoint: Checkpoint
    pods: Sequence[BoundPod]
    mode: Mode
    cdi: Path

    def everything_recorded(self) -> None:
        """All pods have been admitted and hold their devices."""
        self.checkpoint.write()
        self._admit(self.pods)

    async def start_each(self, waiting: int) -> Calls:
        """Allocate and start each pod's container in turn, while all others run.

        waiting: pods that are bound and have no devices yet, the one that is allocated included; >= 1. The kubelet does
        not know the others yet, since it admits one after the other.
        """
        found = Calls()
        for number, pod in enumerate(self.pods):
            later = self.pods[number + 1 : number + waiting]
            self._forget([pod, *later])
            try:
                await self._start(pod, later, found)
            except grpc.aio.AioRpcError as error:
                found.wrong.append(f"{pod.name}: {error.details()}")
        self.everything_recorded()
        return found

    async def _start(self, pod: BoundPod, later: Sequence[BoundPod], found: Calls) -> None:
        answer = await _timed(self.kubelet.allocate(list(pod.ids)), found.allocate_ms)
        self.checkpoint.record(pod, answer)
        self.checkpoint.write(without=later)
        self._admit([pod])
        await _timed(self.kubelet.pre_start(list(pod.ids)), found.pre_start_ms)
        wrong = wrong_by_cdi(pod, self.cdi) if self.mode == "cdi" else wrong_by_environment(pod, answer)
        if wrong:
            found.wrong.append(wrong)

    def _forget(self, pods: Sequence[BoundPod]) -> None:
        """The first of them has been admitted at this moment; the kubelet has not got to the others."""
        self.checkpoint.write(without=pods)
        for pod in pods:
            self.kubelet.pods.pop((pod.namespace, pod.name), None)
        self.kubelet.pods[pods[0].namespace, pods[0].name] = {main_container(): {names.GPU_MEM: []}}

    def _admit(self, pods: Sequence[BoundPod]) -> None:
        for pod in pods:
            self.kubelet.pods[pod.namespace, pod.name] = {main_container(): {names.GPU_MEM: list(pod.ids)}}


async def _timed(call: Awaitable[T], into_ms: list[float]) -> T:
    # Nothing of the caller's own is left to do when the clock starts.
    await asyncio.sleep(0)
    began_s = time.perf_counter()
    answer = await call
    into_ms.append((time.perf_counter() - began_s) * 1000)
    return answer
