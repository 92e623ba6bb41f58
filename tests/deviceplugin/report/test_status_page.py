"""Probes, metrics and status over real HTTP on loopback, and the command that asks for the last."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from typer.testing import CliRunner

from deviceplugin.cli import cli
from deviceplugin.report.metrics import NodeMetrics
from deviceplugin.report.status import AllocationStatus, CardStatus, DevicePluginStatus, DriftStatus, decode, encode
from deviceplugin.report.status_page import StatusUnknown, ask_status, status_page
from scheduler.process.documents import is_loopback
from scheduler.process.probes import serve
from scheduler.process.scrape import exposition

STATUS = DevicePluginStatus(
    node="node-1",
    mode="cdi",
    driver="580.1",
    unit_mib=1024,
    announced_units=30,
    registered=True,
    on_node=False,
    toolkit_missing=True,
    nvidia_runtime=True,
    runtime_class="nvidia",
    isolation="driver",
    problems=("NVML does not answer",),
    cards=(
        CardStatus(1, "GPU-b", "Tesla T4", 15360, 15, 0, "unhealthy", None, "xid-79"),
        CardStatus(
            0, "GPU-a", "Tesla T4", 15360, 15, 6, "healthy", 4000, absent=("NumaNodeId: no",), isolation="driver"
        ),
    ),
    containers=(AllocationStatus("ns", "p", "c", {"GPU-a": 3, "GPU-b": 3}, 2000),),
    drift=(DriftStatus("uses-more", "pod ns/p uses more", ("event", "metric")),),
)
AS_TEXT = """\
Node node-1: driver 580.1, mode cdi, isolation driver, unit 1024 MiB
NVIDIA runtime: runs this pod through runtimeClassName nvidia
30 units listed for the kubelet, registered with the kubelet
The node object is NOT up to date
Containers cannot get their cards: see the problems
Problem: NVML does not answer
Card 0: the driver does not report: NumaNodeId: no

CARD  UUID   MODEL     HEALTH             UNITS  ALLOCATED  USED MiB  OF MiB  ISOLATION
0     GPU-a  Tesla T4  healthy            15     6          4000      15360   enforced by driver
1     GPU-b  Tesla T4  unhealthy: xid-79  15     0          -         15360   advisory

NAMESPACE  POD  CONTAINER  CARD: UNITS  USED MiB  ISOLATION
ns         p    c          0: 3, 1: 3   2000      advisory

Drift: 1
  uses-more: pod ns/p uses more (event, metric)
"""


class Probes:
    """What the probes say."""

    ready = ""
    alive = ""


@pytest.fixture
def probes() -> Probes:
    return Probes()


@pytest.fixture
async def address(probes: Probes) -> AsyncIterator[str]:
    metrics = NodeMetrics("node-1", 1024, dcgm=True)
    metrics.registered()
    runner = await serve(
        ("127.0.0.1", 0),
        lambda: exposition(metrics.registry),
        ready=lambda: probes.ready,
        alive=lambda: probes.alive,
        pages={"/status": status_page(lambda: STATUS)},
    )
    yield f"127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def answered(address: str, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize(("output", "expected"), [("text", AS_TEXT), ("json", f"{encode(STATUS).decode()}\n")])
async def test_the_command_prints_the_status(address: str, output: str, expected: str) -> None:
    arguments = ["status", "--address", address, "-o", output]
    result = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
    assert (result.exit_code, result.stdout) == (0, expected)


def test_the_document_names_memory_in_mib() -> None:
    text = encode(STATUS)
    assert b'"usedMiB":4000' in text
    assert b'"unitMiB":1024' in text
    assert decode(text) == STATUS


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        pytest.param((200, b"hello"), "the answer is not a valid status", id="another server"),
        pytest.param((200, b'{"node": "\xff"}'), "the answer is not a valid status", id="no UTF-8"),
        pytest.param((200, b'{"x": ' + b"[" * 100_000), "the answer is not a valid status", id="without end"),
        pytest.param((403, b"only this machine is told"), "answered 403 only this machine is told", id="refused"),
    ],
)
async def test_an_answer_that_is_not_a_status_is_reported(answer: tuple[int, bytes], complaint: str) -> None:
    async def handle(_request: web.Request) -> web.Response:
        return web.Response(status=answer[0], body=answer[1])

    app = web.Application()
    app.router.add_get("/status", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        with pytest.raises(StatusUnknown, match=complaint):
            await ask_status(f"127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("peer", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.7", False),
        ("::ffff:10.0.0.7", False),
        ("fe80::1%eth0", False),
        ("", False),
        (None, False),
    ],
)
def test_only_a_peer_on_loopback_gets_the_status(peer: str | None, is_local: bool) -> None:  # noqa: FBT001 - a case
    assert is_loopback(peer) is is_local
