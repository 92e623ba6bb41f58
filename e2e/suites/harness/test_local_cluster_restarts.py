"""What dies in the local cluster is started again, as a kubelet does it; with programs of the test's own."""

import os
import signal
import sys
from pathlib import Path

import pytest

from e2e.control_plane.processes import Child, start
from e2e.local_cluster.restarts import Restarts, delay_s


@pytest.mark.parametrize(("deaths", "wait_s"), [(0, 0), (1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (9, 300)])
def test_each_death_in_a_row_doubles_the_wait_up_to_five_minutes(deaths: int, wait_s: float) -> None:
    assert delay_s(deaths) == wait_s


def killed(child: Child) -> None:
    os.kill(child.pid, signal.SIGKILL)
    child.process.wait()


def test_a_program_that_dies_is_started_again_at_once_and_then_after_its_back_off(tmp_path: Path) -> None:
    said: list[str] = []
    sleeps = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    dies, stays = (start(name, sleeps, tmp_path / name, {}) for name in ("dies", "stays"))
    stays_pid, restarts = stays.pid, Restarts([dies, stays], said.append, 0.0)
    try:
        first = dies.pid
        restarts.look(1.0)
        assert dies.pid == first

        killed(dies)
        restarts.look(2.0)
        second = dies.pid
        assert second != first
        dies.check_alive()

        killed(dies)
        restarts.look(3.0)
        restarts.look(12.9)
        assert dies.process.poll() == -signal.SIGKILL
        restarts.look(13.0)
        dies.check_alive()

        killed(dies)
        restarts.look(613.0)  # it has run for ten minutes
        dies.check_alive()
        assert stays.pid == stays_pid
        assert said == [f"dies ended with exit code -9; starting it again in {wait} s" for wait in (0, 10, 0)]
    finally:
        for child in (dies, stays):
            child.kill()


def test_a_program_that_ends_at_each_start_is_not_started_all_the_time(tmp_path: Path) -> None:
    said: list[str] = []
    fails = start("fails", [sys.executable, "-c", "import sys; sys.exit(3)"], tmp_path / "log", {})
    restarts, starts = Restarts([fails], said.append, 0.0), {fails.pid}
    for now_s in range(120):
        fails.process.wait()
        restarts.look(float(now_s))
        starts.add(fails.pid)
    fails.process.wait()
    assert len(starts) == 5
    assert {line.split(";")[0] for line in said} == {"fails ended with exit code 3"}
