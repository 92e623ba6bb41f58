"""Limits of memory on two nodes whose programs end, and which reboot, at random; and after hundreds of restarts.

`NIGHTLY_SEED` repeats the choices of a run; `NVIDIA_CONTAINERS` says how many containers start in it at least, and
`NVIDIA_RESTARTS` how often one container restarts.
"""

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

import pytest

from config.protocol import names
from e2e.control_plane.admin import Json, seen
from e2e.node.node_pods import PODS, pod_seen, waits_because
from e2e.support.memory_limits import FAILS, OWN_LIMITS, cgroup_of_pod, expected, limited_pod, sizes, taking, wrong
from e2e.support.node_mishaps import MISHAPS, end_containers
from e2e.support.node_rounds import Rounds
from e2e.support.nvidia_site import DRIVERS, UNITS, NvidiaNode, NvidiaSite
from e2e.support.shared_node import GIB, pods
from tests.support.nvidia import memory
from tests.support.nvidia.memory import MIB

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("node_ready")]

_CONTAINERS: Final = int(os.environ.get("NVIDIA_CONTAINERS", "1000"))
_RESTARTS: Final = int(os.environ.get("NVIDIA_RESTARTS", "500"))
_OF_A_NODE: Final = 60
_PODS_AT_ONCE: Final = 4
_CARDS: Final = (2, 4, 8)
# So that the kubelet restarts a container that has ended each second.
_AT_ONCE: Final = {"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}
_SOON_S: Final = 60.0
_RESTARTS_WITHIN_S: Final = 10.0 * _RESTARTS


async def limits_fail(on: NvidiaNode) -> None:
    """End all containers, and let the driver limit none until the kubelet has failed to start one again."""
    here = {"fieldSelector": f"spec.nodeName={on.node.name}"}
    with on.hardware.world(on.node).planted(FAILS):
        await end_containers(on)
        # Asked of the API server: a container may outlive its pod's object for a moment.
        if (await on.admin.get(f"{PODS}?{urlencode(here)}")).body["items"]:
            await seen(on.admin, PODS, fails, here, within_s=_SOON_S)


def fails(found: Json) -> bool:
    """Return whether the pod has failed, or NVIDIA's hook has kept a container of it from starting."""
    return found["status"]["phase"] == "Failed" or "createRuntime hook" in waits_because(found)


def some_pods(on: NvidiaNode, chance: random.Random, round_: int) -> list[Json]:
    """Return a few pods that fit; some ask NVIDIA's hook for limits of their own."""
    made = []
    for number in range(chance.randint(1, _PODS_AT_ONCE)):
        cards = 2 if chance.random() < 1 / 4 else 1
        units = chance.randint(1, UNITS // 8 // cards) * cards
        variables = OWN_LIMITS if chance.random() < 1 / 2 else {}
        name = f"{on.node.name}-{round_}-{number}"
        made.append(limited_pod(on, name, taking(units, variables=variables), cards=cards))
    return made


def misjudged(found: Json, written: str) -> list[str]:
    """Return wrong sizes of cards in the output of a container's life; [] if each was the container's limit."""
    (limits,) = expected(found).values()
    return [] if sizes(written) == limits else [f"{found['metadata']['name']} expected {limits}: {written!r}"]


async def both(rounds: Sequence[Rounds]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for one in rounds:
            tasks.create_task(one.play(_OF_A_NODE))


async def test_every_container_has_its_limits_before_its_first_cuda_call_whatever_ends_meanwhile(
    nvidia: NvidiaSite,
) -> None:
    seed = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
    sys.stdout.write(f"NIGHTLY_SEED={seed}\n")
    chance, started, failed = random.Random(seed), 0, 0  # noqa: S311 - which mishap comes next
    found_wrong: list[str] = []
    while started < _CONTAINERS:
        driver, cards = chance.choice([*DRIVERS]), chance.choice(_CARDS)
        sys.stdout.write(f"driver {driver}, {cards} cards\n")
        async with (
            nvidia.node("limits", driver, cards, kubelet=_AT_ONCE) as prefers,
            nvidia.node("limits", driver, cards, first=cards, kubelet=_AT_ONCE, enforcement="required") as requires,
        ):
            played = [
                Rounds(on, random.Random(chance.random()), some_pods, misjudged, wrong, mishaps)  # noqa: S311
                for on, mishaps in ((prefers, MISHAPS), (requires, (*MISHAPS, limits_fail)))
            ]
            await both(played)
        started += sum(len(one.lives) for one in played)
        failed += sum(one.failed for one in played)
        found_wrong += [line for one in played for line in one.wrong]
        sys.stdout.write(f"{started} containers, {failed} pods failed, {len(found_wrong)} wrong\n")
    assert found_wrong == []


async def test_restarts_reserve_nothing_above_a_container_unless_its_pod_may_use_more_than_its_request(
    nvidia: NvidiaSite,
) -> None:
    async with nvidia.node("limits", "/", 1, kubelet=_AT_ONCE) as on:
        plain = limited_pod(on, "plain", taking(2, ends=True))
        bursts = limited_pod(on, "bursts", taking(2, ends=True), annotations={names.GPU_MEM_LIMIT: "4"})
        async with pods(on.admin, [plain, bursts]) as created:
            found = await asyncio.gather(
                *(pod_seen(on.admin, name, _has_restarted_often, within_s=_RESTARTS_WITHIN_S) for name in created)
            )
            reserved = memory.reserved(on.hardware.world(on.node).path)
    sums = {cgroup: size // (2 * GIB * MIB) for (_, cgroup), size in reserved.items()}
    of_plain, of_bursts = (cgroup_of_pod(pod) for pod in found)
    sys.stdout.write(f"requests reserved after {_RESTARTS} restarts: {sums}\n")
    assert [cgroup for cgroup in sums if cgroup.endswith(of_plain)] == []
    # The driver keeps what each life was guaranteed.
    assert [count >= _RESTARTS for cgroup, count in sums.items() if cgroup.endswith(of_bursts)] == [True]


def _has_restarted_often(found: Json) -> bool:
    statuses = found["status"].get("containerStatuses") or [{"restartCount": 0}]
    return bool(statuses[0]["restartCount"] >= _RESTARTS)
