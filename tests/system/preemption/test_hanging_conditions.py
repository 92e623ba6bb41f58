"""Victims are deleted although no condition of the namespace gets an answer."""

import asyncio

import pytest

from scheduler.testing.cluster.faults import Silence, Verb
from tests.support.service.looking import cluster, comes, is_going, runs
from tests.support.service.process import scheduling


@pytest.mark.parametrize("hanging", [[Verb.SET_CONDITION], [Verb.SET_CONDITION, Verb.NOMINATE], [Verb.NOMINATE]])
async def test_a_victim_is_deleted_within_a_minute_though_the_preemptors_status_cannot_be_written(
    hanging: list[Verb],
) -> None:
    of = cluster(a=[16])
    of.namespaces.create("other")
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        for verb in hanging:
            process.wire.faults.add(
                verb, Silence(after_s=30.0), when=lambda request: request.about.startswith("other/")
            )
        for number in range(20):
            comes(of, f"waits-{number}", 64, namespace="other")
        await asyncio.sleep(1)
        comes(of, "urgent", 16, priority=10, namespace="other")
        await asyncio.sleep(60)
        assert is_going(of, "low")
