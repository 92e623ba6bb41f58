"""A client for one command, and an API server that accepts connections and says nothing."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from socket import create_server
from typing import Final

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.port import NODES, ApiSilent
from scheduler.tools.cli.asking import Patience, opened, read_all
from tests.support.builders import wire_node
from tests.support.servers.listing_server import kubeconfig_of, listing

# The page takes longer as a whole, and no byte of it does on a busy machine.
GIVES_UP_S: Final = 2.0


@pytest.fixture
def silent_port() -> Iterator[int]:
    with create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def list_nodes(kubeconfig: str, patience: Patience) -> None:
    """Raises ApiError."""

    async def listed() -> None:
        configuration = SchedulerConfiguration.model_validate({"clientConnection": {"kubeconfig": kubeconfig}})
        async with opened(configuration, {}, patience) as cluster:
            await read_all(cluster, NODES, lambda _: None)

    asyncio.run(listed())


def test_a_server_that_says_nothing_is_told_and_given_up(
    silent_port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ApiSilent, match=r"no data for 0\.3 s"):
        list_nodes(kubeconfig_of(silent_port, tmp_path), Patience(says_so_s=0.01, gives_up_s=0.3))
    told = f"no answer from http://127.0.0.1:{silent_port} yet; giving up after 0.3 s\n"
    assert capsys.readouterr().err == told


def test_a_completion_says_nothing(silent_port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ApiSilent):
        list_nodes(kubeconfig_of(silent_port, tmp_path), Patience(says_so_s=None, gives_up_s=0.1))
    assert capsys.readouterr().err == ""


def test_only_a_server_that_has_not_answered_yet_is_told_of(tmp_path: Path) -> None:
    async def before_and_after(kubeconfig: str) -> tuple[bool, bool]:
        configuration = SchedulerConfiguration.model_validate({"clientConnection": {"kubeconfig": kubeconfig}})
        async with opened(configuration, {}) as cluster:
            before = cluster.has_answered
            await read_all(cluster, NODES, lambda _: None)
            return before, cluster.has_answered

    with listing([wire_node("a", [16])]) as server:
        assert asyncio.run(before_and_after(server.kubeconfig(tmp_path))) == (False, True)


def test_a_page_that_comes_slowly_is_waited_for(tmp_path: Path) -> None:
    async def listed() -> None:
        page = json.dumps({"kind": "NodeList", "metadata": {"resourceVersion": "7"}, "items": []}).encode()

        async def answer(request: web.Request) -> web.StreamResponse:
            if "watch" in request.query:
                body = {"kind": "Status", "message": "this server streams no lists", "code": 400}
                return web.json_response(body, status=400)
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for byte in page:
                await response.write(bytes([byte]))
                await asyncio.sleep(1.2 * GIVES_UP_S / len(page))
            return response

        app = web.Application()
        app.router.add_get("/api/v1/nodes", answer)
        async with TestServer(app, host="127.0.0.1") as server:
            kubeconfig = kubeconfig_of(server.port or 0, tmp_path)
            configuration = SchedulerConfiguration.model_validate({"clientConnection": {"kubeconfig": kubeconfig}})
            async with opened(configuration, {}, Patience(gives_up_s=GIVES_UP_S)) as cluster:
                await read_all(cluster, NODES, lambda _: None)

    asyncio.run(listed())
