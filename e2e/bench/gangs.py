"""Gangs on a real kube-apiserver: whether they are ever placed in part, and what they cost other pods.

    python -m e2e.bench.gangs                                   into docs/evidence/benchmarks.md
    python -m e2e.bench.gangs --rounds 5 --kills 5 --turns 1    sizes of your own, printed only

Two gangs that each need 60 % of the cards, created in turns; a scheduler that is killed between the Bindings of a gang;
and single pods beside a gang that never fits.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import uvloop

from config.protocol import names
from e2e.bench import figures
from e2e.bench.observer import PODS, Observer, observing
from e2e.bench.workload import NAMESPACE
from e2e.control_plane import binaries
from e2e.control_plane.admin import Admin, done
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import NODES, gpu_node, gpu_pod

_ROUNDS: Final = 100
_KILLS: Final = 50
_TURNS: Final = 3
_UNITS: Final = 16
_CARDS: Final = 10
_OF_RIVALS: Final = 6
_OF_KILLED: Final = 16
_OF_NEVER: Final = 64
_COMPLETE_WITHIN_S: Final = 2.0
_SINGLES: Final = 500
_PER_SECOND: Final = 50
_LIVES_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.002
# A healthy watch is faster.
_SEEN_AFTER_S: Final = 0.2
_SOON_S: Final = 60.0
_AT_ONCE: Final = {"gracePeriodSeconds": 0}
_TITLE: Final = "Gangs"
_EXPLANATION: Final = """\
Two gangs are created pod by pod in turns; each needs 6 of 10 cards. A scheduler is killed with SIGKILL after a random
number of the 16 Bindings of a gang were seen, and started again. {singles} single pods arrive at {per_second} a second,
and each is deleted after a second: alone, while a gang of 64 pods comes that finds 40 cards, and while that gang waits.
Medians of the p99, in turns. All as a third process sees it.
"""
T = TypeVar("T")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.gangs", description="Measure gangs.")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="of two gangs (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=_KILLS, help="(default: %(default)s)")
    parser.add_argument("--turns", type=int, default=_TURNS, help="of single pods (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    binaries.ensure(["etcd", "kube-apiserver"])
    found = _on_cluster(lambda site: site.rivals(chosen.rounds))
    killed, lost = _on_cluster(lambda site: site.kills(chosen.kills))
    alone_ms, comes_ms, waits_ms = _on_cluster(lambda site: site.singles(chosen.turns))
    in_part = sum(each is None for each in found)
    complete_s = [each for each in found if each is not None]
    rows = [
        (f"{chosen.rounds} pairs: both in part at a time", str(in_part), figures.at_most(in_part, 0)),
        (
            "complete after the last pod was created: longest, s",
            f"{max(complete_s):.2f}",
            figures.at_most(max(complete_s), _COMPLETE_WITHIN_S),
        ),
        (
            f"{chosen.kills} kills, {killed} within a gang: gangs that stayed in part",
            str(lost),
            figures.at_most(lost, 0),
        ),
        ("single pods: p99 alone, ms", f"{alone_ms:.0f}", ""),
        ("while a gang comes that does not fit, ms", f"{comes_ms:.0f}", ""),
        ("while it waits, ms", f"{waits_ms:.0f}", figures.at_most(waits_ms / alone_ms, 1.2, " times")),
    ]
    written = (chosen.rounds, chosen.kills, chosen.turns) == (_ROUNDS, _KILLS, _TURNS)
    figures.report(
        "gangs", _TITLE, _EXPLANATION.format(singles=_SINGLES, per_second=_PER_SECOND), rows, written=written
    )
    return 0


def _on_cluster(measure: "Callable[[_Site], Awaitable[T]]") -> T:
    with ControlPlane() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        # Not entered: that would show its log at the end.
        scheduler = SchedulerProcess(cluster.kubeconfig_path(), cluster.folder)
        scheduler.start()
        try:
            return runner.run(_measured(cluster, scheduler, measure))
        finally:
            scheduler.stop()


async def _measured(
    cluster: ControlPlane, scheduler: SchedulerProcess, measure: "Callable[[_Site], Awaitable[T]]"
) -> T:
    async with Admin(cluster.access()) as admin:
        await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        async with observing(admin, 0) as observer:
            return await measure(_Site(admin, scheduler, observer))


class _Site:
    """One cluster with our scheduler."""

    def __init__(self, admin: Admin, scheduler: SchedulerProcess, observer: Observer) -> None:
        self._admin = admin
        self._scheduler = scheduler
        self._observer = observer

    async def rivals(self, rounds: int) -> list[float | None]:
        """Return for each pair how long one took to be complete; None if both were in part at any time."""
        await self._nodes(2, _CARDS // 2)
        found = []
        for number in range(rounds):
            gangs = [[f"{gang}{number}-{each}" for each in range(_OF_RIVALS)] for gang in "xy"]
            for pair in zip(*gangs, strict=True):
                for name in pair:
                    await self._member(name, name.partition("-")[0], _OF_RIVALS)
            began_s = time.monotonic()
            await self._until(lambda gangs=gangs: any(map(self._is_complete, gangs)))  # type: ignore[misc]
            took_s = (
                max(self._observer.bound[name] for gang in gangs for name in gang if name in self._observer.bound)
                - began_s
            )
            other = next(gang for gang in gangs if not self._is_complete(gang))
            found.append(None if any(name in self._observer.bound for name in other) else max(took_s, 0.0))
            for gang in (other, *(gang for gang in gangs if gang is not other)):
                await self._delete(gang)
        return found

    async def kills(self, count: int) -> tuple[int, int]:
        """Return how many gangs were in part when their scheduler was killed, and how many stayed so."""
        await self._nodes(4, 8)
        rng, in_part, lost = random.Random(count), 0, 0  # noqa: S311 - repeatable
        for number in range(count):
            gang = [f"k{number}-{each}" for each in range(_OF_KILLED)]
            await asyncio.gather(*(self._member(name, f"k{number}", _OF_KILLED) for name in gang))
            wanted = rng.randint(1, _OF_KILLED - 1)
            await self._until(lambda gang=gang, wanted=wanted: self._bound(gang) >= wanted)  # type: ignore[misc]
            self._scheduler.kill()
            await asyncio.sleep(_SEEN_AFTER_S)
            in_part += not self._is_complete(gang)
            self._scheduler.start()
            await self._scheduler.ready()
            try:
                await self._until(lambda gang=gang: self._bound(gang) in {0, _OF_KILLED})  # type: ignore[misc]
            except TimeoutError:
                lost += 1
            await self._delete(gang)
        return in_part, lost

    async def singles(self, turns: int) -> list[float]:
        """Return p99 in ms of single pods alone, beside a gang that comes and does not fit, and beside it later."""
        await self._nodes(5, 8)
        found: tuple[list[float], ...] = ([], [], [])
        await self._arrive("warm", _PER_SECOND)
        for turn in range(turns):
            never = [f"never-{turn}-{each}" for each in range(_OF_NEVER)]
            found[0].append(await self._arrive(f"alone-{turn}", _SINGLES))
            await asyncio.gather(*(self._member(name, f"n{turn}", _OF_NEVER) for name in never))
            found[1].append(await self._arrive(f"comes-{turn}", _SINGLES))
            await self._until(lambda never=never: self._observer.told.issuperset(never))  # type: ignore[misc]
            found[2].append(await self._arrive(f"waits-{turn}", _SINGLES))
            await self._delete(never)
        return [statistics.median(each) for each in found]

    async def _arrive(self, prefix: str, count: int) -> float:
        created: dict[str, float] = {}
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                await asyncio.sleep(max(0.0, began_s + number / _PER_SECOND - time.monotonic()))
                tasks.create_task(self._single(f"{prefix}-{number}", created))
        waits_ms = [(self._observer.bound[name] - at_s) * 1e3 for name, at_s in created.items()]
        return statistics.quantiles(waits_ms, n=100)[-1]

    async def _single(self, name: str, created: dict[str, float]) -> None:
        created[name] = time.monotonic()
        await self._admin.create(PODS, gpu_pod(name, 1))
        await self._until(lambda: name in self._observer.bound)
        await asyncio.sleep(_LIVES_S)
        done(await self._admin.delete(f"{PODS}/{name}", _AT_ONCE))

    async def _nodes(self, count: int, cards: int) -> None:
        for number in range(count):
            await self._admin.create(NODES, gpu_node(f"n{number}", [_UNITS] * cards))
        await self._scheduler.ready()

    async def _member(self, name: str, gang: str, minimum: int) -> None:
        annotations = {names.GANG: gang, names.GANG_MIN: str(minimum)}
        await self._admin.create(PODS, gpu_pod(name, _UNITS, annotations=annotations))

    async def _delete(self, pods: Sequence[str]) -> None:
        await asyncio.gather(*(self._admin.delete(f"{PODS}/{name}", _AT_ONCE) for name in pods))

    def _bound(self, gang: Sequence[str]) -> int:
        return sum(name in self._observer.bound for name in gang)

    def _is_complete(self, gang: Sequence[str]) -> bool:
        return self._bound(gang) == len(gang)

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Raises TimeoutError."""
        async with asyncio.timeout(_SOON_S):
            while not holds():  # the observer tells nobody
                self._scheduler.child.check_alive()
                await asyncio.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
