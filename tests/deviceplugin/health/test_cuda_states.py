"""CUDA on the cards of a node: when it is tried, and which cards may take pods by what it answers."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from config.protocol.inventory import Health
from deviceplugin.driver.calls import Worker
from deviceplugin.driver.cards import CardFailed, CardReading, DriverCard, DriverCards, NoAnswer
from deviceplugin.driver.cuda import CudaAnswer
from deviceplugin.driver.supervisor import SupervisedDriver
from deviceplugin.health.cuda import CudaTrial, TrialPace, next_s
from deviceplugin.health.cuda_watch import CudaWatch
from deviceplugin.health.rules import classes
from deviceplugin.health.states import CardStates, as_reported, health_changes
from scheduler.process.clock import Clock

HEALTHY = (Health.HEALTHY, "")
UNTRIED = (Health.SUSPECT, "cuda-untried")
STARTS, NO_DEVICE, NO_UVM = CudaAnswer(0), CudaAnswer(100), CudaAnswer(999)
NO_LIBRARY = CudaAnswer(lacking="libcuda.so.1: cannot open shared object file")
GOOD = CardReading(used_mib=0)


def cards(*uuids: str, minor: int = 0) -> tuple[DriverCard, ...]:
    return tuple(DriverCard(index=i, uuid=u, model="M", memory_mib=1024, minor=minor + i) for i, u in enumerate(uuids))


def states(*uuids: str) -> CardStates:
    """Cards that answer, and on which CUDA has not been tried."""
    made = CardStates(classes((), ()), tries_cuda=True)
    made.found(DriverCards("580", cards(*uuids)), forget=True)
    made.answered(dict.fromkeys(uuids, GOOD), 0.0)
    return made


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (NO_UVM, (Health.SUSPECT, "cuda-999")),
        (CudaAnswer(802), (Health.SUSPECT, "cuda-802")),
        (CudaAnswer(detail="died"), (Health.SUSPECT, "cuda-silent")),
        (NO_LIBRARY, HEALTHY),
    ],
)
def test_a_card_on_which_cuda_fails_is_out_of_use_alone(answer: CudaAnswer, health: tuple[Health, str]) -> None:
    found = states("GPU-a", "GPU-b")
    found.tried("GPU-a", answer, 1.0)
    found.tried("GPU-b", STARTS, 1.0)
    assert found.announced() == {"GPU-a": health, "GPU-b": HEALTHY}
    assert found.cuda_problem() == ""
    assert len(found.cuda_problems()) == (health != HEALTHY)


def test_where_cuda_starts_on_no_card_the_node_shares_nothing() -> None:
    found = states("GPU-a", "GPU-b")
    found.tried("GPU-a", NO_UVM, 1.0)
    assert found.cuda_problem() == ""
    found.tried("GPU-b", NO_UVM, 1.0)
    assert found.cuda_problem().startswith("CUDA does not start on any card: /dev/nvidia-uvm is missing")
    assert found.cuda_problem().count("nvidia-modprobe -u -c=0") == 1
    found.tried("GPU-b", STARTS, 2.0)
    assert found.cuda_problem() == ""


@pytest.mark.parametrize(
    ("answer", "health"),
    [(NO_LIBRARY, (Health.SUSPECT, "fabric-not-started")), (STARTS, HEALTHY), (NO_UVM, (Health.SUSPECT, "cuda-999"))],
    ids=["CUDA cannot be tried", "CUDA starts", "CUDA fails"],
)
def test_the_fabric_counts_where_cuda_cannot_be_tried(answer: CudaAnswer, health: tuple[Health, str]) -> None:
    found = states("GPU-a", "GPU-b")
    found.answered({"GPU-a": CardReading(used_mib=0, fabric="not-started")}, 1.0)
    found.tried("GPU-a", answer, 1.0)
    assert found.announced()["GPU-a"] == health


def test_a_failing_fabric_of_every_card_names_the_fabric_manager() -> None:
    found = states("GPU-a")
    found.answered({"GPU-a": CardReading(used_mib=0, fabric="in-progress")}, 1.0)
    found.tried("GPU-a", NO_LIBRARY, 1.0)
    assert "systemctl status nvidia-fabricmanager" in found.cuda_problem()


def test_what_is_wrong_with_the_card_itself_is_said_first() -> None:
    found = states("GPU-a", "GPU-b")
    found.tried("GPU-a", NO_UVM, 1.0)
    for _ in range(3):
        found.unanswered(["GPU-a"], 1.0)
    assert found.announced()["GPU-a"] == (Health.SUSPECT, "silent")


def test_split_lost_silent_and_released_cards_are_not_tried() -> None:
    found = states("GPU-a", "GPU-b", "GPU-c")
    split = DriverCard(index=3, uuid="GPU-m", model="M", memory_mib=0, mig=True)
    found.found(DriverCards("580", (*cards("GPU-a", "GPU-b", "GPU-c"), split)), forget=False)
    found.unanswered(["GPU-b"], 1.0)
    found.answered({"GPU-a": GOOD, "GPU-c": CardFailed("gone", lost=True)}, 1.0)
    assert set(found.to_try()) == {"GPU-a"}
    found.release(["GPU-b"], 100.0)
    assert found.to_try() == {}


def test_a_card_that_was_released_has_to_show_again_that_cuda_starts() -> None:
    """Reset meanwhile, or split and joined."""
    found = states("GPU-a", "GPU-b")
    for uuid in ("GPU-a", "GPU-b"):
        found.tried(uuid, STARTS, 1.0)
    found.release(["GPU-a"], 100.0)
    found.release(["GPU-a"], None)
    assert found.announced() == {"GPU-a": UNTRIED, "GPU-b": HEALTHY}


def test_a_split_card_is_never_suspect() -> None:
    found = states("GPU-a")
    split = DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=0, mig=True)
    for _ in range(3):
        found.unanswered(["GPU-a"], 1.0)
    found.found(DriverCards("580", (split,)), forget=False)
    assert found.announced() == {"GPU-a": HEALTHY}
    found.release(["GPU-a"], 100.0)
    assert found.announced() == {"GPU-a": (Health.SUSPECT, "released")}


def test_another_driver_or_device_node_is_tried_again_at_once() -> None:
    found = states("GPU-a", "GPU-b")
    for uuid in ("GPU-a", "GPU-b"):
        found.tried(uuid, STARTS, 5.0)
    moved = (*cards("GPU-a"), *cards("GPU-b", minor=4))
    found.found(DriverCards("580", moved), forget=False)
    assert found.to_try() == {"GPU-a": 605.0, "GPU-b": float("-inf")}
    found.found(DriverCards("590", moved), forget=False)
    assert set(found.to_try().values()) == {float("-inf")}


def test_a_trial_is_repeated_soon_after_a_failure_and_seldom_otherwise() -> None:
    pace = TrialPace(failed_s=15, seldom_s=600)
    assert next_s(CudaTrial(NO_UVM, 10.0), "", pace) == 25.0
    assert next_s(CudaTrial(STARTS, 10.0), "", pace) == 610.0
    assert next_s(CudaTrial(NO_LIBRARY, 10.0), "", pace) == 610.0
    assert next_s(CudaTrial(STARTS, 10.0), "not-started", pace) == float("-inf")
    assert next_s(CudaTrial(STARTS, 10.0, "not-started"), "not-started", pace) == 610.0


def news(found: CardStates, known: dict[str, tuple[Health, str]]) -> list[str]:
    """Reasons of the changes that are reported; `known` is up to date afterwards."""
    now = as_reported(known, found.announced())
    changes = health_changes(found.cards, known, now)
    known.update(now)
    return [change.now[1] for change in changes]


def test_a_card_that_is_reclaimed_is_reported_once_it_may_take_pods() -> None:
    found, known = states("GPU-a"), dict[str, tuple[Health, str]]()
    found.release(["GPU-a"], 100.0)
    assert news(found, known) == ["released"]
    found.release(["GPU-a"], None)
    assert news(found, known) == []
    found.answered({"GPU-a": GOOD}, 1.0)
    found.tried("GPU-a", STARTS, 1.0)
    assert (news(found, known), found.announced()) == ([""], {"GPU-a": HEALTHY})


def test_a_failure_is_reported_as_over_after_another_driver_has_shown_it() -> None:
    found, known = states("GPU-a"), dict[str, tuple[Health, str]]()
    found.tried("GPU-a", NO_UVM, 1.0)
    assert news(found, known) == ["cuda-999"]
    found.found(DriverCards("590", cards("GPU-a")), forget=False)
    assert (news(found, known), found.announced()) == ([], {"GPU-a": UNTRIED})
    found.tried("GPU-a", STARTS, 2.0)
    assert news(found, known) == [""]


def test_after_a_restart_the_other_cards_take_pods_while_one_is_released() -> None:
    """CUDA is not tried meanwhile, and that may last a day."""
    found = states("GPU-a", "GPU-b", "GPU-c")
    found.release(["GPU-a"], 86_400.0)
    found.answered({"GPU-c": CardReading(used_mib=0, fabric="not-started")}, 1.0)
    assert found.announced() == {
        "GPU-a": (Health.SUSPECT, "released"),
        "GPU-b": HEALTHY,
        "GPU-c": (Health.SUSPECT, "fabric-not-started"),
    }
    found.release(["GPU-a"], None)
    assert found.announced()["GPU-b"] == UNTRIED


def test_a_container_waits_for_a_driver_that_has_not_answered_yet() -> None:
    """A remembered card has not been tried either."""
    found = CardStates(classes((), ()), tries_cuda=True)
    found.remember(cards("GPU-a"))
    assert "card GPU-a: CUDA is still being tested on it" in found.start_problem(["GPU-a"])


def test_a_container_does_not_start_before_cuda_was_tried_on_its_cards_and_not_where_that_fails() -> None:
    found = states("GPU-a", "GPU-b")
    assert "card GPU-a: CUDA is still being tested on it" in found.start_problem(["GPU-a"])
    assert found.untried()
    found.tried("GPU-a", STARTS, 1.0)
    found.tried("GPU-b", NO_UVM, 1.0)
    assert (found.start_problem(["GPU-a"]), found.untried()) == ("", False)
    assert "card GPU-b: CUDA does not start on it: /dev/nvidia-uvm" in found.start_problem(["GPU-a", "GPU-b"])


def test_a_plugin_that_remembers_its_cards_is_not_ready_before_one_has_answered() -> None:
    found = CardStates(classes((), ()), tries_cuda=True)
    found.remember(cards("GPU-a"), {})
    assert found.untried()
    found.tries_cuda = False
    assert not found.untried()


@pytest.mark.parametrize("tries_cuda", [True, False])
def test_a_container_starts_where_cuda_cannot_be_tried(tries_cuda: bool) -> None:  # noqa: FBT001 - a table
    found = states("GPU-a", "GPU-b")
    found.tries_cuda = tries_cuda
    found.release(["GPU-a"], 1e9)
    found.tried("GPU-a", NO_LIBRARY, 1.0)
    assert (found.start_problem(["GPU-a", "GPU-b", "GPU-unknown"]), found.untried()) == ("", False)


def test_facts_that_the_driver_fails_to_tell_are_told_of_each_card() -> None:
    found = states("GPU-a", "GPU-b")
    found.cards = (replace(found.cards[0], absent=("Name: no",)), found.cards[1])
    found.answered({"GPU-a": replace(GOOD, absent=("PowerUsage: no",)), "GPU-b": GOOD}, 1.0)
    assert found.absent() == {"GPU-a": ("Name: no", "PowerUsage: no"), "GPU-b": ()}


@dataclass
class Driver(SupervisedDriver):
    """Answers of CUDA, by UUID, and the cards that were tried."""

    answers: dict[str, CudaAnswer | NoAnswer]
    asked: list[str] = field(default_factory=list)

    async def cuda(self, uuid: str) -> CudaAnswer:
        self.asked.append(uuid)
        answer = self.answers[uuid]
        if isinstance(answer, NoAnswer):
            raise answer
        return answer


async def watched(driver: Driver, found: CardStates, changes: Iterable[None]) -> None:
    """Watch until `on_change` was called that often."""
    left, done = list(changes), asyncio.Event()

    def on_change() -> None:
        left.pop()
        if not left:
            done.set()

    watch = CudaWatch(driver=driver, states=found, on_change=on_change, clock=Clock())
    running = asyncio.create_task(watch.run())
    await asyncio.wait_for(done.wait(), 10)
    running.cancel()
    await asyncio.wait({running})


async def test_every_card_is_tried_and_announced_as_it_answers() -> None:
    found, driver = states("GPU-a", "GPU-b"), Driver({"GPU-a": NO_DEVICE, "GPU-b": STARTS})
    await watched(driver, found, [None] * 2)
    assert found.announced() == {"GPU-a": (Health.SUSPECT, "cuda-100"), "GPU-b": HEALTHY}
    assert driver.asked == ["GPU-a", "GPU-b"]


async def test_a_trial_that_was_stopped_leaves_the_card_as_it_was() -> None:
    found, driver = states("GPU-a", "GPU-b"), Driver({"GPU-a": NoAnswer("stopped"), "GPU-b": STARTS})
    await watched(driver, found, [None])
    assert found.announced() == {"GPU-a": UNTRIED, "GPU-b": HEALTHY}


@dataclass
class HangingDriver(Driver):
    """cuInit does not come back on a card without an answer."""

    async def cuda(self, uuid: str) -> CudaAnswer:
        if uuid not in self.answers:
            await asyncio.Event().wait()
        return await super().cuda(uuid)


async def test_cards_behind_one_on_which_cuda_hangs_are_announced_at_once() -> None:
    found, driver = states("GPU-a", "GPU-b", "GPU-c"), HangingDriver({"GPU-b": STARTS, "GPU-c": STARTS})
    await watched(driver, found, [None] * 2)
    assert found.announced() == {"GPU-a": UNTRIED, "GPU-b": HEALTHY, "GPU-c": HEALTHY}


async def test_no_card_is_tried_while_one_is_released() -> None:
    driver = SupervisedDriver(_no_process)
    await driver.release(frozenset({"GPU-a"}))
    with pytest.raises(NoAnswer, match="while a card is released"):
        await driver.cuda("GPU-b")


async def _no_process() -> Worker:
    raise AssertionError
