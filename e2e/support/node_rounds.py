"""Rounds on a node with NVIDIA cards: new pods, a mishap before or after they run, and half of all pods go."""

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from e2e.control_plane.admin import Json
from e2e.node.containers import NoSuchContainer
from e2e.node.node_pods import PODS
from e2e.support.node_mishaps import MISHAPS, Mishap
from e2e.support.nvidia_site import NvidiaNode

_ROUNDS: Final = 40


@dataclass
class Rounds:
    """Rounds on one node.

    new: pods of the round with that number. judge: wrong answers in the output of one life of a pod's container.
    running: what is wrong with a pod that runs. lives: pod and log of each container that has asked CUDA. wrong: all
    that was. failed: number of failed pods.
    """

    on: NvidiaNode
    chance: random.Random
    new: Callable[[NvidiaNode, random.Random, int], list[Json]]
    judge: Callable[[Json, str], list[str]]
    running: Callable[[NvidiaNode, Json], list[str]]
    mishaps: Sequence[Mishap] = MISHAPS
    lives: set[tuple[str, str]] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    failed: int = 0

    async def play(self, containers: int) -> None:
        """Play until that many containers have started."""
        there: list[str] = []
        for number in range(_ROUNDS):
            there = await self._round(number, there)
            if len(self.lives) >= containers:
                break
        # A container in which CUDA hangs has written nothing to judge.
        for pod in await self.on.settled(there):
            self.wrong += await self._running(pod)

    async def _running(self, pod: Json) -> list[str]:
        """Judge a pod that runs. A container that a mishap ends only now has another life, which is judged instead."""
        while pod["status"]["phase"] == "Running":
            try:
                return self.running(self.on, pod)
            except NoSuchContainer:
                (pod,) = await self.on.settled_anew([pod])
        return []

    async def _round(self, number: int, there: list[str]) -> list[str]:
        """Play one round. Return the names of the pods that stay; there: those of the rounds before."""
        on = self.on
        new = self.new(on, self.chance, number)
        for pod in new:
            await on.admin.create(PODS, pod)
        there = [*there, *(pod["metadata"]["name"] for pod in new)]
        if self.chance.random() < 1 / 2:
            self._look(await on.settled(there))
        mishap = self.chance.choice(self.mishaps)
        sys.stdout.write(f"  {on.node.name} {number}: {len(new)} pods, {mishap.__name__}\n")
        await mishap(on)
        await on.plugin.ready()
        found = await on.settled(there)
        self._look(found)
        failed = [pod["metadata"]["name"] for pod in found if pod["status"]["phase"] == "Failed"]
        self.failed += len(failed)
        going = {*failed, *self.chance.sample(there, len(there) // 2)}
        for name in going:
            await on.admin.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        return [name for name in there if name not in going]

    def _look(self, pods: Sequence[Json]) -> None:
        """Judge the containers of these pods that have not been looked at."""
        for pod in pods:
            for log, written in self.on.every_life(pod).items():
                if (life := (pod["metadata"]["name"], log)) not in self.lives:
                    self.lives.add(life)
                    self.wrong += self.judge(pod, written)
