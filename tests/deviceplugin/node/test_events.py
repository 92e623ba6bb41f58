"""What an operator has to see reaches the API server, if it can be reached at all."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from structlog.testing import capture_logs

from deviceplugin.events import NodeEvent
from deviceplugin.node.events import NodeEventRecorder
from scheduler.kube.port import ApiConflict, ApiError, ApiForbidden, ApiSilent, ApiThrottled, EventRecord, PodKey
from scheduler.process.clock import Clock
from tests.support.clocks.virtual_time import run

POD = PodKey("ns", "p", "uid-p")


@dataclass
class Server:
    """Takes Events, after it has raised what it was told to raise. asked_s: when each of them came."""

    errors: list[ApiError] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    asked_s: list[float] = field(default_factory=list)

    async def create_event(self, event: EventRecord) -> None:
        self.asked_s.append(asyncio.get_running_loop().time())
        if self.errors:
            raise self.errors.pop(0)
        self.events.append(event)


def written(
    server: Server, *notices: NodeEvent, node_uid: str = "", wall_ns: Callable[[], int] = lambda: 1_500_000_000
) -> list[EventRecord]:
    """The Events of these notices, an hour later."""

    async def main() -> None:
        recorder = NodeEventRecorder(server, "node-a", Clock(wall_ns=wall_ns))
        recorder.node_uid = node_uid
        for notice in notices:
            recorder.record(notice)
        await _for_an_hour(recorder.run())

    run(main())
    return server.events


async def _for_an_hour(forever: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(3600):
            await forever


def test_a_notice_on_a_pod_becomes_a_warning_on_that_very_pod() -> None:
    (event,) = written(Server(), NodeEvent("GPUUsesMore", "it uses 3 MiB more", POD))
    assert (event.kind, event.namespace, event.object_name, event.object_uid) == ("Pod", "ns", "p", "uid-p")
    assert (event.type, event.reason, event.note) == ("Warning", "GPUUsesMore", "it uses 3 MiB more")
    assert (event.reporting_controller, event.reporting_instance) == ("gpushare-device-plugin", "node-a")
    assert event.time_s == 1.5


def test_a_notice_on_the_node_has_its_uid_or_until_that_is_known_its_name() -> None:
    (known,) = written(Server(), NodeEvent("GPUHealthy", "healthy again", warning=False), node_uid="uid-node")
    assert (known.kind, known.object_name, known.object_uid) == ("Node", "node-a", "uid-node")
    assert (known.type, known.namespace) == ("Normal", "")
    (unknown,) = written(Server(), NodeEvent("GPUHealthy", "healthy again"))
    assert unknown.object_uid == "node-a"


def test_notices_of_one_moment_become_as_many_events() -> None:
    events = written(Server(), *[NodeEvent("R", str(number), POD) for number in range(3)])
    assert [event.note for event in events] == ["0", "1", "2"]
    assert len({event.name for event in events}) == 3


def test_events_have_the_time_of_a_clock_that_was_set_back() -> None:
    times = iter((7_200_000_000_000, 3_600_000_000_000, 3_600_000_000_000))
    events = written(Server(), *[NodeEvent("R", str(number), POD) for number in range(3)], wall_ns=lambda: next(times))
    assert [event.time_s for event in events] == [7200.0, 3600.0, 3600.0]
    assert len({event.name for event in events}) == 3


def test_a_server_that_does_not_answer_is_asked_again_a_little_later_each_time() -> None:
    server = Server([ApiSilent("nothing"), ApiSilent("nothing")])
    assert [event.note for event in written(server, NodeEvent("R", "n", POD))] == ["n"]
    assert server.asked_s == [0, 1, 3]


def test_a_server_that_is_busy_is_left_alone_for_as_long_as_it_asks() -> None:
    server = Server([ApiThrottled("busy", retry_after_s=20)])
    written(server, NodeEvent("R", "n", POD))
    assert server.asked_s == [0, 20]


def test_an_event_that_is_refused_or_never_answered_does_not_block_the_next_one() -> None:
    refusing = Server([ApiForbidden("no right", 403)])
    assert [event.note for event in written(refusing, NodeEvent("R", "lost", POD), NodeEvent("R", "next", POD))] == [
        "next"
    ]
    silent = Server([ApiSilent("nothing") for _ in range(5)])
    assert [event.note for event in written(silent, NodeEvent("R", "lost", POD), NodeEvent("R", "next", POD))] == [
        "next"
    ]


def test_an_event_that_is_there_already_was_written_by_the_try_before() -> None:
    server = Server([ApiSilent("nothing"), ApiConflict("already exists", 409)])
    with capture_logs() as lines:
        written(server, NodeEvent("R", "n", POD))
    assert (len(server.asked_s), [line["event"] for line in lines]) == (2, ["notice"])


def test_of_too_many_the_newest_are_written() -> None:
    events = written(Server(), *[NodeEvent("R", str(number), POD) for number in range(300)])
    assert [event.note for event in events] == [str(number) for number in range(44, 300)]
