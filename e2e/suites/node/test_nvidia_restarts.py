"""Hundreds of containers on nodes with NVIDIA cards whose programs end, and which reboot, at random.

`NIGHTLY_SEED` repeats the choices of a run; `NVIDIA_CONTAINERS` says how many containers start in it at least.
"""

import itertools
import os
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import pytest

from e2e.control_plane.admin import Json
from e2e.node.node_pods import PODS
from e2e.support.nvidia_site import DRIVERS, UNITS, WAYS, NvidiaNode, NvidiaSite, misled

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("node_ready")]

_CONTAINERS: Final = int(os.environ.get("NVIDIA_CONTAINERS", "500"))
_OF_A_NODE: Final = 60
_ROUNDS: Final = 40
_CARDS: Final = (1, 2, 8, 16)
_SMALLEST, _LARGEST = 1, UNITS // 8
_PODS_AT_ONCE: Final = 4


async def stop_plugin(on: NvidiaNode) -> None:
    on.plugin.stop()
    on.plugin.start()


async def kill_plugin(on: NvidiaNode) -> None:
    on.plugin.kill()
    on.plugin.start()
    await on.plugin.ready()
    # After a second kill in a row it would take no new pods for minutes.
    await stop_plugin(on)


async def stop_kubelet(on: NvidiaNode) -> None:
    on.node.stop_kubelet()
    on.node.start_kubelet()


async def kill_kubelet(on: NvidiaNode) -> None:
    on.node.kill_kubelet()
    on.node.start_kubelet()


async def stop_containerd(on: NvidiaNode) -> None:
    on.node.stop_containerd()
    on.node.start_containerd()


async def kill_containerd(on: NvidiaNode) -> None:
    on.node.kill_containerd()
    on.node.start_containerd()


async def end_containers(on: NvidiaNode) -> None:
    for container in on.node.running():
        with suppress(ProcessLookupError):
            os.kill(container.pid, signal.SIGKILL)


async def reboot(on: NvidiaNode) -> None:
    await on.reboot()


_MISHAPS: Final = (
    stop_plugin,
    kill_plugin,
    stop_kubelet,
    kill_kubelet,
    stop_containerd,
    kill_containerd,
    end_containers,
    reboot,
)


class Tally:
    """Containers of one node. lives: pod and log of each that has asked CUDA. wrong: bad answers. failed: pods."""

    def __init__(self) -> None:
        self.lives: set[tuple[str, str]] = set()
        self.wrong: list[str] = []
        self.failed = 0

    def look(self, on: NvidiaNode, pods: Sequence[Json]) -> None:
        """Judge the containers of these pods that have not been looked at."""
        for pod in pods:
            for log, written in on.every_life(pod).items():
                if (life := (pod["metadata"]["name"], log)) not in self.lives:
                    self.lives.add(life)
                    self.wrong += misled(pod, written)


def some_pods(on: NvidiaNode, chance: random.Random, round_: int) -> list[Json]:
    """A few pods that fit: at most a quarter of the cards' units in all with those of the round before."""
    made = []
    for number in range(chance.randint(1, _PODS_AT_ONCE)):
        cards = 2 if on.hardware.cards > 1 and chance.random() < 1 / 4 else 1
        units = chance.randint(_SMALLEST, _LARGEST // cards) * cards
        made.append(on.pod(f"round-{round_}-{number}", units, cards=cards))
    return made


async def play(on: NvidiaNode, chance: random.Random, tally: Tally) -> None:
    """Rounds until enough containers have started: new pods, a mishap before or after they run, and half of all go."""
    there: list[str] = []
    for round_ in range(_ROUNDS):
        new = some_pods(on, chance, round_)
        for pod in new:
            await on.admin.create(PODS, pod)
        there += [pod["metadata"]["name"] for pod in new]
        if chance.random() < 1 / 2:
            tally.look(on, await on.settled(there))
        mishap = chance.choice(_MISHAPS)
        sys.stdout.write(f"  {round_}: {len(new)} pods, {mishap.__name__}\n")
        await mishap(on)
        await on.plugin.ready()
        found = await on.settled(there)
        tally.look(on, found)
        failed = [pod["metadata"]["name"] for pod in found if pod["status"]["phase"] == "Failed"]
        tally.failed += len(failed)
        going = {*failed, *chance.sample(there, len(there) // 2)}
        for name in going:
            await on.admin.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        there = [name for name in there if name not in going]
        if len(tally.lives) >= _OF_A_NODE:
            break
    # A container in which CUDA hangs has written nothing to judge.
    for pod in await on.settled(there):
        tally.wrong += on.wrong(pod) if pod["status"]["phase"] == "Running" else []


async def test_no_container_finds_another_card_or_none_whatever_ends_meanwhile(nvidia: NvidiaSite) -> None:
    seed = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
    sys.stdout.write(f"NIGHTLY_SEED={seed}\n")
    chance, started, failed = random.Random(seed), 0, 0  # noqa: S311 - which mishap comes next
    wrong: list[str] = []
    ways = itertools.cycle(chance.sample([*WAYS], len(WAYS)))
    while started < _CONTAINERS:
        way, driver, cards = next(ways), chance.choice([*DRIVERS]), chance.choice(_CARDS)
        tally = Tally()
        sys.stdout.write(f"{way}, driver {driver}, {cards} cards\n")
        async with nvidia.node(way, driver, cards) as on:
            await play(on, chance, tally)
        started, failed = started + len(tally.lives), failed + tally.failed
        wrong += tally.wrong
        sys.stdout.write(f"{started} containers, {failed} pods failed, {len(wrong)} wrong\n")
    assert wrong == []
