"""Two replicas and every fault at once, on real servers, from one seed: the witness sees nothing that must not be.

`NIGHTLY_SEED` repeats a run as far as processes can be repeated; `FIRE_SECONDS` says how long the nightly one lasts.
"""

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.fire import mishaps, reading, server_faults, site
from e2e.fire.beside import beside
from e2e.fire.mishaps import Dealt
from e2e.fire.neighbours import Others
from e2e.fire.proxy import WatchTrouble
from e2e.fire.site import AT_ONCE, Replica, Site, tolerant

Pause: TypeAlias = tuple[float, float]
"""Seconds between two of a kind: at least, at most."""

_KUBE_SCHEDULER: Final = {"clientConnection": {"qps": 5000, "burst": 5000}}
# A pod that a policy has refused again and again is tried again after 5 minutes.
_SETTLES_S: Final = 400.0


_COUNTED: Final = (
    "SIGKILL of replica",
    "SIGKILL of etcd",
    "SIGTERM",
    "SIGSTOP",
    "silence",
    "no connection",
    "API server is killed",
    "the Lease is",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """lasts_s: then no more is done. api_servers: 1, or 2 of which each request goes to either.

    wave: pods that come at a time; as many of those that are there go before.
    kills, freezes, cuts: of replicas, of the leader more often than of the other.
    chance: of a mishap to a request. policy: whether one refuses a third of the decisions.
    """

    lasts_s: float
    api_servers: int
    nodes: int
    wave: int
    chance: float
    policy: bool
    waves: Pause
    kills: Pause
    freezes: Pause
    cuts: Pause
    lease: Pause
    apiserver: Pause
    etcd: Pause
    replaced_pods: Pause
    replaced_nodes: Pause


SHORT: Final = Plan(
    lasts_s=8.0,
    api_servers=1,
    nodes=6,
    wave=50,
    chance=0.1,
    policy=False,
    waves=(1.0, 3.0),
    kills=(2.0, 4.0),
    freezes=(3.0, 6.0),
    cuts=(2.0, 4.0),
    lease=(2.0, 4.0),
    apiserver=(5.0, 7.0),
    etcd=(3.0, 5.0),
    replaced_pods=(0.05, 0.2),
    replaced_nodes=(0.3, 1.0),
)
LONG: Final = Plan(
    lasts_s=float(os.environ.get("FIRE_SECONDS", "600")),
    api_servers=2,
    nodes=24,
    wave=200,
    chance=0.05,
    policy=True,
    waves=(5.0, 15.0),
    kills=(8.0, 20.0),
    freezes=(10.0, 30.0),
    cuts=(8.0, 30.0),
    lease=(10.0, 30.0),
    apiserver=(20.0, 40.0),
    etcd=(30.0, 60.0),
    replaced_pods=(0.02, 0.2),
    replaced_nodes=(1.0, 4.0),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    with ControlPlane() as started:
        yield started


@pytest.mark.parametrize(
    "plan", [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.nightly)]
)
async def test_all_of_it_at_once(
    cluster: ControlPlane, admin: Admin, namespace: str, tmp_path: Path, plan: Plan
) -> None:
    seed = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
    sys.stdout.write(f"NIGHTLY_SEED={seed}, {plan}\n")
    async with site.fire(cluster, admin, namespace, tmp_path, seed=seed, nodes=plan.nodes, replicas=2) as under_fire:
        dealt = Dealt(under_fire.rng("mishaps"), mishaps.ALL, plan.chance)
        several = server_faults.two_api_servers(under_fire) if plan.api_servers > 1 else nullcontext()
        async with _beside_kube_scheduler(cluster), several:
            async with _requests_suffer(under_fire, dealt, policy=plan.policy):
                await _all_at_once(under_fire, plan)
            wrong = await under_fire.settled(_SETTLES_S)
        sys.stdout.write("\n".join([str(under_fire), f"mishaps: {dict(dealt.counted)}", *_counted(under_fire), ""]))

    assert wrong == [], "\n".join(wrong)
    # Otherwise nothing was shown of hand-overs.
    assert len(under_fire.witness.terms.leaders(under_fire.sent)) > 1


@pytest.mark.nightly
async def test_ten_kills_while_2000_pods_wait(
    cluster: ControlPlane, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
    async with site.fire(cluster, admin, namespace, tmp_path, seed=seed, nodes=140) as under_fire:
        rng = under_fire.rng("kills")
        await under_fire.create(2000)
        for bound in sorted(rng.sample(range(1500), 10)):
            await under_fire.bound(bound)
            await server_faults.kill_scheduler(under_fire, rng.uniform(0.0, 1.0))
        wrong = await under_fire.settled(_SETTLES_S)

    assert wrong == [], "\n".join(wrong)
    sys.stdout.write(f"ten kills: {under_fire}\n")


@asynccontextmanager
async def _requests_suffer(under_fire: Site, dealt: Dealt, *, policy: bool) -> AsyncIterator[None]:
    rng = under_fire.rng("watches")
    for one in under_fire.replicas:
        one.proxy.choose = dealt
        one.proxy.watches = WatchTrouble(
            lag_s=lambda: rng.uniform(0.0, 1.0),
            lasts_s=lambda: rng.uniform(1.0, 20.0),
            expired=lambda: rng.random() < 0.2,
        )
    async with server_faults.refusing(under_fire.admin, under_fire.pods_path) if policy else nullcontext():
        yield
    under_fire.spare()


@asynccontextmanager
async def _beside_kube_scheduler(cluster: ControlPlane) -> AsyncIterator[None]:
    started = await beside(partial(cluster.start_scheduler, _KUBE_SCHEDULER))
    try:
        yield
    finally:
        await beside(started.stop)


async def _all_at_once(under_fire: Site, plan: Plan) -> None:
    others, enough = Others(under_fire, under_fire.rng("others")), asyncio.Event()
    rng = under_fire.rng("pauses")
    away = under_fire.rng("away")
    one_of = partial(_one_of, under_fire)
    faults = (
        (plan.kills, partial(_kill, under_fire, away)),
        (plan.freezes, lambda: server_faults.freeze_scheduler(under_fire, away.uniform(0.2, 8.0), one_of(away))),
        (plan.cuts, partial(_cut, under_fire, away)),
        (plan.lease, others.meddle_with_lease),
        (plan.apiserver, partial(_kill_apiserver, under_fire, away, plan.api_servers)),
        (plan.etcd, lambda: server_faults.kill_etcd(under_fire, away.uniform(0.0, 2.0))),
        (plan.replaced_pods, others.replace_pod),
        (plan.replaced_nodes, others.replace_node),
        (plan.waves, partial(_wave, under_fire, others, plan.wave)),
    )
    await under_fire.create(2 * plan.wave, "first")
    await under_fire.bound(1)
    async with asyncio.TaskGroup() as tasks:
        for pause, once in faults:
            tasks.create_task(site.again(random.Random(rng.random()), pause, once, enough))  # noqa: S311 - of one seed
        await asyncio.sleep(plan.lasts_s)
        enough.set()
    # However few the faults were: one more leader after the first.
    await _wave(under_fire, others, plan.wave)
    if (leader := under_fire.leader) is not None:
        await server_faults.kill_scheduler(under_fire, away.uniform(0.0, 1.0), leader)


def _one_of(under_fire: Site, rng: random.Random) -> Replica:
    """The leader two times of three."""
    number, any_of_them = rng.random(), rng.choice(under_fire.replicas)
    return (under_fire.leader or any_of_them) if number < 1 / 3 else any_of_them


async def _kill(under_fire: Site, rng: random.Random) -> None:
    kill = rng.random() < 3 / 4
    await server_faults.kill_scheduler(under_fire, rng.uniform(0.0, 1.0), _one_of(under_fire, rng), kill=kill)


async def _kill_apiserver(under_fire: Site, rng: random.Random, there_are: int) -> None:
    which = rng.randrange(there_are)
    await server_faults.stop_apiserver(under_fire, rng.uniform(0.0, 3.0), kill=True, which=which)


async def _cut(under_fire: Site, rng: random.Random) -> None:
    silent = rng.random() < 1 / 2
    await server_faults.cut_off(under_fire, rng.uniform(0.5, 8.0), _one_of(under_fire, rng), silent=silent)


async def _wave(under_fire: Site, others: Others, pods: int) -> None:
    """As many go as come, so that there is always more than fits, and always something that gives way."""
    there = [one.pod for one in under_fire.witness.pods.values() if one.node and not one.gone]
    going = others.rng.sample(there, min(len(there), pods))
    number = under_fire.witness.revision
    under_fire.say(f"{len(going)} pods go, {pods} come")
    for name in [pod["metadata"]["name"] for pod in going]:
        await tolerant(under_fire.admin.delete(f"{under_fire.pods_path}/{name}", AT_ONCE))
    await tolerant(under_fire.create(pods, f"wave-{number}"))
    await others.cpu_pods(5, f"cpu-{number}")


def _counted(under_fire: Site) -> list[str]:
    """How often each fault of a process was done, and whose pods were bound."""
    done = [line.partition(": ")[2] for line in under_fire.said]
    whose = [reading.is_ours(one.pod) for one in under_fire.witness.pods.values() if one.node]
    counts = Counter(what for line in done for what in _COUNTED if what in line)
    lost = sum(len(one.ended) for one in under_fire.replicas)
    counts |= Counter(
        {f"{what}, the leader": sum(what in line and "the leader" in line for line in done) for what in _COUNTED}
    )
    return [
        f"{dict(+counts)}, {len(done)} in all, {lost} ends for the Lease",
        f"bound by us {sum(whose)}, by kube-scheduler {len(whose) - sum(whose)}",
    ]
