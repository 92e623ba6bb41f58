"""Commands whose server is silent, whose output nobody reads, or that are interrupted: no traceback, its own code."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import create_server
from typing import Final

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.port import NODES, ApiSilent
from scheduler.tools.cli import ending
from scheduler.tools.cli.asking import read_all
from scheduler.tools.cli.session import Patience, opened
from tests.support.builders import wire_node
from tests.support.repository import ROOT
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


DEMO = ("scheduler.main", "demo", "--speed", "100")
SIMULATE = ("scheduler.main", "simulate", "scheduler/tools/demo/demo.yaml")
HELP = ("scheduler.main", "--help")
COMPLETION = ("scheduler.tools.kubectl.main", "completion", "bash")
# "" for a buffer that is written at the end only.
UNBUFFERED = ("", "1")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": "", "PYTHONUNBUFFERED": "", **more}


def unread(command: tuple[str, ...], **more: str) -> tuple[int, str]:
    """(exit code, standard error) of a command whose reader has left before it wrote anything."""
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment(**more), stdout=writer, stderr=subprocess.PIPE,
        text=True, check=False,
    )  # fmt: skip
    os.close(writer)
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("unbuffered", UNBUFFERED)
@pytest.mark.parametrize("command", [DEMO, SIMULATE, HELP, COMPLETION], ids=lambda command: command[1])
def test_a_pipe_that_nobody_reads_ends_a_command_without_a_word(command: tuple[str, ...], unbuffered: str) -> None:
    assert unread(command, PYTHONUNBUFFERED=unbuffered) == (141, "")


@pytest.mark.parametrize("unbuffered", UNBUFFERED)
@pytest.mark.parametrize("command", [DEMO, SIMULATE, COMPLETION], ids=lambda command: command[1])
def test_a_disk_that_is_full_is_one_line(command: tuple[str, ...], unbuffered: str) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ran = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, env=environment(PYTHONUNBUFFERED=unbuffered), stdout=full,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ran.returncode == 74
    assert ran.stderr.endswith(": the output cannot be written: no space left on device\n")
    assert len(ran.stderr.splitlines()) == 1


def test_an_encoding_that_lacks_a_sign_gets_a_question_mark() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", *DEMO], cwd=ROOT, env=environment(PYTHONIOENCODING="ascii"), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "binpa" in ran.stdout


@pytest.mark.parametrize(
    "command", [["scheduler.tools.kubectl.inspect"], ["scheduler.tools.kubectl.main", "top"]], ids=str
)
def test_ctrl_c_while_the_server_is_silent_leaves_no_traceback(tmp_path: Path, command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, listing([wire_node("a", [16])]) as server:
        file = Path(server.kubeconfig(tmp_path))
        port = str(silent.getsockname()[1])
        file.write_text(file.read_text(encoding="utf-8").replace(str(server.server_port), port), encoding="utf-8")
        arguments = [sys.executable, "-m", *command, "--kubeconfig", str(file)]
        with subprocess.Popen(
            arguments, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


def test_a_connection_of_ours_that_breaks_is_a_bug_like_any_other() -> None:
    def breaks() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        ending.run("program", breaks)


def test_a_bug_keeps_its_traceback_and_an_exit_its_code() -> None:
    def bug() -> None:
        message = "in tasks"
        raise ExceptionGroup(message, [KeyError("x"), OSError(28, "full")])

    with pytest.raises(ExceptionGroup):
        ending.run("program", bug)
    with pytest.raises(SystemExit) as ended:
        ending.run("program", lambda: sys.exit(3))
    assert ended.value.code == 3
    ending.run("program", lambda: None)
