"""Cards that are not there: what the cluster file says of them, and what can happen to them."""

import json
import threading
import time
from pathlib import Path

import pytest

from config.clusterfile import reading
from config.protocol import inventory, names
from config.settings.mistakes import ConfigurationError
from deviceplugin.driver.cards import Back, DriverCard, Lost, Process, SourceFailed, Xid
from deviceplugin.driver.simulated import (
    BackFault,
    DriverFault,
    Fault,
    FaultError,
    LostFault,
    ReadingFault,
    SimulatedSource,
    SimulationError,
    TimedFault,
    UseFault,
    XidFault,
    read_simulation,
)

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


def source(*faults: TimedFault, clock: Clock | None = None) -> SimulatedSource:
    return SimulatedSource(CARDS, faults, clock or Clock())


def happen(made: SimulatedSource, *faults: Fault) -> None:
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
    made = source(TimedFault(2.0, XidFault("GPU-b", 79)), TimedFault(1.0, LostFault("0")), clock=clock)
    assert made.wait(0) == []
    clock.now_s += 1
    assert made.wait(0) == [Lost("GPU-a")]
    clock.now_s += 5
    assert made.wait(0) == [Xid("GPU-b", 79)]
    assert [card.uuid for card in made.cards().cards] == ["GPU-b"]


def test_a_lost_card_does_not_answer_and_has_no_errors_until_it_is_back() -> None:
    made = source()
    happen(made, LostFault("1"), LostFault("1"), XidFault("1", 48))
    assert made.wait(0) == [Lost("GPU-b")]
    with pytest.raises(SourceFailed, match="GPU-b does not answer"):
        made.reading("GPU-b")
    happen(made, BackFault("1"))
    assert made.wait(0) == [Back("GPU-b")]
    assert made.reading("GPU-b").used_mib == 0
    assert len(made.cards().cards) == 2


def test_a_reset_of_a_card_that_was_never_lost_is_reported() -> None:
    made = source()
    happen(made, BackFault("0"))
    assert made.wait(0) == [Back("GPU-a")]


def test_a_whole_node_of_cards_goes_and_comes_back() -> None:
    made = source()
    happen(made, LostFault(""), BackFault(""))
    assert made.wait(0) == [Lost("GPU-a"), Lost("GPU-b"), Back("GPU-a"), Back("GPU-b")]


def test_processes_hold_memory_and_let_go_of_it() -> None:
    made = source()
    happen(made, UseFault("0", 7, 300), UseFault("0", 8, 50))
    assert (made.reading("GPU-a").used_mib, made.reading("GPU-a").processes) == (350, (Process(7, 300), Process(8, 50)))
    happen(made, UseFault("0", 7, 0))
    assert (made.reading("GPU-a").used_mib, made.reading("GPU-b").used_mib) == (50, 0)


def test_a_reading_has_the_values_of_the_fault() -> None:
    made = source()
    happen(made, ReadingFault("0", {"remap_pending": True}), ReadingFault("0", {"recovery": "reset"}))
    assert (made.reading("GPU-a").remap_pending, made.reading("GPU-a").recovery) == (True, "reset")
    assert made.reading("GPU-b").recovery == ""


def test_a_card_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(FaultError, match=r"no card 7; cards: 0 \(GPU-a\), 1 \(GPU-b\)"):
        source().happen(XidFault("7", 79))


def test_a_failing_driver_fails_every_call_until_it_is_healthy() -> None:
    made = source()
    happen(made, DriverFault(fail=True))
    for call in (made.cards, lambda: made.reading("GPU-a"), lambda: made.wait(0)):
        with pytest.raises(SourceFailed, match="is failing"):
            call()
    happen(made, DriverFault())
    assert len(made.cards().cards) == 2


def blocked(call: threading.Thread) -> bool:
    call.join(0.05)
    return call.is_alive()


def test_a_driver_that_hangs_answers_when_it_hangs_no_more() -> None:
    made = SimulatedSource(CARDS, ())
    happen(made, DriverFault(hang=True))
    call = threading.Thread(target=made.cards)
    call.start()
    assert blocked(call)
    happen(made, DriverFault())
    call.join(5)
    assert not call.is_alive()


def test_a_driver_that_hangs_lets_go_when_it_is_closed() -> None:
    made = SimulatedSource(CARDS, ())
    happen(made, DriverFault(hang=True))
    ended: list[Exception] = []

    def ask() -> None:
        try:
            made.cards()
        except SourceFailed as error:
            ended.append(error)

    call = threading.Thread(target=ask)
    call.start()
    assert blocked(call)
    made.close()
    call.join(5)
    assert [str(error) for error in ended] == ["the simulated driver is closed"]


def test_a_slow_driver_takes_its_time() -> None:
    made = SimulatedSource(CARDS, ())
    happen(made, DriverFault(slow_s=0.1))
    began_s = time.monotonic()
    made.cards()
    assert time.monotonic() - began_s >= 0.1


def test_a_slow_driver_that_is_waited_for_is_slow_once() -> None:
    made = SimulatedSource(CARDS, [TimedFault(0.1, XidFault("0", 79))])
    happen(made, DriverFault(slow_s=0.6))
    began_s = time.monotonic()
    assert made.wait(60) == [Xid("GPU-a", 79)]
    assert 0.6 <= time.monotonic() - began_s < 1.2


def test_a_fault_ends_a_wait_at_once() -> None:
    made = SimulatedSource(CARDS, ())
    heard: list[object] = []
    waiting = threading.Thread(target=lambda: heard.extend(made.wait(60)))
    waiting.start()
    assert blocked(waiting)
    happen(made, XidFault("0", 79))
    waiting.join(5)
    assert heard == [Xid("GPU-a", 79)]
