"""Limits of memory that NVIDIA's driver enforces: NVIDIA's own hook sets them, driver and cards are stand-ins."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from config.protocol import names
from e2e.control_plane.admin import Json
from e2e.node.node_pods import PODS, note_of, pod_seen, waits_because
from e2e.support.gpu_site import is_unschedulable
from e2e.support.memory_limits import (
    CARD_MIB,
    CONTEXT_MIB,
    FAILS,
    OWN_LIMITS,
    expected,
    limited_pod,
    sizes,
    taking,
    wrong,
)
from e2e.support.nvidia_site import END, NvidiaNode, NvidiaSite
from e2e.support.shared_node import GIB, pods, written_by
from tests.support.nvidia import memory
from tests.support.nvidia.memory import MIB, NO_LIMIT, Limits

_USED: Final = "gpushare_device_plugin_container_memory_used_bytes"
_REQUIRED: Final = {names.ISOLATION: names.ISOLATION_REQUIRED}

pytestmark = pytest.mark.usefixtures("node_ready")


def of_every_kind(on: NvidiaNode) -> list[Json]:
    """Return pods with one and two cards, an init container and a sidecar, variables of their own, and no card."""
    init = [taking(6, name="init", ends=True), taking(3, name="sidecar", restartPolicy="Always")]
    own = [taking(5, variables=OWN_LIMITS), taking(0, name="none", variables=OWN_LIMITS)]
    return [
        limited_pod(on, "one", taking(10)),
        limited_pod(on, "two-cards", taking(12), cards=2),
        limited_pod(on, "parts", taking(4, name="a"), taking(7, name="b"), init=init),
        limited_pod(on, "sets-its-own", *own),
    ]


async def test_every_container_has_the_limit_of_its_request_on_its_cards_and_its_cgroup(nvidia: NvidiaSite) -> None:
    async with nvidia.node("limits", "/", 4) as on, pods(on.admin, of_every_kind(on)) as created:
        found = await on.settled(created)
        assert [line for pod in found for line in wrong(on, pod)] == []
        # One for each card of each container; the init container has ended.
        assert len(memory.limits(on.hardware.world(on.node).path)) >= 1 + 2 + 3 + 1
        os.kill(on.node.container(found[0]).pid, signal.SIGKILL)
        (again,) = await on.settled_anew(found[:1])
        assert wrong(on, again) == []


async def test_a_pod_with_its_cards_to_itself_has_no_limit_not_even_its_own(nvidia: NvidiaSite) -> None:
    async with nvidia.node("limits", "container", 1) as on:
        pod = limited_pod(on, "alone", taking(1, variables=OWN_LIMITS), annotations={names.EXCLUSIVE: "true"})
        async with pods(on.admin, [pod]) as created:
            (found,) = await on.settled(created)
            cards = expected(found)["c"]
            assert wrong(on, found, {"c": dict.fromkeys(cards, Limits(0, NO_LIMIT))}) == []


async def test_a_pod_may_use_more_than_its_request_up_to_its_limit(nvidia: NvidiaSite) -> None:
    async with nvidia.node("limits", "/", 1, softLimits=True) as on:
        bursts = limited_pod(on, "bursts", taking(8), annotations={names.GPU_MEM_LIMIT: "20"})
        async with pods(on.admin, [bursts]) as created:
            (found,) = await on.settled(created)
            limits = {uuid: Limits(8 * GIB * MIB, 20 * GIB * MIB) for uuid in expected(found)["c"]}
            assert wrong(on, found, {"c": limits}) == []


async def test_processes_of_a_container_get_no_more_than_its_limit_together(nvidia: NvidiaSite) -> None:
    async with nvidia.node("limits", "/", 1) as on:
        # 300 MiB of each process are its context.
        wanted = [limited_pod(on, "greedy", taking(2, 700, 700, 100)), limited_pod(on, "beside", taking(60, 60_000))]
        async with pods(on.admin, wanted) as created:
            greedy, beside = await on.settled(created)
            (uuid,) = expected(greedy)["c"]
            written = written_by(on.node.container(greedy), END)[0]
            assert written.splitlines()[1:4] == [
                f"process 0 {uuid} 700 0",
                f"process 1 {uuid} 700 0",
                f"process 2 {uuid} 100 2",
            ]
            assert f"process 0 {uuid} 60000 0" in written_by(on.node.container(beside), END)[0]


async def test_the_used_memory_of_a_container_is_known_without_its_processes(
    nvidia: NvidiaSite, tmp_path: Path
) -> None:
    async with nvidia.node("limits", "/", 1, hostProc=str(tmp_path), reconcileInterval="30s") as on:
        wanted = [limited_pod(on, "three", taking(10, 1000, 2000, 3000)), limited_pod(on, "beside", taking(10, 5000))]
        async with pods(on.admin, wanted) as created:
            found = await on.settled(created)
            for pod in found:
                written_by(on.node.container(pod), END)
            # Each process has a context too.
            taken = {"three": 1000 + 2000 + 3000 + 3 * CONTEXT_MIB, "beside": 5000 + CONTEXT_MIB}
            shown = await used(on, lambda now: now.keys() == taken.keys())
            assert shown == {pod: pytest.approx(mib * MIB, rel=0.01) for pod, mib in taken.items()}


async def used(on: NvidiaNode, wanted: Callable[[Mapping[str, float]], bool]) -> dict[str, float]:
    """Return pod -> used bytes according to the plugin's metrics, once they are as wanted. Raises TimeoutError."""
    async with asyncio.timeout(90):
        while True:
            text = await on.plugin.page("/metrics")
            samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
            found = {one.labels["pod"]: one.value for one in samples if one.name == _USED}
            if wanted(found):
                return found
            await asyncio.sleep(1)


