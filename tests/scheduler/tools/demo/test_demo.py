"""The demo: its run, its picture, and that its claims would say otherwise of another course of events."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
from io import StringIO
from typing import Final

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner, Result

from config.protocol import names
from config.protocol.inventory import Health
from scheduler.pods.gpu_request import ResourceNames
from scheduler.program import cli
from scheduler.state.cards.booking import CardShare
from scheduler.state.ledger import NodeLedger
from scheduler.state.tables import Tables
from scheduler.testing.cluster.checker import ClusterChecker, ObservedBinding
from scheduler.testing.cluster.world import World
from scheduler.tools.demo.claims import Assertion, Evidence, claims
from scheduler.tools.demo.demo_log import LogLine, LogTone
from scheduler.tools.demo.picture import Painter, Scene
from tests.support.builders import card, manifest, pod, wire_node
from tests.support.reported import STANDING
from tests.support.repository import ROOT

COMMAND: Final = (sys.executable, "-m", "scheduler.main", "demo", "--speed", "100")


@pytest.fixture(scope="module")
def demo() -> Result:
    return CliRunner().invoke(cli, ["demo", "--speed", "100"])


def lines(demo: Result) -> list[str]:
    return [line.strip() for line in demo.stdout.splitlines()]


def test_it_ends_on_its_own_and_every_claim_is_true(demo: Result) -> None:
    assert (demo.exit_code, demo.exception) == (0, None)
    claims = demo.stdout.partition("What this demo showed (each line was checked):\n")[2].splitlines()
    assert len(claims) == 13
    assert [claim for claim in claims if not claim.startswith("+ ")] == []


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


def test_with_loop_it_starts_over_until_it_is_interrupted() -> None:
    with subprocess.Popen([*COMMAND, "--loop"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
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
        "choose another port, or 0 for any free one\n"
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


WIDTH: Final = 64  # leaves 20 columns for the bars


def tables() -> Tables:
    """Node a: 20 units with 5 of one and 10 of another, and an unhealthy card of 10; node b: one empty card of 8."""
    made = Tables(ResourceNames(), 1024)
    made.upsert_node(wire_node("a", [card(0, 20, model="NVIDIA-A100-SXM4-80GB"), card(1, 10, health=Health.UNHEALTHY)]))
    made.upsert_node(wire_node("b", [8]))
    for name, units in (("one", 5), ("another", 10)):
        made.assume(pod(name, units), made.row_of["a"], (CardShare(0, "GPU-a-0", units),))
    return made


def painted(picture: RenderableType, width: int = WIDTH) -> list[str]:
    out = StringIO()
    Console(file=out, width=width).print(picture)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def scene(waiting: dict[str, str] | None = None, lines: int = 0) -> Scene:
    told = [LogLine(float(number), LogTone.BOUND, f"pod-{number} to a") for number in range(lines)]
    return Scene("title", tables(), waiting or {}, told)


def test_each_pod_has_its_share_of_the_bar_with_its_name() -> None:
    assert painted(Painter().cards(tables(), WIDTH))[1:] == [
        "a    0 A100 one ▕another  ▕····· 15/20 healthy",
        "     1 M    xxxxxxxxxxxxxxxxxxxx  0/10 unhealthy",
        "b    0 M    ····················   0/8 healthy",
    ]


def test_the_picture_never_has_more_lines_than_there_are() -> None:
    waiting = {f"pod-{number}": "0/2 nodes are available: " + "words " * 20 for number in range(9)}
    for width in (70, 140):
        for height in (14, 24, 50):
            assert len(painted(Painter().whole(scene(waiting, 90), width, height), width)) <= height


def test_waiting_pods_are_shown_without_the_constant_part_of_the_message() -> None:
    reason = "0/2 nodes are available: 2 Insufficient GPU memory on one card: wants 9, most free 8 (of 8)."
    assert "big: 2 Insufficient GPU memory on one card: wants 9, most free" in " ".join(
        painted(Painter().whole(scene({"big": reason}), WIDTH, 40))
    )


CARDS: Final = [CardShare(index, f"GPU-{index}", 3) for index in range(3)]


def evidence(
    *bound: ObservedBinding, ended: list[tuple[str, float]] | None = None, waiting: dict[str, str] | None = None
) -> Evidence:
    """A course of events in an empty world."""
    checker = ClusterChecker(World(lambda: 0.0), ResourceNames(), 1024, clock=STANDING, on_bound=lambda _: None)
    checker.bound += bound
    checker.ended += ended or []
    return Evidence(checker, {}, waiting or {})


def claim(about: str, of: Evidence) -> Assertion:
    (found,) = [one for one in claims(of) if about in one.sentence]
    return found


def test_where_nothing_happened_nothing_is_claimed() -> None:
    holding = [one.sentence for one in claims(evidence()) if one.holds]
    assert holding == ["the scheduler's count of every card matches the API server's objects"]


def test_an_exclusive_card_with_a_second_pod_is_not_claimed() -> None:
    alone, other = ObservedBinding("alone", "a", (CARDS[0],), 1.0), ObservedBinding("other", "a", (CARDS[0],), 2.0)
    assert claim("to itself", evidence(alone, other, ended=[("alone", 1.5)])).holds
    spoilt = claim("to itself", evidence(alone, other, ended=[("alone", 3.0)]))
    assert (spoilt.holds, spoilt.sentence.endswith("but other ran there too")) == (False, True)


def test_a_violation_is_named_where_the_claim_is_false() -> None:
    of = evidence(ObservedBinding("p", "a", (CARDS[0],), 1.0))
    of.checker.writes = 1
    assert claim("no card was", of).holds
    of.checker.violations += ["card GPU-0 of node a is over-committed by 4", "pod p was bound without its card"]
    assert claim("no card was", of).sentence.endswith("1 writes); card GPU-0 of node a is over-committed by 4")
    assert claim("each of 1 bindings", of).sentence.endswith("card was healthy; pod p was bound without its card")
    assert not claim("no card was", of).holds
    assert not claim("each of 1 bindings", of).holds


def test_a_scheduler_that_counts_differently_from_the_api_server_is_caught() -> None:
    world = World(lambda: 0.0)
    checker = ClusterChecker(world, ResourceNames(), 1024, clock=STANDING, on_bound=lambda _: None)
    world.nodes.add(wire_node("a", [16]))
    world.pods.create(manifest("p", 4))
    world.pods.bind("default", "p", "a", {names.MEM_IDX: "0", names.UNIT_MIB: "1024"})
    ledger = checker.ledger()
    assert claim("count of every card", Evidence(checker, ledger, {})).holds
    assert not claim("count of every card", Evidence(checker, {"a": NodeLedger({"GPU-a-0": 16})}, {})).holds
