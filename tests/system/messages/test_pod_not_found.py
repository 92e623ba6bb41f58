"""A single 404 does not silence a waiting pod."""

import asyncio

from scheduler.testing.cluster.faults import Refuse, Verb
from tests.support.service.looking import cluster, comes, condition
from tests.support.service.process import scheduling


async def test_a_condition_is_written_again_after_a_misdirected_answer() -> None:
    of = cluster(a=[8])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.SET_CONDITION, Refuse(404), count=1)
        comes(of, "p", 16)
        await asyncio.sleep(120)
        assert condition(of, "p")
