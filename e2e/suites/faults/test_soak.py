"""Pods, nodes and namespaces come and go for a long time: two replicas stay as small and as fast as they were.

`SOAK_MINUTES` says how long the nightly one lasts, `NIGHTLY_SEED` repeats what comes and goes.
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.programs import manifests
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.soak import judged, measured
from e2e.soak.judged import Limits
from e2e.soak.load import Load, load
from e2e.soak.measured import Sample
from scheduler.kube.rest.bare_connections import KEEP_ALIVE_S

_TOKEN_LASTS_S: Final = 86_400
# More than twice as long as a connection is kept: aiohttp looks for idle ones once in that time.
_SETTLED_WITHIN_S: Final = 2 * KEEP_ALIVE_S + 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """run_s: how long pods come. per_s: of pods. lasts_s: how long one runs, at least and at most."""

    run_s: float
    per_s: float
    lasts_s: tuple[float, float]
    sample_every_s: float
    limits: Limits


PLAN: Final = Plan(60.0 * float(os.environ.get("SOAK_MINUTES", "45")), 20.0, (2.0, 20.0), 5.0, Limits(growth=0.05))


@dataclass(slots=True)
class Watched:
    """Replicas and what they take. samples: by name of the replica; written to `file` at the end of each window."""

    replicas: dict[str, SchedulerProcess]
    of: Load
    server_port: int
    file: Path
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)

    async def sample(self) -> dict[str, Sample]:
        """Of all of them, now."""
        at_s = time.monotonic() - self.began_s
        return {name: await measured.sample(one, at_s, self.server_port) for name, one in self.replicas.items()}

    async def follow(self, plan: Plan) -> None:
        """Take samples until cancelled, and print a line in each window."""
        shown = 0
        while True:
            for name, one in (await self.sample()).items():
                self.samples.setdefault(name, []).append(one)
            now = judged.window(time.monotonic() - self.began_s, plan.run_s)
            if now > shown:
                self.show(plan, shown)
                shown = now
            await asyncio.sleep(plan.sample_every_s)

    def show(self, plan: Plan, number: int) -> None:
        """What there is at the end of a window."""
        p50, p99 = judged.quantiles(self.of.lives.timed, plan.run_s)[number]
        self.write()
        lines = [f"  {name}: {samples[-1]}" for name, samples in self.samples.items()]
        cpu = sum(samples[-1].cpu_s for samples in self.samples.values())
        head = (
            f"{time.monotonic() - self.began_s:6.0f} s: {self.of.lives.created} pods, {self.of.seen.bound} bound, "
            f"{len(self.of.seen.pods)} there; p50 {1000 * p50:.1f} ms, p99 {1000 * p99:.1f} ms; CPU {cpu:.1f} s"
        )
        sys.stdout.write("\n".join([head, *lines, ""]))
        sys.stdout.flush()

    def write(self) -> None:
        """All samples so far."""
        lines = [line for name, samples in self.samples.items() for line in measured.written(name, samples)]
        self.file.write_text("\n".join([*lines, ""]), encoding="utf-8")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    with ControlPlane() as started:
        yield started


@pytest.mark.nightly
async def test_two_replicas_stay_as_small_and_as_fast_as_they_were(
    cluster: ControlPlane, admin: Admin, tmp_path: Path
) -> None:
    plan = PLAN
    seed = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
    sys.stdout.write(f"NIGHTLY_SEED={seed}, {plan}, {tmp_path}\n")
    async with (
        load(admin, seed, per_s=plan.per_s, lasts_s=plan.lasts_s) as made,
        _watched(cluster, admin, tmp_path, made) as watched,
    ):
        before = await watched.sample()
        await made.begin()
        await _run(watched, plan)
        await made.end()
        after = await _settled(watched, before)
        wrong = _wrong(watched, plan, before, after)

    _tell(watched, plan, before, after)
    assert wrong == [], "\n".join(wrong)


@asynccontextmanager
async def _watched(cluster: ControlPlane, admin: Admin, folder: Path, made: Load) -> AsyncIterator[Watched]:
    """Leader and standby, with the rights of deploy/manifests."""
    await manifests.apply(admin, *manifests.documents("rbac.yaml", "flow-schema.yaml"))
    token = await manifests.token(admin, lasts_s=_TOKEN_LASTS_S)
    kubeconfig = cluster.kubeconfig_for(token, "soak")
    port = urlsplit(cluster.url).port
    assert port is not None
    with_replicas = Watched({}, made, port, folder / "soak.csv")
    async with AsyncExitStack() as stack:
        for name in ("leader", "standby"):
            (folder / name).mkdir()
            one = stack.enter_context(SchedulerProcess(kubeconfig, folder / name, {}))
            with_replicas.replicas[name] = one
            await one.said("leader.schedules" if name == "leader" else "leader.standby", within_s=60.0)
            await one.ready()
        yield with_replicas


async def _run(watched: Watched, plan: Plan) -> None:
    watched.began_s = watched.of.lives.began_s = time.monotonic()
    following = asyncio.create_task(watched.follow(plan))
    try:
        await watched.of.run(plan.run_s)
        watched.write()
    finally:
        following.cancel()
        await asyncio.wait([following])
    if not following.cancelled():
        following.result()


async def _settled(watched: Watched, before: dict[str, Sample]) -> dict[str, Sample]:
    """Take samples until nothing is left over, or it takes too long."""
    until_s = time.monotonic() + _SETTLED_WITHIN_S
    while True:
        await asyncio.sleep(1.0)
        after = await watched.sample()
        if not _left_over(before, after) or time.monotonic() > until_s:
            return after


def _left_over(before: dict[str, Sample], after: dict[str, Sample]) -> list[str]:
    return [line for name, one in after.items() for line in judged.left_over(name, before[name], one)]


def _wrong(watched: Watched, plan: Plan, before: dict[str, Sample], after: dict[str, Sample]) -> list[str]:
    found = [*watched.of.lives.late[:20], *_left_over(before, after)]
    for name, samples in watched.samples.items():
        # After the last pod came, they only go.
        found += judged.wrong(name, [one for one in samples if one.at_s < plan.run_s], plan.run_s, plan.limits)
        audits = watched.replicas[name].lines("ledger.audited")
        found += [str(audit) for audit in audits if audit["differences"] or audit["overcommitted"]]
    return [*found, *judged.slower(watched.of.lives.timed, plan.run_s, plan.limits)]


def _tell(watched: Watched, plan: Plan, before: dict[str, Sample], after: dict[str, Sample]) -> None:
    lives = watched.of.lives
    in_ms = [f"{1000 * p50:.1f}/{1000 * p99:.1f}" for p50, p99 in judged.quantiles(lives.timed, plan.run_s)]
    lines = [
        f"{lives.created} pods, {watched.of.seen.bound} bound: {lives.counted}",
        f"p50/p99 of each ninth, ms: {' '.join(in_ms)}",
    ]
    for name, samples in watched.samples.items():
        cpu = (samples[-1].cpu_s - samples[0].cpu_s) / (samples[-1].at_s - samples[0].at_s)
        lines += [
            f"{name}: {100 * judged.growth(samples, plan.run_s):+.1f} % resident memory, {100 * cpu:.1f} % of one core",
            f"  before {before[name]}",
            f"  after  {after[name]}",
        ]
    sys.stdout.write("\n".join([*lines, ""]))
