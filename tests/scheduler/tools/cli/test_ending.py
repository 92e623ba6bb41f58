"""Commands whose output nobody reads, that cannot be written, or that are interrupted: no traceback, its own code."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.tools.cli import ending
from tests.support.builders import wire_node
from tests.support.listing_server import listing
from tests.support.repository import ROOT

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
