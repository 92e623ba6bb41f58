"""Limits that the driver enforces: exact use, without a process ID, and containers that are not limited as expected."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from config.protocol import names
from deviceplugin.allocation.container_share import DriverLimit
from deviceplugin.allocation.decision import CardDecision, Share
from deviceplugin.driver.cards import MemoryLimits, NoAnswer
from deviceplugin.reconcile.cgroups import Owner
from deviceplugin.reconcile.container_limits import LimitReading, not_enforced
from deviceplugin.reconcile.drift import SeenPod
from deviceplugin.reconcile.reconciler import Reconciler
from tests.support.node.drift_policy import drift_policy
from tests.support.node.node_pods import CARDS, UNIT_MIB, node_pod
from tests.support.node.reconcile_site import WARNING, Node, metric, rig

ID, OTHER_ID = "c" * 64, "d" * 64
FIRST, SECOND = CARDS[:2]


def limited(hard_mib: int | None, used_mib: int) -> dict[str, MemoryLimits]:
    return {FIRST.uuid: MemoryLimits(hard_mib, 0, used_mib)}


@asynccontextmanager
async def limiting(
    folder: Path, *, host_proc: str = "proc", policy: object = WARNING
) -> AsyncIterator[tuple[Node, Reconciler]]:
    """A node whose first card has limits."""
    async with rig(folder, policy, host_proc=host_proc) as (node, loop):  # type: ignore[arg-type]
        node.limited(FIRST)
        yield node, loop


async def rounds(loop: Reconciler, times: int = 2) -> None:
    for _ in range(times):
        await loop.round()


async def test_the_use_of_a_limited_container_is_the_drivers_count(folder: Path) -> None:
    async with limiting(folder) as (node, loop):
        uid = node.runs("p", 4, container_id=ID)
        node.container_of(uid, ID, limited(4096, 1234))
        # NVML counts the same memory by process.
        node.uses(FIRST.uuid, (11, 1000, uid), (12, 300, ""))
        await rounds(loop)
        (row,) = loop.result.containers
        assert (row.used_mib, row.exact) == (1234, True)
        assert metric(loop, "container_memory_used_bytes", pod="p") == 1234 * 2**20
        assert metric(loop, "container_memory_used_exact", pod="p", UUID=FIRST.uuid) == 1
        # What is left is outside Kubernetes; nothing counts twice.
        assert [(one.kind, one.message) for one in loop.result.drift] == [
            ("outside-use", "card GPU-a: processes outside Kubernetes use 300 MiB (PID 12)")
        ]


async def test_exact_use_needs_no_process_ids(folder: Path) -> None:
    async with limiting(folder, host_proc="missing") as (node, loop):
        uid = node.runs("p", 4, container_id=ID)
        node.container_of(uid, ID, limited(4096, 1234))
        node.uses(FIRST.uuid, (11, 1000, uid))
        await rounds(loop)
        (row,) = loop.result.containers
        assert (row.used_mib, row.exact) == (1234, True)


async def test_a_container_without_limits_and_a_card_without_them_count_by_process(folder: Path) -> None:
    async with limiting(folder) as (node, loop):
        alone, other = node.runs("p", 4, container_id=OTHER_ID), node.runs("q", 2, card=SECOND, container_id=ID)
        node.container_of(alone, OTHER_ID, {})
        node.container_of(other, ID, limited(2048, 999))
        node.uses(FIRST.uuid, (11, 700, alone))
        node.uses(SECOND.uuid, (12, 500, other))
        await rounds(loop)
        assert [(row.pod, row.used_mib, row.exact) for row in loop.result.containers] == [
            ("p", 700, False),
            ("q", 500, False),
        ]
        assert set(node.limits_asked) == {FIRST.uuid}
        assert metric(loop, "container_memory_used_exact") is None


async def test_if_the_driver_does_not_answer_use_counts_by_process(folder: Path) -> None:
    async with limiting(folder) as (node, loop):
        uid = node.runs("p", 4, container_id=ID)
        node.container_of(uid, ID, limited(None, 1234))
        node.uses(FIRST.uuid, (11, 1000, uid))
        node.limits_fail = NoAnswer("card GPU-a: the driver did not answer within 10 s")
        await rounds(loop)
        (row,) = loop.result.containers
        assert (row.used_mib, row.exact) == (1000, False)
        assert loop.result.problems == ("memory limits: card GPU-a: the driver did not answer within 10 s",)
        assert loop.result.drift == ()


async def test_a_host_whose_containers_cannot_be_found_is_a_problem(folder: Path) -> None:
    async with limiting(folder) as (node, loop):
        node.runs("p", 4, container_id=ID)
        (folder / "cgroup" / "cgroup.controllers").unlink()
        await rounds(loop)
        (problem,) = loop.result.problems
        assert problem.startswith("no container's cgroup found in")
        assert loop.result.drift == ()


async def test_cards_without_limits_cost_no_search(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        node.runs("p", 4, container_id=ID)
        await rounds(loop)
        assert (node.limits_asked, loop.result.problems) == ([], ())


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        pytest.param({}, "the driver enforces no limit there", id="none"),
        pytest.param(limited(None, 0), "the driver enforces no limit there", id="only a soft one"),
        pytest.param(limited(8192, 0), "the driver enforces a limit of 8192 MiB there", id="too high"),
        pytest.param(limited(4096, 0), "", id="as expected"),
        pytest.param(limited(4098, 0), "", id="rounded up to a large page"),
        pytest.param(limited(2048, 0), "", id="lower"),
    ],
)
async def test_a_limit_that_is_missing_or_too_high_is_drift(
    folder: Path, limits: dict[str, MemoryLimits], says: str
) -> None:
    async with limiting(folder) as (node, loop):
        uid = node.runs("p", 4, container_id=ID)
        node.container_of(uid, ID, limits)
        node.container_of(uid, OTHER_ID, {})  # the pod's sandbox, which no status names
        await rounds(loop)
        pod = f"pod ns/p (UID {uid})"
        expected = [f"{pod}: container c0 may use 4096 MiB of GPU-a; {says}"] if says else []
        assert [one.message for one in loop.result.drift] == expected
        assert [(one.reason, one.pod is not None) for one in node.events] == [("GPUNotEnforced", True)] * bool(says)
        assert node.evicted == []


@pytest.mark.parametrize(
    ("extra", "required"),
    [
        pytest.param({names.ISOLATION: names.ISOLATION_REQUIRED}, False, id="by the pod"),
        pytest.param({}, True, id="by the node"),
    ],
)
async def test_a_container_that_has_to_be_limited_is_evicted(
    folder: Path, extra: dict[str, str], *, required: bool
) -> None:
    async with limiting(folder, policy=drift_policy(enforcement_required=required)) as (node, loop):
        uid = node.runs("p", 4, container_id=ID, extra=extra)
        node.container_of(uid, ID, {})
        await loop.round()
        assert node.evicted == []
        await loop.round()
        assert [pod.uid for pod in node.evicted] == [uid]


async def test_an_exclusive_pod_and_a_container_that_has_ended_need_no_limit(folder: Path) -> None:
    async with limiting(folder) as (node, loop):
        own = node.runs("own", 4, container_id=ID, extra={names.EXCLUSIVE: "true"})
        node.container_of(own, ID, {})
        node.runs("ended", 4, container_id=OTHER_ID)
        await rounds(loop)
        assert loop.result.drift == ()


async def test_a_container_that_ends_while_the_driver_is_asked_needs_no_limit(folder: Path) -> None:
    async with limiting(folder, policy=drift_policy(enforcement_required=True)) as (node, loop):
        uid = node.runs("p", 4, container_id=ID)
        cgroup = folder / "cgroup" / "kubepods" / f"pod{uid}" / ID

        class Driver:
            async def memory_limits(self, _: str, cgroups: Sequence[str]) -> dict[str, MemoryLimits]:
                assert list(cgroups) == [str(cgroup)]
                cgroup.rmdir()
                return {}

        loop.limits = replace(loop.limits, driver=Driver())
        for _ in range(3):
            cgroup.mkdir(parents=True)
            await loop.round()
        assert (loop.result.drift, node.evicted) == ((), [])


class Looked(dict[str, str]):
    """Names of containers that count how often one is looked up."""

    times = 0

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        Looked.times += 1
        return super().get(key, default)


def test_a_thousand_containers_are_not_each_compared_with_all_cgroups() -> None:
    pod = node_pod("p", [1] * 1000)
    shares = {one.name: (Share(FIRST.uuid, 0, 1, 16),) for one in pod.asking()}
    owners = {one.name: Owner(pod.uid, f"{number:064x}") for number, one in enumerate(pod.asking())}
    reading = LimitReading({FIRST.uuid: {}}, {FIRST.uuid: frozenset(owners.values())})
    by_id = Looked({owner.container_id: name for name, owner in owners.items()})
    seen = [SeenPod(pod, CardDecision(shares, UNIT_MIB))]
    found = list(not_enforced(seen, reading, by_id, lambda _: DriverLimit(0, 1024)))
    assert [one.container for one in found] == [one.name for one in pod.asking()]
    assert Looked.times <= 1000
