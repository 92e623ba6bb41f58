"""The audit runs in slices: other tasks run between two of them."""

import asyncio
from itertools import count

from scheduler.dispatch.ledger_audit import LedgerAudit
from scheduler.kube.problem import Problem
from scheduler.state.audit import AuditRound
from tests.support.builders import engine
from tests.support.clocks.virtual_time import run


def test_a_round_holds_the_loop_for_a_few_milliseconds_at_a_time() -> None:
    """Each reading of the clock is a millisecond later: a slice ends after the third."""
    built = engine(**{f"n{i}": [16] for i in range(60)})
    clock, turns, done, reported = count(), 0, list[AuditRound](), list[Problem]()

    async def others() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    async def both() -> None:
        audit = LedgerAudit(
            built, period_s=600.0, now_s=lambda: next(clock) / 1000, report=reported.append, done=done.append
        )
        task = asyncio.create_task(others())
        done.append(await audit.round())
        await task

    run(both())
    assert done == [AuditRound(nodes=60)]
    assert reported == []
    assert turns >= 15
