"""Bindings of a namespace fail in two ways by turns; its waiting pods are not told of each."""

import asyncio
from itertools import count

from scheduler.testing.cluster.faults import Fail, Silence, Slow, Verb
from tests.support.service.looking import cluster, comes
from tests.support.service.process import scheduling

MANY = 100


async def test_pods_are_not_told_of_every_trial_of_a_webhook_that_fails_in_two_ways() -> None:
    of, number = cluster(a=[64] * 8), count()
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Fail(503), when=lambda _: next(number) % 2 == 0)
        process.wire.faults.add(Verb.BIND, Silence(after_s=1.0))
        writes = process.wire.faults.add(Verb.SET_CONDITION, Slow())
        for one in range(MANY):
            comes(of, f"p{one}", 1)
        await asyncio.sleep(600)
        assert writes.hits <= 10 * MANY  # once a minute would do
