"""Many namespaces whose webhooks hang at once: what it costs those that answer, and what it costs themselves."""

import asyncio
import math

import pytest

from scheduler.testing.cluster.faults import Request, RequestFault, Rule, Silence, Slow, Verb
from scheduler.testing.cluster.world import World
from tests.support.virtual_time import run
from tests.system.looking import cluster, comes
from tests.system.process import Process, in_virtual_time, now_s, scheduling

EVERY_S = 0.05
MOST_S = 0.2
NODES = {f"n{number}": [64] * 4 for number in range(4)}
WAITING = 150


def hangs(request: Request) -> bool:
    return request.about.startswith("hangs-")


def many_hang(of: World, process: Process, number: int, fault: RequestFault) -> Rule:
    """Their pods come one after the other, of all namespaces in turn."""
    rule = process.wire.faults.add(Verb.BIND, fault, when=hangs)
    for name in range(number):
        of.namespaces.create(f"hangs-{name}")
    for pod in range(math.ceil(WAITING / number)):
        for name in range(number):
            comes(of, f"p{pod}", 1, namespace=f"hangs-{name}")
    return rule


async def waits(of: World, name: str) -> float:
    """Seconds from its creation until a pod of the namespace that answers has a node."""
    comes(of, name, 1, namespace="answers")
    began_s = now_s()
    while not of.pods.collection.existing("answers", name).spec.node_name:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return now_s() - began_s


@pytest.mark.parametrize("fault", [Slow(before_s=10.0), Silence(after_s=30.0)], ids=["answered late", "never answered"])
@pytest.mark.parametrize("number", [3, 5, 10, 50])
def test_pods_of_a_namespace_that_answers_do_not_wait(number: int, fault: RequestFault) -> None:
    async def main() -> list[float]:
        of = cluster(**NODES)
        of.namespaces.create("answers")
        async with scheduling(of, latency_s=0.005) as process:
            many_hang(of, process, number, fault)
            came = []
            for pod in range(100):
                came.append(asyncio.create_task(waits(of, f"q{pod}")))
                await asyncio.sleep(EVERY_S)
            return await asyncio.gather(*came)

    assert max(run(main())) <= MOST_S


@in_virtual_time
async def test_pods_of_namespaces_that_answer_again_are_bound_within_a_minute() -> None:
    of = cluster(**NODES)
    async with scheduling(of, latency_s=0.005) as process:
        rule = many_hang(of, process, 50, Slow(before_s=10.0))
        await asyncio.sleep(100)
        process.wire.faults.remove(rule)
        await asyncio.sleep(66)

        assert all(pod.spec.node_name for pod in of.pods)
