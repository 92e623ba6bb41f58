"""Permit: a placed pod waits until every plugin has allowed it."""

import asyncio

import pytest

from scheduler.core.scheduling_cycle import PermitWait
from scheduler.dispatch.binding_cycle import WaitingPods
from scheduler.kube.bind_outcome import BindRejected

WAITS = (PermitWait("Gang", 60.0), PermitWait("Quota", 30.0))


async def started(waiting: WaitingPods, *waits: PermitWait) -> asyncio.Task[None]:
    task = asyncio.create_task(waiting.wait("uid", waits))
    await asyncio.sleep(0)
    return task


async def test_a_pod_without_holds_goes_at_once() -> None:
    await WaitingPods().wait("uid", ())


async def test_a_pod_goes_when_every_plugin_has_allowed_it() -> None:
    waiting = WaitingPods()
    task = await started(waiting, *WAITS)
    waiting.allow("uid", "Gang")
    await asyncio.sleep(0)
    assert not task.done()
    waiting.allow("uid", "Quota")
    await task


async def test_one_rejection_is_enough() -> None:
    waiting = WaitingPods()
    task = await started(waiting, *WAITS)
    waiting.allow("uid", "Gang")
    waiting.reject("uid", "Quota", "over quota")
    with pytest.raises(BindRejected, match="Quota: over quota"):
        await task


async def test_the_shortest_time_counts() -> None:
    with pytest.raises(BindRejected, match=r"Quota did not allow it within 0\.001 s"):
        await WaitingPods().wait("uid", (PermitWait("Gang", 60.0), PermitWait("Quota", 0.001)))


async def test_decisions_on_a_pod_that_does_not_wait_change_nothing() -> None:
    waiting = WaitingPods()
    waiting.allow("uid", "Gang")
    waiting.reject("uid", "Gang", "late")
    task = await started(waiting, WAITS[0])
    waiting.allow("uid", "Gang")
    await task
