"""Told to stop in its first moment, each program stops."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.repository import ROOT


@pytest.mark.parametrize("program", ["scheduler.main", "deviceplugin.main"])
def test_a_sigterm_that_comes_before_anything_is_imported_ends_it(program: str) -> None:
    """A handler of its own: the kernel keeps a SIGTERM without one from the first process of a container."""
    command = [sys.executable, "-m", program, "run"]
    child = subprocess.Popen(command, cwd=ROOT, env=dict(os.environ), stderr=subprocess.PIPE)
    give_up_at_s = time.monotonic() + 20
    while not handles_sigterm(child.pid) and time.monotonic() < give_up_at_s:
        time.sleep(0.001)
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=20)
    assert (child.returncode, said) == (0, b"")


def handles_sigterm(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)
