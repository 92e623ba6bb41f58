"""What a log line looks like, for a person and for a program: as the process writes it."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from tests.support.hostile import HOSTILE
from tests.support.repository import ROOT

LINES = """
import structlog
from scheduler.process.logs import configure
configure("{level}", "auto")
log = structlog.get_logger()
log.info("pod.bound", node="a", attempt=3, pod="default/p")
log.debug("pod.rejected", nodes={{"a": ["no room"]}}, pod="default/p")
"""
COMMAND = """
import sys
import structlog
from {module} import main
sys.argv = ["x", "--help"]
try:
    main()
except SystemExit:
    pass
structlog.get_logger().info("certificates_changed")
structlog.get_logger().warning("not_renewed", reason="\\x9b2J")
"""
HOSTILE_LINES = """
import structlog
from scheduler.process.logs import configure
from tests.support.hostile import HOSTILE
configure("{level}", "auto")
log = structlog.get_logger()
log.warning("object.bad", **{{"name": HOSTILE, "key" + HOSTILE: [HOSTILE], "path": HOSTILE.encode()}})
try:
    raise ValueError(HOSTILE)
except ValueError:
    log.exception("bug")
"""


def written(level: str = "debug", *, terminal: bool = False, lines: str = LINES) -> list[str]:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    try:
        command = [sys.executable, "-c", lines.format(level=level)]
        subprocess.run(command, stderr=theirs, env={"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}, check=True)
        return os.read(ours, 65536).decode().splitlines()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_container_gets_json_in_the_order_time_level_event_pod() -> None:
    first, second = written()
    assert list(json.loads(first)) == ["timestamp", "level", "event", "pod", "node", "attempt"]
    assert json.loads(second)["nodes"] == {"a": ["no room"]}


def test_a_person_at_a_terminal_gets_text_in_the_same_order() -> None:
    first, _ = written(terminal=True)
    first = re.sub(r"\x1b\[[0-9;]*m", "", first)
    places = [first.index(part) for part in ("info", "pod.bound", "pod=", "node=", "attempt=")]
    assert places == sorted(places)
    assert not first.startswith("{")


def test_text_of_others_makes_no_terminal_obey_and_begins_no_line() -> None:
    said = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in written(terminal=True, lines=HOSTILE_LINES)]
    assert all(line.isprintable() for line in said)
    assert not [line for line in said if line.startswith("FAKE")]
    assert sum("x?[2J" in line for line in said) > 1


def test_a_program_reads_in_json_what_was_there() -> None:
    bad, bug = written(lines=HOSTILE_LINES)
    assert (bad.isprintable(), bug.isprintable()) == (True, True)
    assert json.loads(bad)["name"] == HOSTILE
    assert HOSTILE.partition("\r")[0] in json.loads(bug)["exception"]


def test_the_level_says_the_least_that_is_written() -> None:
    assert len(written("info")) == 1


@pytest.mark.parametrize("module", ["scheduler.main", "scheduler.tools.kubectl.main", "deviceplugin.main"])
def test_what_a_command_logs_is_no_part_of_its_answer(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", COMMAND.format(module=module)],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "not_renewed" not in ran.stdout
    (line,) = ran.stderr.splitlines()
    assert (line.isprintable(), json.loads(line)["reason"]) == (True, "\x9b2J")
