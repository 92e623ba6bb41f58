"""A container with another card, and a card with too much on it, are found when they are planted."""

import subprocess
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from e2e.fire.on_cards import OnCards
from e2e.fire.test_witness import CARD, bound, pod
from e2e.node.containers import RunningContainer

PODS: Final = {uid: bound(pod(uid)) for uid in "uv"}


@pytest.fixture
def run() -> Iterator[Callable[..., RunningContainer]]:
    """Containers as processes of this machine, which end with the test."""
    started = []

    def one(uid: str, cards: str = CARD, units: int = 10) -> RunningContainer:
        inside = {"GPUSHARE_CARD_UUIDS": cards, "ALIYUN_COM_GPU_MEM_CONTAINER": str(units)}
        process = subprocess.Popen(["/bin/sleep", "60"], env=inside)
        started.append(process)
        running = RunningContainer(uid, "c", process.pid, inside)
        # The kernel wakes who started it before its environment can be read.
        while not running.still_runs():
            assert process.poll() is None
        return running

    yield one
    for process in started:
        process.kill()
        process.wait()


def test_a_container_on_the_card_of_its_pod_is_well(run: Callable[..., RunningContainer]) -> None:
    on_cards = OnCards(16)
    on_cards.look([run("u"), run("w", cards="")], PODS)
    assert (on_cards.faults, len(on_cards.looked), on_cards.most) == ([], 1, {CARD: 10})


@pytest.mark.parametrize(("cards", "units"), [("GPU-n-0-1", 10), (CARD, 9), (f"{CARD},GPU-n-0-1", 10)])
def test_a_container_that_has_not_what_its_pod_was_given_is_found(
    run: Callable[..., RunningContainer], cards: str, units: int
) -> None:
    on_cards = OnCards(16)
    on_cards.look([run("u", cards, units)], PODS)
    (fault,) = on_cards.faults
    assert fault.startswith("u/c has {")
    assert fault.endswith("its pod's annotations say {'GPU-n-0-0': 10}")


def test_a_container_on_a_card_without_an_allocation_is_found(run: Callable[..., RunningContainer]) -> None:
    on_cards = OnCards(16)
    on_cards.look([run("u")], {"u": pod("u")})
    assert on_cards.faults[0].startswith("u/c runs on cards, and its pod has no allocation")


def test_a_card_with_more_on_it_than_it_has_is_found(run: Callable[..., RunningContainer]) -> None:
    on_cards = OnCards(16)
    on_cards.look([run("u"), run("v")], PODS)
    assert on_cards.faults == [f"on card {CARD} of 16 units run {{'u/c': 10, 'v/c': 10}}"]


def test_a_container_that_has_ended_meanwhile_holds_nothing(run: Callable[..., RunningContainer]) -> None:
    on_cards, ended = OnCards(16), run("u")
    subprocess.run(["/bin/kill", "-9", str(ended.pid)], check=True)
    while ended.still_runs():
        pass
    on_cards.look([ended, run("v")], PODS)
    assert (on_cards.faults, on_cards.most) == ([], {CARD: 10})