async def test_a_pod_that_requires_isolation_waits_where_nothing_enforces_it(nvidia: NvidiaSite) -> None:
    async with nvidia.node("limits", "/", 1, isolation="none") as on:
        pod = limited_pod(on, "requires", taking(1), annotations=_REQUIRED)
        async with pods(on.admin, [pod, limited_pod(on, "prefers", taking(1))]) as created:
            await pod_seen(on.admin, created[0], is_unschedulable)
            (found,) = await on.settled(created[1:])
            assert sizes(written_by(on.node.container(found), END)[0]) == dict.fromkeys(expected(found)["c"], CARD_MIB)


async def test_a_container_that_cannot_be_limited_starts_without_a_limit_and_says_so(nvidia: NvidiaSite) -> None:
    async with nvidia.node("limits", "/", 1) as on:
        with on.hardware.world(on.node).planted(FAILS):
            async with pods(on.admin, [limited_pod(on, "prefers", taking(1))]) as created:
                (found,) = await on.settled(created)
                cards = expected(found)["c"]
                assert wrong(on, found, {"c": dict.fromkeys(cards, Limits(0, NO_LIMIT))}) == []
                await note_of(on.admin, "GPUNotEnforced", "prefers")


@pytest.mark.parametrize("by_node", [False, True], ids=["pod", "node"])
async def test_a_container_that_requires_isolation_starts_once_it_can_be_limited(
    nvidia: NvidiaSite,
    by_node: bool,  # noqa: FBT001 - a table
) -> None:
    enforcement, annotations = ("required", {}) if by_node else ("preferred", _REQUIRED)
    async with nvidia.node("limits", "/", 1, enforcement=enforcement) as on:
        with on.hardware.world(on.node).planted(FAILS):
            pod = limited_pod(on, "requires", taking(1), annotations=annotations)
            await on.admin.create(PODS, pod)
            # Once more after the first failure: the same question has another answer with `preferred`.
            await pod_seen(on.admin, "requires", lambda now: _failures(now) > 1)
        (found,) = await on.settled(["requires"])
        assert wrong(on, found) == []
        await on.admin.delete(f"{PODS}/requires", {"gracePeriodSeconds": 0})


def _failures(found: Json) -> int:
    """Return how often the kubelet has failed to start the pod's only container."""
    (status,) = found["status"].get("containerStatuses") or ({"restartCount": 0},)
    return int(status["restartCount"]) + ("createRuntime hook" in waits_because(found))
