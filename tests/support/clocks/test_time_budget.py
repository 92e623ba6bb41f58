"""A run fails if its tests cost more than their tier may, and names them."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.clocks.time_budget import FILE, Budget, budget_of, exceeded
from tests.support.repository import ROOT

WORKS: Final = """
import subprocess, sys, time

def works(seconds):
    until_s = time.process_time() + seconds
    while time.process_time() < until_s:
        pass

def test_quick():
    pass

def test_works():
    works({seconds})
"""


def run_of(folder: Path, seconds: float, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(WORKS.format(seconds=seconds), encoding="utf-8")
    (folder / "budget.toml").write_text("[unit]\nsum_s = 10\nlongest_s = 0.1\n", encoding="utf-8")
    plugin = ["-p", "tests.support.clocks.time_budget", "--budget=unit", f"--budget-file={folder / 'budget.toml'}"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", *plugin, *options]
    return subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize("options", [("-n0",), ("-n2",)], ids=["one process", "workers"])
def test_a_test_that_costs_too_much_fails_the_run_and_is_named(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run_of(tmp_path, 0.5, *options)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "test_it.py::test_works: " in done.stdout
    assert " s, more than the 0.1 s that it may cost" in done.stdout
    assert "test_quick" not in done.stdout


BUDGET: Final = Budget(sum_s=10, longest_s=3, longer={"long": 5})


@pytest.mark.parametrize(
    ("tests", "shared_s", "lines"),
    [
        pytest.param({"a": 3.0, "long": 5.0}, 2.0, [], id="just"),
        pytest.param({"a": 3.1}, 0.0, ["a: 3.1 s, more than the 3 s that it may cost"], id="one test"),
        pytest.param(
            {"long": 5.1}, 0.0, ["long: 5.1 s, more than the 5 s that it may cost"], id="one that may cost more"
        ),
        pytest.param(
            {"a": 3.0}, 8.0, ["all tests: 11 s, more than the 10 s that they may cost together"], id="with fixtures"
        ),
    ],
)
def test_what_costs_too_much_is_told(tests: dict[str, float], shared_s: float, lines: list[str]) -> None:
    assert exceeded(BUDGET, tests, shared_s) == lines


def test_no_test_of_the_first_tier_may_take_longer_than_twenty_seconds() -> None:
    assert budget_of("unit", FILE).longest_s <= 20
    assert budget_of("unit", FILE).longer == {}
