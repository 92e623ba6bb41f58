"""Limits the cost of a tier of tests: `--budget TIER` compares with tests/budget.toml. A pytest plugin, for xdist too.

A test costs the larger of two times: the processor time of its process and its ended children, and the time in which
nothing on the machine waited for a processor. So a test that sleeps costs its sleep, and a busy machine adds nothing.
Both are divided by the current slowness of the processor (`machine_speed`). Fixtures count in the sum, but in no single
test.
"""

import os
import time
import tomllib
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.support.clocks.machine_speed import slowness
from tests.support.repository import ROOT

FILE: Final = ROOT / "tests/budget.toml"
_PRESSURE: Final = Path("/proc/pressure/cpu")
# The speed is measured again after a test of this many seconds; that takes a few milliseconds.
_WORTH_MEASURING_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Budget:
    """Budget of one tier. longer: higher limits of single tests, by their IDs."""

    sum_s: float
    longest_s: float
    longer: Mapping[str, float] = field(default_factory=dict)


def budget_of(tier: str, file: Path = FILE) -> Budget:
    return Budget(**tomllib.loads(file.read_text(encoding="utf-8"))[tier])


def exceeded(budget: Budget, tests: Mapping[str, float], shared_s: float) -> list[str]:
    """Return a line for each test that costs too much, and one for the sum. shared_s: of fixtures."""
    lines = [
        f"{test}: {cost_s:.1f} s, more than the {most_s:g} s that it may cost"
        for test, cost_s in sorted(tests.items())
        if cost_s > (most_s := budget.longer.get(test, budget.longest_s))
    ]
    sum_s = sum(tests.values()) + shared_s
    if sum_s > budget.sum_s:
        lines.append(f"all tests: {sum_s:.0f} s, more than the {budget.sum_s:g} s that they may cost together")
    return lines


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment. processor_s: of this process and ended children. unhurried_s: grows while nothing waits for a CPU."""

    processor_s: float
    unhurried_s: float

    @classmethod
    def now(cls) -> "Moment":
        used = os.times()
        processor_s = used.user + used.system + used.children_user + used.children_system
        return cls(processor_s, time.monotonic() - _waited_s())

    def cost_s(self, since: "Moment") -> float:
        return max(self.processor_s - since.processor_s, self.unhurried_s - since.unhurried_s, 0.0)


def _waited_s() -> float:
    """Return the seconds in which something here waited for a processor; all of them if Linux does not report it."""
    try:
        some = _PRESSURE.read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return time.monotonic()
    return int(some.rpartition("total=")[2]) / 1e6


class Measuring:
    """Plugin in the process that runs the tests: adds `cost_s` to each report."""

    def __init__(self) -> None:
        self._slowness = slowness()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        return (yield from self._measured(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        return (yield from self._measured(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        return (yield from self._measured(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        vars(report)["cost_s"] = item.stash.get(_COST, 0.0)
        return report

    def _measured(self, item: pytest.Item) -> Generator[None]:
        began = Moment.now()
        try:
            return (yield)
        finally:
            cost_s = Moment.now().cost_s(began)
            if cost_s > _WORTH_MEASURING_S:
                self._slowness = slowness()
            item.stash[_COST] = cost_s / self._slowness


_COST: Final = pytest.StashKey[float]()


class Comparing:
    """Plugin in the process that collects the reports: fails the run if they cost more than the budget."""

    def __init__(self, tier: str, budget: Budget) -> None:
        self._tier, self._budget = tier, budget
        self._tests: defaultdict[str, float] = defaultdict(float)
        self._shared_s = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost_s: float = vars(report).get("cost_s", 0.0)
        if report.when == "call":
            self._tests[report.nodeid] += cost_s
        else:
            self._shared_s += cost_s

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and exceeded(self._budget, self._tests, self._shared_s):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        sum_s = sum(self._tests.values()) + self._shared_s
        terminalreporter.section(f"budget of {self._tier}: {sum_s:.0f} of {self._budget.sum_s:g} s")
        for line in exceeded(self._budget, self._tests, self._shared_s):
            terminalreporter.line(line, red=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", metavar="TIER", help="fail if tests cost more than tests/budget.toml allows the tier")
    parser.addoption("--budget-file", type=Path, default=FILE, help="read the budget there (default: %(default)s)")


def pytest_configure(config: pytest.Config) -> None:
    tier: str | None = config.getoption("--budget")
    if tier is None:
        return
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Comparing(tier, budget_of(tier, config.getoption("--budget-file"))))
    config.pluginmanager.register(Measuring())
