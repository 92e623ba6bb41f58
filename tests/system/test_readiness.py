"""What `/readyz` and the metrics of the scheduler say while the API server is away, or refuses it."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.kube import port
from scheduler.testing.cluster.faults import Break, Refuse, RequestFault, Silence, Verb
from tests.system.looking import cluster, comes, node_of
from tests.system.process import Process, in_virtual_time, scheduling, start
from tests.system.wire import Posts, Wire

UNAUTHORIZED = Refuse(401, "Unauthorized")
KINDS = ", ".join(sorted(kind.name for kind in port.KINDS))


async def cut_off(process: Process, fault: RequestFault) -> None:
    """No watch is served from now on."""
    process.wire.faults.add(Verb.WATCH, fault)
    process.wire.break_watches(Break.LOST)


def failing_s(process: Process) -> Mapping[str, float]:
    return {request: round(failing_s) for request, _, failing_s in process.service.contact.ages_s()}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(Silence(after_s=0.0), "the connection was lost", id="away"),
        pytest.param(UNAUTHORIZED, "Unauthorized", id="a dead token"),
        pytest.param(Refuse(403, "pods is forbidden"), "pods is forbidden", id="a right that is gone"),
    ],
)
@in_virtual_time
async def test_a_scheduler_that_is_not_served_is_not_ready_after_a_while_and_says_why(
    fault: RequestFault, reason: str
) -> None:
    async with scheduling(cluster(a=[16])) as process:
        ready = process.service.not_ready
        await cut_off(process, fault)
        await asyncio.sleep(29)
        before = ready()
        await asyncio.sleep(31)
        after, since_s = ready(), failing_s(process)
        process.wire.faults.clear()
        await asyncio.sleep(31)

        assert before == ""
        assert after == f"the API server has not served {KINDS} for 60 s: {reason}"
        assert since_s == dict.fromkeys(KINDS.split(", "), 60)
        assert (ready(), set(failing_s(process).values())) == ("", {0})


@in_virtual_time
async def test_a_first_list_that_never_comes_says_why() -> None:
    of = cluster(a=[16])
    wire = Wire(of, Posts(of))
    wire.faults.add(Verb.WATCH, UNAUTHORIZED, when=lambda request: request.about == "pods")
    process = start(wire)
    await asyncio.sleep(60)
    said = process.service.not_ready()
    await process.kill()

    assert said == "waiting for the first list of pods; the API server has not served pods for 60 s: Unauthorized"


@in_virtual_time
async def test_a_quiet_watch_is_not_a_watch_that_fails() -> None:
    async with scheduling(cluster(a=[16])) as process:
        await cut_off(process, Silence(after_s=0.0))
        await asyncio.sleep(10)
        process.wire.faults.clear()
        await asyncio.sleep(2)

        assert set(failing_s(process).values()) == {0}


@in_virtual_time
async def test_bindings_that_are_unauthorized_count_while_the_watches_live_on() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        refused = process.wire.faults.add(Verb.BIND, UNAUTHORIZED)
        comes(of, "p", 3)
        await asyncio.sleep(60)
        said = process.service.not_ready()
        process.wire.faults.remove(refused)
        await asyncio.sleep(20)

        assert said == "the API server has not served bindings for 60 s: Unauthorized"
        assert (process.service.not_ready(), node_of(of, "p")) == ("", "a")


@in_virtual_time
async def test_a_dead_token_is_logged_once_and_so_is_its_end() -> None:
    of = cluster(a=[16])
    with capture_logs() as lines:
        async with scheduling(of) as process:
            for verb in Verb:
                process.wire.faults.add(verb, UNAUTHORIZED)
            process.wire.break_watches(Break.ENDED)
            for n in range(20):
                comes(of, f"p{n}", 1)
            await asyncio.sleep(600)
            process.wire.faults.clear()
            await asyncio.sleep(60)

    assert [line["event"] for line in lines if _is_about_the_connection(line)] == ["api.unauthorized", "api.reachable"]


def _is_about_the_connection(line: Mapping[str, Any]) -> bool:
    return "nauthorized" in str(line) or str(line["event"]).startswith(("api.", "watch."))
