"""Cards that are not there: what the cluster file says of them, and what can happen to them."""

import json
import threading
import time
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from config.clusterfile import reading
from config.protocol import inventory, names
from config.settings.mistakes import ConfigurationError
from deviceplugin.driver.calls import LONGEST_LINE, Call, Worker
from deviceplugin.driver.cards import (
    EXCLUSIVE_PROCESS,
    CardFailed,
    CardReading,
    DriverCard,
    MemoryLimits,
    NoAnswer,
    SourceFailed,
    Xid,
)
from deviceplugin.driver.process import DriverThreads
from deviceplugin.driver.processes import DriverLimits
from deviceplugin.driver.simulated import (
    BackFault,
    DieFault,
    DriverFault,
    Fault,
    HangFault,
    LimitFault,
    LostFault,
    ResetFault,
    SimulatedDriver,
    SimulationError,
    TimedFault,
    XidFault,
    read_simulation,
)
from deviceplugin.driver.supervisor import SupervisedDriver

T = TypeVar("T")
CARDS = (
    DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=1024),
    DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=2048),
)
CLUSTER = """
nodes:
- name: n
  count: 2
  cards: [{model: A100, memoryMiB: 81559, count: 2, numa: 0, links: NV12}]
- {name: bare}
faults:
- {node: n-1, card: 1, xid: 79, at_s: 5}
- {node: n-1, lost: true, at_s: 9}
- {node: n-0, card: 0, lost: true, at_s: 1}
"""


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def driver(*faults: TimedFault, clock: Clock | None = None) -> SimulatedDriver:
    return SimulatedDriver(CARDS, faults, clock or Clock())


def happen(made: SimulatedDriver, *faults: Fault) -> None:
    for fault in faults:
        made.happen(fault)


def test_a_node_has_the_cards_and_the_faults_that_the_file_has_for_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    cards, faults = read_simulation(path, "n-1")
    (simulated,) = (
        manifest
        for manifest in reading.node_manifests(reading.read(path), 1024)
        if dict(manifest["metadata"])["name"] == "n-1"  # type: ignore[call-overload]
    )
    announced = inventory.decode(simulated["metadata"]["annotations"][names.INVENTORY])  # type: ignore[index]
    assert [card.uuid for card in cards] == [card.uuid for card in announced.cards]
    assert (cards[0].model, cards[0].memory_mib, cards[0].numa, cards[0].links) == ("A100", 81559, 0, {"1": "NV12"})
    assert faults == (TimedFault(5.0, XidFault("1", 79)), TimedFault(9.0, LostFault("")))


