"""What a crowd of waiting pods costs, and who gets what becomes free; on a cluster in memory, in virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from config.protocol import names
from scheduler.kube import objects
from scheduler.testing.cluster.world import World
from tests.support.builders import READER, manifest
from tests.system.looking import cluster, comes, node_of
from tests.system.process import A_MOMENT_S, Process, in_virtual_time, scheduling

ON_CARD_0 = {names.MEM_IDX: "0"}


def attempts(process: Process) -> int:
    """How many decisions there were."""
    return process.cycle.placed + process.cycle.refused


def keeping_away(key: str) -> dict[str, Any]:
    """Required anti-affinity on each node, against some of the pods of the same namespace."""
    expression = {"key": key, "operator": "In", "values": ["1"]}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [expression]}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def reported(at: str) -> Callable[[objects.Node], objects.Node]:
    """The kubelet has nothing new to say at this time."""
    conditions = (objects.NodeCondition("Ready", at),)
    return lambda node: replace(node, status=replace(node.status, conditions=conditions))


async def fills(of: World, *names_of_pods: str, units: int = 16) -> None:
    """Pods that leave nothing free."""
    for name in names_of_pods:
        comes(of, name, units)
    await asyncio.sleep(A_MOMENT_S)


@in_virtual_time
async def test_newcomers_never_take_what_a_better_pod_waits_for_while_a_still_better_one_is_asked_in_vain() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await fills(of, "first")
        comes(of, "in-vain", 16, priority=2000, annotations={names.CARD_AFFINITY: "app=nobody"})
        comes(of, "urgent", 16, priority=1000)
        await asyncio.sleep(A_MOMENT_S)
        for number in range(50):
            comes(of, f"newcomer-{number}", 16)
        of.pods.remove("default", "first")
        await asyncio.sleep(0.1)
        assert node_of(of, "urgent") == "a"


@in_virtual_time
async def test_forty_places_lead_to_forty_attempts_whatever_number_of_templates_waits() -> None:
    of = cluster(**{f"n{number:02}": [16] for number in range(40)})
    async with scheduling(of) as process:
        await fills(of, *(f"first-{number}" for number in range(40)))
        for number in range(200):
            comes(of, f"waits-{number}", 16, requests={"cpu": f"{1 + number % 20}m"})
        await asyncio.sleep(1)
        before, binds = attempts(process), len(process.wire.posts.by_uid)
        for number in range(40):
            of.pods.remove("default", f"first-{number}")
        await asyncio.sleep(1)
        assert len(process.wire.posts.by_uid) - binds == 40
        assert attempts(process) - before == 40


@in_virtual_time
async def test_a_heartbeat_without_news_changes_nothing_and_wakes_nobody() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await fills(of, "first")
        comes(of, "waits", 16)
        await asyncio.sleep(A_MOMENT_S)
        version, before = process.engine.tables.changes.version, attempts(process)
        told = of.version
        for number in range(10):
            of.nodes.update("a", reported(f"2026-01-01T00:00:{number:02}Z"))
            await asyncio.sleep(A_MOMENT_S)
        assert of.version == told + 10
        assert process.engine.tables.changes.version == version
        assert attempts(process) == before


@in_virtual_time
async def test_an_anti_affinity_term_of_another_namespace_splits_no_class() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of) as process:
        of.pods.create(
            manifest(
                "theirs", 16, namespace="theirs", node="a", affinity=keeping_away("pod-index"), annotations=ON_CARD_0
            )
        )
        await fills(of, "first")
        for number in range(100):
            comes(of, f"waits-{number}", 16, labels={"pod-index": str(number)})
        await asyncio.sleep(1)
        waiting = [READER.read(pod) for pod in process.wire.told["pods"] if not pod.spec.node_name]
        assert len({process.cycle.signature(pod) for pod in waiting}) == 1
        before = attempts(process)
        of.pods.remove("default", "first")
        await asyncio.sleep(1)
        assert attempts(process) == before + 1
        assert process.engine.queue.lengths()["unschedulable"] == 99
