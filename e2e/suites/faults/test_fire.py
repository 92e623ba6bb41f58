"""Each fault by itself, on real servers: the witness sees every change, and nothing that must not be.

One scheduler and one witness for all of it. `NIGHTLY_SEED` repeats a run. All of it at once: `test_fire_at_once.py`.
"""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from config.protocol import names
from e2e.control_plane import cache
from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.cache import PackageUnavailable
from e2e.control_plane.cluster import ControlPlane
from e2e.fire import mishaps, server_faults, site, workload
from e2e.fire.mishaps import Dealt
from e2e.fire.neighbours import Others
from e2e.fire.proxy import Answer, Cut, Passing, WatchTrouble
from e2e.fire.site import Site
from e2e.support.gpu_site import gpu_pod

_PACKAGE: Final = "libfaketime"


class SteppedClock:
    """The wall clock of one program, put forward and back while it runs; its monotonic clock goes on, as in life.

    By libfaketime, preloaded: it stands between the program and the C library, so that it also holds for what OpenSSL
    and uvloop ask. The clock of the machine stays as it is. Under it `time.sleep` of Python fails, which the scheduler
    calls in the thread that renders /metrics, and nowhere else: nobody may ask for that page meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        """folder: of the file. Raises cache.PackageUnavailable."""
        self._file = folder / "clock"
        (self._library,) = cache.debian_package(_PACKAGE, cache.to_stderr).rglob("libfaketime.so.1")
        self.step(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the program has to inherit."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def forget(self, pid: int) -> None:
        """Remove what the library leaves of a program that has ended."""
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            (Path("/dev/shm") / name).unlink(missing_ok=True)  # noqa: S108 - its place

    def step(self, offset_s: int) -> None:
        """From now on it is so many seconds later, or earlier, than it is."""
        self._file.write_text(f"{offset_s:+d}\n", encoding="utf-8")


pytestmark = pytest.mark.asyncio(loop_scope="module")

# They have 384 units; 100 pods ask for 500, so that some wait in the end.
NODES: Final = 6
PODS: Final = 100
HOUR_S: Final = 3600
PRIORITIES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_SETTLES_S: Final = 45.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    with ControlPlane() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_along(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    seed = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
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


async def test_what_can_happen_to_requests_costs_no_pod_and_no_card(under_fire: Site) -> None:
    under_fire.proxy.choose = dealt = Dealt(under_fire.rng("any"), mishaps.ALL, chance=1 / 4)
    await under_fire.create(PODS, "any")

    await settles(under_fire, f"to requests: {dict(dealt.counted)}")
    assert dealt.counted.total() > len(mishaps.ALL)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", mishaps.ALL)
async def test_what_happens_to_one_request_costs_no_pod_and_no_card(under_fire: Site, kind: str) -> None:
    under_fire.proxy.choose = dealt = Dealt(under_fire.rng(kind), {kind: mishaps.ALL[kind]}, chance=1 / 4)
    await under_fire.create(PODS, kind.replace("_", "-"))

    await settles(under_fire, f"{kind}: {dealt.counted[kind]} times")
    assert dealt.counted[kind]


async def test_watches_that_lag_and_break_and_versions_that_are_too_old(under_fire: Site) -> None:
    rng = under_fire.rng("watches")
    under_fire.proxy.watches = WatchTrouble(
        lag_s=lambda: rng.uniform(0.0, 1.5),
        lasts_s=lambda: rng.uniform(0.2, 3.0),
        expired=lambda: rng.random() < 1 / 2,
    )
    await server_faults.kill_scheduler(under_fire, 0.0)
    await under_fire.create(PODS, "watches")

    await settles(under_fire, "watches lag by up to 1.5 s and are cut after 0.2 to 3 s; half of the next ones get 410")


async def test_a_scheduler_that_is_killed_again_and_again(under_fire: Site) -> None:
    rng = under_fire.rng("kill")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(under_fire.create(PODS, "kill"))
        for _ in range(3):
            await asyncio.sleep(rng.uniform(0.05, 0.5))
            await server_faults.kill_scheduler(under_fire, rng.uniform(0.0, 0.5))
            await under_fire.scheduler.ready()

    await settles(under_fire, "three times SIGKILL")


@pytest.mark.parametrize(
    ("kill", "away_s"),
    [
        pytest.param(True, 3.0, id="killed"),
        pytest.param(True, 10.0, id="killed, for long", marks=pytest.mark.nightly),
        pytest.param(False, 10.0, id="stopped, for long", marks=pytest.mark.nightly),
    ],
)
async def test_an_api_server_that_is_away(under_fire: Site, *, kill: bool, away_s: float) -> None:
    name = f"{'killed' if kill else 'stopped'}-{away_s:.0f}"
    await under_fire.create(PODS // 2, name)
    await server_faults.stop_apiserver(under_fire, away_s, kill=kill)
    await under_fire.create(PODS // 2, f"{name}-after")

    await settles(under_fire, f"the API server is {name} s away and starts")


async def test_two_api_servers_of_which_one_after_the_other_is_lost(under_fire: Site) -> None:
    async with server_faults.two_api_servers(under_fire):
        await under_fire.create(PODS // 2, "either")
        await server_faults.stop_apiserver(under_fire, 1.0, kill=True, which=1)
        await under_fire.create(PODS // 2, "either-after")
        await server_faults.stop_apiserver(under_fire, 1.0, kill=True)
        await settles(
            under_fire, "each request goes to either of two API servers, of which one after the other is killed"
        )


async def test_a_store_that_is_killed(under_fire: Site) -> None:
    await under_fire.create(PODS // 2, "etcd")
    await server_faults.kill_etcd(under_fire, 1.0)
    await under_fire.create(PODS // 2, "etcd-after")

    await settles(under_fire, "etcd is killed and away for a second and its start")


async def test_a_policy_that_refuses_a_third(under_fire: Site) -> None:
    async with server_faults.refusing(under_fire.admin, under_fire.pods_path):
        await under_fire.create(PODS, "refused")
        await settles(under_fire, "a policy refuses a third of the decisions")

    assert any(server_faults.REFUSED_BY in line["reason"] for line in under_fire.scheduler.lines("bind.refused"))


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


@pytest.fixture
def clock(tmp_path: Path) -> SteppedClock:
    try:
        return SteppedClock(tmp_path)
    except PackageUnavailable as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


async def test_a_wall_clock_that_is_put_forward_and_back(under_fire: Site, clock: SteppedClock) -> None:
    scheduler = under_fire.scheduler
    scheduler.stop()
    scheduler.also_inherits |= clock.environment
    scheduler.start()
    await scheduler.ready()
    for offset_s in (0, HOUR_S, -HOUR_S):
        clock.step(offset_s)
        await under_fire.create(PODS // 3, f"clock-at{offset_s}")
        await settles(under_fire, f"the wall clock is put to {offset_s:+d} s")

    times = [datetime.fromisoformat(line["timestamp"]) for line in scheduler.lines()]
    scheduler.stop()
    clock.forget(scheduler.child.pid)
    for name in clock.environment:
        del scheduler.also_inherits[name]
    scheduler.start()
    assert max(times) - min(times) > timedelta(seconds=1.9 * HOUR_S)


async def test_a_request_that_is_held_for_longer_than_a_successor_waits_is_seen_by_witness_and_audit(
    under_fire: Site,
) -> None:
    """What docs/develop/protocol.md says of such a request; the witness, which usually finds nothing, can find it."""
    admin, proxy, scheduler = under_fire.admin, under_fire.proxy, under_fire.scheduler
    held: list[Passing] = []

    async def hold(passing: Passing) -> Answer:
        held.append(passing)
        raise Cut

    proxy.choose = lambda passing: hold if passing.is_binding else None
    await admin.create(PRIORITIES, {"metadata": {"name": "fire-first"}, "value": 1000})
    await admin.create(under_fire.pods_path, whole_card(under_fire, "late"))
    async with asyncio.timeout(10):
        while not held:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    scheduler.kill()
    proxy.choose = lambda _: None
    await admin.create(under_fire.pods_path, whole_card(under_fire, "first", priorityClassName="fire-first"))
    scheduler.start()
    bound = under_fire.witness.bound
    await under_fire.bound(bound + 1)
    assert (await held[0].sent()).status == HTTPStatus.CREATED

    await under_fire.bound(bound + 2)
    (fault,) = under_fire.witness.faults
    under_fire.witness.faults.clear()
    await admin.delete(f"{PRIORITIES}/fire-first")
    assert fault.text == f"card {first_card(under_fire)} of node-0 holds 32 units of 16"
    assert (await scheduler.said("ledger.audited", overcommitted=1))["differences"] == 0


def first_card(under_fire: Site) -> str:
    return next(iter(under_fire.witness.free()["node-0"]))


def whole_card(under_fire: Site, name: str, **spec: str) -> Json:
    return gpu_pod(name, workload.UNITS, annotations={names.CARD_UUIDS: first_card(under_fire)}, **spec)
