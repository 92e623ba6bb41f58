"""The demo as a program whose output is not a terminal, at a hundred times its speed."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from scheduler.program import cli
from tests.support.repository import ROOT

COMMAND: Final = (sys.executable, "-m", "scheduler.main", "demo", "--speed", "100")


@pytest.fixture(scope="module")
def demo() -> Result:
    return CliRunner().invoke(cli, ["demo", "--speed", "100"])


def lines(demo: Result) -> list[str]:
    return [line.strip() for line in demo.stdout.splitlines()]


def test_it_ends_on_its_own_and_every_claim_is_true(demo: Result) -> None:
    assert (demo.exit_code, demo.exception) == (0, None)
    claims = demo.stdout.partition("What this showed, each line checked:\n")[2].splitlines()
    assert len(claims) == 13
    assert [claim for claim in claims if not claim.startswith("+ ")] == []


@pytest.mark.parametrize(
    "sentence",
    [
        r"three replicas of 3 GiB share one card: card 0 of node a10, GPU-[-0-9a-f]{36}",
        r"a pod that requests 30 GiB over two cards got 15 GiB on card 0 and 15 GiB on card 1 of node a100",
        r"an exclusive pod had card 0 of node t4 to itself until it ended",
        r"a pod that waited for memory was bound \d+ ms after notebook-0 finished",
        r"while card 1 of node t4 was unhealthy \(XID 79\), pods bound to other cards: 1, to it: 0",
        r"a pod that waited for that card was bound to it \d+ ms after it recovered",
        r"a node without an inventory, counted as equal cards, took 2 pods on cards 0 and 1",
        r"a pod that excludes Tesla-T4 went to node a100",
        r"too-big waits and says why: .*: 4 Insufficient GPU memory on one card: wants 100, most free 19 \(of 79\)\.",
        r"odd waits and says why: .* asks 5, which does not divide by aliyun.com/gpu-count 2; .*",
        r"no card was ever over-committed: recounted after each of 50 writes",
        r"each of 31 bindings wrote node and card at once, to a healthy card",
        r"the scheduler's count of every card matches the API server's objects",
    ],
)
def test_what_it_showed_is_listed_at_the_end(demo: Result, sentence: str) -> None:
    assert [line for line in lines(demo) if re.fullmatch(rf"\+ {sentence}", line)]


def test_without_a_terminal_each_decision_and_each_event_is_a_line(demo: Result) -> None:
    told = lines(demo)
    assert "0.0s bound   binpack-0 to a10, card 0 (3)" in told
    assert "5.4s cluster pod default/notebook-0 finished" in told
    assert "6.4s cluster card 1 of node t4 reports XID 79: unhealthy" in told
    assert "10.2s cluster card 1 of node t4 is back" in told
    assert "10.2s bound   needs-t4 to t4, card 1 (8)" in told


def test_the_final_table_shows_the_pods_on_their_cards(demo: Result) -> None:
    (a10,) = [line for line in lines(demo) if line.startswith("a10 ")]
    assert re.match(r"a10 +0 A10 +binpack.*serve-2", a10)
    assert a10.endswith("21/22 healthy")


def test_nothing_else_is_printed(demo: Result) -> None:
    assert demo.stderr == ""
    assert "\x1b" not in demo.stdout


def test_with_keep_it_starts_over_until_it_is_interrupted() -> None:
    with subprocess.Popen([*COMMAND, "--keep"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "the demo starts over" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stdout.read()
    assert process.returncode == 0
    assert "+ no card was ever over-committed" in rest


def test_when_interrupted_it_claims_nothing() -> None:
    command = [*COMMAND[:-1], "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130
    assert "What this showed" not in rest


def test_a_port_that_is_taken_is_one_line_that_says_what_to_do_and_nothing_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = CliRunner().invoke(cli, ["demo", "--serve", str(port)])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"gpushare-scheduler: cannot serve the page on port {port}: address already in use; "
        "choose another with --serve, or 0 for any free one\n"
    )


def test_in_a_terminal_there_is_a_picture_and_the_summary_below_it() -> None:
    controller, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    shown = b""
    with subprocess.Popen(COMMAND, cwd=ROOT, stdout=terminal, stdin=terminal, env=environment) as process:
        os.close(terminal)
        while chunk := _read(controller):
            shown += chunk
    os.close(controller)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert process.returncode == 0
    assert "NODE CARD   PODS" in text
    assert "LAST DECISIONS" in text
    assert text.rstrip().endswith("+ the scheduler's count of every card matches the API server's objects")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other end is closed
        return b""