@pytest.mark.parametrize("node", ["bare", "other"])
def test_a_node_without_cards_is_refused_with_those_that_have_some(tmp_path: Path, node: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    with pytest.raises(SimulationError, match="nodes with cards: n-0, n-1"):
        read_simulation(path, node)


def test_a_file_with_mistakes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes: [{name: n, cards: [{model: A100, memoryMiB: lots}]}]")
    with pytest.raises(ConfigurationError, match="memoryMiB"):
        read_simulation(path, "n")


ANNOTATED = {"version": 1, "unitMiB": 1024, "cards": [{"index": 0, "uuid": "GPU-x", "units": 4, "memoryMiB": 4096}]}


def annotated(folder: Path, inventory_text: str, card: int) -> Path:
    path = folder / "cluster.yaml"
    node = {"name": "n", "annotations": {names.INVENTORY: inventory_text}}
    path.write_text(json.dumps({"nodes": [node], "faults": [{"node": "n", "card": card, "xid": 79}]}))
    return path


def test_cards_of_an_annotation_are_simulated_too(tmp_path: Path) -> None:
    cards, faults = read_simulation(annotated(tmp_path, json.dumps(ANNOTATED), 0), "n")
    assert [(card.uuid, card.memory_mib) for card in cards] == [("GPU-x", 4096)]
    assert faults == (TimedFault(0.0, XidFault("0", 79)),)


@pytest.mark.parametrize(
    ("inventory_text", "card", "message"),
    [
        pytest.param(json.dumps(ANNOTATED), 7, r"node n: there is no card 7; cards: 0 \(GPU-x\)", id="unknown card"),
        pytest.param("{broken", 0, "node n: inventory cannot be read", id="unreadable"),
    ],
)
def test_a_mistake_in_an_annotation_is_found_before_anything_runs(
    tmp_path: Path, inventory_text: str, card: int, message: str
) -> None:
    with pytest.raises(SimulationError, match=message):
        read_simulation(annotated(tmp_path, inventory_text, card), "n")


def test_faults_happen_at_their_time() -> None:
    clock = Clock()
    made = driver(TimedFault(2.0, XidFault("GPU-b", 79)), TimedFault(1.0, LostFault("0")), clock=clock)
    session = made.opened()
    assert session.read("GPU-a").used_mib == 0
    clock.now_s += 1
    with pytest.raises(CardFailed):
        session.read("GPU-a")
    assert session.wait("GPU-b", 0) == ()
    clock.now_s += 5
    assert session.wait("GPU-b", 0) == (Xid("GPU-b", 79),)


def test_a_lost_card_does_not_answer_and_has_no_errors_until_it_is_back() -> None:
    made = driver()
    session = made.opened()
    happen(made, LostFault("1"), XidFault("1", 48))
    assert session.wait("GPU-b", 0) == ()
    for ask in (lambda: session.read("GPU-b"), lambda: session.describe(1)):
        with pytest.raises(CardFailed, match="GPU-b does not answer") as caught:
            ask()
        assert caught.value.lost
    happen(made, BackFault("1"))
    assert session.read("GPU-b").used_mib == 0
    assert session.describe(1).uuid == "GPU-b"


def test_a_reset_shows_in_what_the_card_counts() -> None:
    clock = Clock()
    made = driver(clock=clock)
    session = made.opened()
    before = session.read("GPU-a").energy_mj
    clock.now_s += 10
    assert (session.read("GPU-a").energy_mj or 0) > (before or 0)
    happen(made, ResetFault("0"))
    assert session.read("GPU-a").energy_mj == 0
    # A restart of the plugin does not reset a card.
    assert driver(clock=clock).opened().read("GPU-a").energy_mj == (before or 0) + 600_000


def blocked(call: threading.Thread) -> bool:
    call.join(0.05)
    return call.is_alive()


@pytest.mark.parametrize(
    ("hung", "well"), [(DriverFault(hang=True), DriverFault()), (HangFault("0", hang=True), HangFault("0", hang=False))]
)
def test_what_hangs_answers_when_it_hangs_no_more(hung: Fault, well: Fault) -> None:
    made = SimulatedDriver(CARDS, ())
    happen(made, hung)
    call = threading.Thread(target=made.opened().read, args=("GPU-a",))
    call.start()
    assert blocked(call)
    happen(made, well)
    call.join(5)
    assert not call.is_alive()


def test_who_waits_for_a_driver_that_hangs_ends_with_its_process() -> None:
    made = SimulatedDriver(CARDS, ())
    happen(made, DriverFault(hang=True))
    session, ended = made.opened(), list[Exception]()

    def ask() -> None:
        try:
            session.open()
        except SourceFailed as error:
            ended.append(error)

    call = threading.Thread(target=ask)
    call.start()
    assert blocked(call)
    happen(made, DieFault())
    call.join(5)
    assert [str(error) for error in ended] == ["the simulated driver's process has ended"]


def test_a_slow_driver_takes_its_time() -> None:
    made = SimulatedDriver(CARDS, ())
    happen(made, DriverFault(slow_s=0.1))
    began_s = time.monotonic()
    made.opened().open()
    assert time.monotonic() - began_s >= 0.1


def test_a_fault_ends_a_wait_at_once() -> None:
    made = SimulatedDriver(CARDS, ())
    session, heard = made.opened(), list[object]()
    waiting = threading.Thread(target=lambda: heard.extend(session.wait("GPU-a", 60)))
    waiting.start()
    assert blocked(waiting)
    happen(made, XidFault("0", 79))
    waiting.join(5)
    assert heard == [Xid("GPU-a", 79)]


async def test_a_compute_mode_is_set_by_whichever_process_asks_the_card() -> None:
    simulated = SimulatedDriver(CARDS, ())

    async def start() -> Worker:
        return DriverThreads(simulated.opened())

    async def modes() -> list[str]:
        found = await supervised.readings(["GPU-a", "GPU-b"])
        return [one.compute_mode for one in found.values() if isinstance(one, CardReading)]

    supervised = SupervisedDriver(start)
    await supervised.cards()
    await supervised.set_compute_mode("GPU-a", EXCLUSIVE_PROCESS)
    assert await modes() == [EXCLUSIVE_PROCESS, ""]
    simulated.happen(DieFault())
    await supervised.set_compute_mode("GPU-a", "")
    assert await modes() == ["", ""]
    await supervised.release(frozenset({"GPU-b"}))
    for uuid in ("GPU-b", "GPU-unknown"):
        with pytest.raises(NoAnswer):
            await supervised.set_compute_mode(uuid, EXCLUSIVE_PROCESS)
    await supervised.close()


async def test_memory_limits_of_a_card_that_hangs_keep_no_other_card_waiting() -> None:
    simulated = SimulatedDriver(CARDS, ())

    async def start() -> Worker:
        return DriverThreads(simulated.opened())

    supervised = SupervisedDriver(start, DriverLimits(answer_s=0.3, patience_s=0.01))
    await supervised.cards()
    limits = MemoryLimits(hard_mib=512, soft_mib=0, used_mib=100)
    simulated.happen(LimitFault("GPU-a", "/host/cgroup/p", limits))
    simulated.happen(HangFault("GPU-b", hang=True))
    assert await supervised.memory_limits("GPU-a", ["/host/cgroup/p", "/host/cgroup/q"]) == {"/host/cgroup/p": limits}
    for uuid in ("GPU-b", "GPU-unknown"):
        with pytest.raises(NoAnswer):
            await supervised.memory_limits(uuid, ["/host/cgroup/p"])
    # A second call does not wait behind the first one.
    with pytest.raises(NoAnswer, match="has not answered an earlier call"):
        await supervised.memory_limits("GPU-b", ["/host/cgroup/p"])
    simulated.happen(LimitFault("GPU-a", "/host/cgroup/p", None))
    assert await supervised.memory_limits("GPU-a", ["/host/cgroup/p"]) == {}
    await supervised.release(frozenset({"GPU-a"}))
    with pytest.raises(NoAnswer, match="released"):
        await supervised.memory_limits("GPU-a", ["/host/cgroup/p"])
    simulated.happen(HangFault("GPU-b", hang=False))
    await supervised.close()


async def test_ten_thousand_cgroups_fit_into_answers_that_a_process_may_give() -> None:
    simulated, lines = SimulatedDriver(CARDS, ()), list[int]()
    cgroups = [f"/{number:04095}" for number in range(10_000)]

    class Measured(DriverThreads):
        async def ask(self, call: Call[T]) -> T:
            answer = await super().ask(call)
            lines.append(len(msgspec.json.encode(answer)))
            return answer

    async def start() -> Worker:
        return Measured(simulated.opened())

    supervised = SupervisedDriver(start)
    await supervised.cards()
    for cgroup in cgroups:
        simulated.happen(LimitFault("GPU-a", cgroup, MemoryLimits(2**40, 2**40, 2**40)))
    lines.clear()
    assert (await supervised.memory_limits("GPU-a", cgroups)).keys() == set(cgroups)
    assert max(lines) < LONGEST_LINE
    await supervised.close()
