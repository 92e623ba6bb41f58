"""What a log line looks like, for a person and for a program: as the process writes it."""

import json
import os
import pty
import re
import subprocess
import sys

from tests.support.repository import ROOT

LINES = """
import structlog
from scheduler.process.logs import configure
configure("{level}", "auto")
log = structlog.get_logger()
log.info("pod.bound", node="a", attempt=3, pod="default/p")
log.debug("pod.rejected", nodes={{"a": ["no room"]}}, pod="default/p")
"""


def written(level: str = "debug", *, terminal: bool = False) -> list[str]:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    try:
        command = [sys.executable, "-c", LINES.format(level=level)]
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


def test_the_level_says_the_least_that_is_written() -> None:
    assert len(written("info")) == 1
