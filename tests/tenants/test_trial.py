"""The harness itself: it shows a scheduler that is slow, one that ends, one that keeps what it should forget."""

import pytest

from scheduler.core.scheduling_cycle import Outcome, SchedulingCycle
from scheduler.kube import objects
from scheduler.pods.pod import Pod, PodReader
from tests.support.working_time import working_loop
from tests.tenants.attack import NAMESPACE, Attack, Tenant, pod
from tests.tenants.trial import run_trial


async def nothing(_tenant: Tenant) -> None:
    """The tenant sleeps."""


async def a_hundred_pods(tenant: Tenant) -> None:
    await tenant.creates(pod(f"p-{number}", 1) for number in range(100))


QUIET = Attack(name="nothing at all", acts=nothing)
ORDINARY = Attack(name="a hundred pods", acts=a_hundred_pods)


def works_for(seconds: float) -> None:
    loop = working_loop()
    until_s = loop.time() + seconds
    while loop.time() < until_s:
        pass


def test_without_an_attack_nothing_changes() -> None:
    figures = run_trial(QUIET)
    assert figures.during_s < 1.5 * figures.quiet_s
    assert abs(figures.after - figures.before) < 100_000
    assert (figures.waiting, figures.bound, figures.writes, figures.ended) == (0, 0, {}, "")


def test_a_scheduler_that_takes_ten_milliseconds_for_each_pod_of_the_attacker_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decide = SchedulingCycle.schedule

    def slowly(self: SchedulingCycle, found: Pod, now_ns: int, nominated: str = "") -> Outcome:
        if found.key.namespace == NAMESPACE:
            works_for(0.01)
        return decide(self, found, now_ns, nominated)

    monkeypatch.setattr(SchedulingCycle, "schedule", slowly)
    figures = run_trial(ORDINARY)
    assert figures.during_s > 0.1
    assert figures.quiet_s < 0.05


def test_one_hold_of_the_loop_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    read = PodReader.read

    def holds(self: PodReader, wire: objects.PodObject) -> Pod:
        if wire.metadata.name == "p-50" and not wire.spec.node_name:
            works_for(0.2)
        return read(self, wire)

    monkeypatch.setattr(PodReader, "read", holds)
    assert run_trial(ORDINARY).during_s > 0.1


def test_a_scheduler_that_ends_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    read = PodReader.read

    def fails(self: PodReader, wire: objects.PodObject) -> Pod:
        if wire.metadata.name == "p-50":
            raise KeyError(wire.metadata.name)
        return read(self, wire)

    monkeypatch.setattr(PodReader, "read", fails)
    figures = run_trial(ORDINARY)
    assert "p-50" in figures.ended
    assert figures.during_s > 0.1


def test_what_a_scheduler_keeps_of_pods_that_are_gone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    read = PodReader.read

    def keeps(self: PodReader, wire: objects.PodObject) -> Pod:
        if wire.metadata.namespace == NAMESPACE:
            self.__dict__.setdefault("kept", []).append(bytes(10_000))
        return read(self, wire)

    monkeypatch.setattr(PodReader, "read", keeps)
    figures = run_trial(ORDINARY)
    assert figures.after - figures.before > 100 * 10_000
    assert figures.during - figures.before > 100 * 10_000
