"""Namespaces whose Events and conditions get no answers, or are throttled: what it costs others to be told."""

import asyncio
import math

import pytest

from scheduler.testing.cluster.faults import Request, RequestFault, Silence, Throttle, Verb
from tests.support.virtual_time import run
from tests.system.looking import cluster, comes
from tests.system.process import now_s, scheduling

WAITING = 200
TOLD_WITHIN_S = 2.0


def hangs(request: Request) -> bool:
    return request.about.startswith("hangs-")


@pytest.mark.parametrize(
    "fault", [Silence(after_s=30.0), Throttle(30.0)], ids=["never answered", "throttled for half a minute"]
)
@pytest.mark.parametrize("number", [1, 3, 12])
def test_pods_of_others_are_told_soon_why_they_wait(number: int, fault: RequestFault) -> None:
    async def main() -> list[float]:
        of = cluster(a=[16])
        of.namespaces.create("answers")
        took = []
        async with scheduling(of) as process:
            for verb in (Verb.CREATE_EVENT, Verb.UPDATE_EVENT, Verb.SET_CONDITION):
                process.wire.faults.add(verb, fault, when=hangs)
            for name in range(number):
                of.namespaces.create(f"hangs-{name}")
            for pod in range(math.ceil(WAITING / number)):
                for name in range(number):
                    comes(of, f"p{pod}", 17, namespace=f"hangs-{name}")
            await asyncio.sleep(5)
            for pod in range(20):
                comes(of, f"q{pod}", 17, namespace="answers")
                began_s = now_s()
                while not of.pods.collection.existing("answers", f"q{pod}").status.conditions:
                    await asyncio.sleep(0.05)
                    assert now_s() - began_s < 100 * TOLD_WITHIN_S
                took.append(now_s() - began_s)
                await asyncio.sleep(3)
        return took

    assert max(run(main())) <= TOLD_WITHIN_S
