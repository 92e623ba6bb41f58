"""Each fault by itself, on real servers: the witness sees every change, and nothing that must not be.

One scheduler and one witness for all of it. `FIRE_SEED` repeats a run. All of it at once: `test_fire_at_once.py`.
"""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest
import pytest_asyncio

from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.fire import mishaps, server_faults, site
from e2e.fire.mishaps import Dealt
from e2e.fire.neighbours import Others
from e2e.fire.proxy import WatchTrouble
from e2e.fire.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="module")

# They have 384 units; 100 pods ask for 500, so that some wait in the end.
NODES: Final = 6
PODS: Final = 100
_SETTLES_S: Final = 45.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    with ControlPlane(readable_store=True) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_along(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    seed = int(os.environ.get("FIRE_SEED", random.SystemRandom().randrange(2**32)))
    folder = tmp_path_factory.mktemp("scheduler")
    async with (
        Admin(cluster.access()) as admin,
        site.fire(cluster, admin, "default", folder, seed=seed, nodes=NODES) as made,
    ):
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def under_fire(all_along: Site) -> AsyncIterator[Site]:
    yield all_along
    await all_along.clear()


async def settles(under_fire: Site, what: str) -> None:
    wrong = await under_fire.settled(_SETTLES_S)
    assert wrong == [], "\n".join(wrong)
    sys.stdout.write(f"{what}: {under_fire}\n")


@pytest.mark.parametrize("kind", mishaps.ALL)
async def test_what_happens_to_one_request_costs_no_pod_and_no_card(under_fire: Site, kind: str) -> None:
    dealt = Dealt(under_fire.rng(kind), {kind: mishaps.ALL[kind]}, chance=1 / 4)
    under_fire.proxy.choose = dealt
    await under_fire.create(PODS, kind.replace("_", "-"))

    await settles(under_fire, f"{kind}: {dealt.counted[kind]} times")
    assert dealt.counted[kind]


async def test_a_watch_that_lags(under_fire: Site) -> None:
    rng = under_fire.rng("lag")
    under_fire.proxy.watches = WatchTrouble(lag_s=lambda: rng.uniform(0.5, 2.0), lasts_s=lambda: rng.uniform(1.0, 4.0))
    await server_faults.kill_scheduler(under_fire, 0.0)
    await under_fire.create(PODS, "lag")

    await settles(under_fire, "watches lag by 0.5 to 2 s and are cut after 1 to 4 s")


async def test_versions_that_are_too_old(under_fire: Site) -> None:
    rng = under_fire.rng("expired")
    under_fire.proxy.watches = WatchTrouble(lasts_s=lambda: rng.uniform(0.2, 1.0), expired=lambda: rng.random() < 1 / 2)
    await server_faults.kill_scheduler(under_fire, 0.0)
    await under_fire.create(PODS, "expired")

    await settles(under_fire, "watches are cut after 0.2 to 1 s, and half of the next ones get 410")


async def test_a_scheduler_that_is_killed_again_and_again(under_fire: Site) -> None:
    rng = under_fire.rng("kill")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(under_fire.create(PODS, "kill"))
        for _ in range(3):
            await asyncio.sleep(rng.uniform(0.05, 0.5))
            await server_faults.kill_scheduler(under_fire, rng.uniform(0.0, 0.5))
            await under_fire.scheduler.ready()

    await settles(under_fire, "three times SIGKILL")


@pytest.mark.parametrize("kill", [True, False])
async def test_an_api_server_that_is_away(under_fire: Site, *, kill: bool) -> None:
    name = "killed" if kill else "stopped"
    async with asyncio.TaskGroup() as tasks:
        await under_fire.create(PODS // 2, name)
        tasks.create_task(server_faults.stop_apiserver(under_fire, 1.0, kill=kill))
    await under_fire.create(PODS // 2, f"{name}-after")

    await settles(under_fire, f"the API server is {name} and away for a second and its start")


async def test_a_store_that_is_killed(under_fire: Site) -> None:
    await under_fire.create(PODS // 2, "etcd")
    await server_faults.kill_etcd(under_fire, 1.0)
    await under_fire.create(PODS // 2, "etcd-after")

    await settles(under_fire, "etcd is killed and away for a second and its start")


async def test_a_policy_that_refuses_a_third(under_fire: Site) -> None:
    async with server_faults.refusing(under_fire.admin, under_fire.pods_path):
        await under_fire.create(PODS, "refused")
        await settles(under_fire, "a policy refuses a third of the decisions")
    refused = [
        line for line in under_fire.scheduler.lines("bind.refused") if server_faults.REFUSED_BY in line["reason"]
    ]
    assert refused
    sys.stdout.write(f"{len(refused)} refused\n")


async def test_others_who_replace_pods_and_nodes(under_fire: Site) -> None:
    others, rng = Others(under_fire, under_fire.rng("others")), under_fire.rng("pauses")
    enough = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(site.again(rng, (0.0, 0.05), others.replace_pod, enough))
        tasks.create_task(site.again(rng, (0.1, 0.4), others.replace_node, enough))
        await under_fire.create(PODS, "others")
        await asyncio.sleep(4.0)
        enough.set()

    await settles(under_fire, "pods and nodes are deleted, and others of their names come")
