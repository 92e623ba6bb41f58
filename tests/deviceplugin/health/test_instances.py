"""MIG instances: cards of their own, on the hardware of their parent."""

from dataclasses import replace

import pytest

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardFailed, CardReading, DriverCard, DriverCards, Xid, with_instances
from deviceplugin.driver.cuda import CudaAnswer
from deviceplugin.health.releases import named
from deviceplugin.health.rules import classes
from deviceplugin.health.states import CardStates

HEALTHY = (Health.HEALTHY, "")
LOST = (Health.UNHEALTHY, "lost")
GOOD = CardReading(used_mib=0, uncorrected_ecc=0)
SPLIT = DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=0, minor=0, mig=True)
WHOLE = DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=1024, minor=1)


def instance(number: int) -> DriverCard:
    place = number, 0
    return replace(SPLIT, index=1000 + 10 * number, uuid=f"MIG-{number}", mig=False, parent="GPU-a", instance=place)


def listed(*numbers: int) -> DriverCards:
    split = replace(SPLIT, instances=tuple(map(instance, numbers)))
    return DriverCards("580", tuple(with_instances([WHOLE, split])))


def states(*numbers: int, tries_cuda: bool = False) -> CardStates:
    made = CardStates(classes((), ()), tries_cuda=tries_cuda)
    made.found(listed(*numbers), forget=True)
    made.answered({card.uuid: GOOD for card in made.cards}, 0.0)
    return made


def health(found: CardStates) -> dict[str, tuple[Health, str]]:
    return {uuid: known for uuid, known in found.announced().items() if uuid not in {"GPU-a", "GPU-b"}}


def test_a_new_instance_does_not_repair_the_card() -> None:
    found = states(1)
    found.xid(Xid("GPU-a", 79), 1.0)
    found.found(listed(2), forget=False)
    assert health(found) == {"MIG-2": (Health.UNHEALTHY, "xid-79")}


def test_a_reset_of_the_card_repairs_its_instances() -> None:
    found, before = states(1), replace(GOOD, attached=1)
    found.answered(dict.fromkeys(("GPU-a", "MIG-1"), before), 0.0)
    found.xid(Xid("GPU-a", 79), 1.0)
    for now_s in range(10, 60, 10):
        found.answered(dict.fromkeys(("GPU-a", "MIG-1"), replace(before, attached=2)), float(now_s))
    assert health(found) == {"MIG-1": HEALTHY}


def test_a_destroyed_instance_is_forgotten_at_once_with_its_health() -> None:
    found = states(1, 2)
    found.xid(Xid("MIG-1", 79), 1.0)
    found.found(listed(2), forget=False)
    assert [card.uuid for card in found.cards] == ["GPU-a", "GPU-b", "MIG-2"]
    found.found(listed(1, 2), forget=False)
    assert health(found) == {"MIG-1": HEALTHY, "MIG-2": HEALTHY}


def test_instances_of_a_card_that_left_mig_mode_are_destroyed() -> None:
    found = states(1)
    found.found(DriverCards("580", (replace(SPLIT, mig=False, memory_mib=1024), WHOLE)), forget=False)
    assert [card.uuid for card in found.cards] == ["GPU-a", "GPU-b"]


@pytest.mark.parametrize("unasked", [frozenset(), frozenset({"GPU-a", "MIG-1"})])
def test_instances_of_a_card_that_was_not_described_are_kept(unasked: frozenset[str]) -> None:
    found = states(1)
    found.found(DriverCards("580", (WHOLE,), unasked=unasked), forget=False)
    assert [card.uuid for card in found.cards] == ["GPU-a", "GPU-b", "MIG-1"]
    assert ("MIG-1" in {card.uuid for card in found.named().cards}) is bool(unasked)


def test_a_lost_card_takes_its_instances_along_and_no_other_card() -> None:
    found, gone = states(1, 2), CardFailed("gone", lost=True)
    for now_s in range(0, 40, 10):
        found.answered({"GPU-a": gone, "MIG-1": gone, "MIG-2": gone, "GPU-b": GOOD}, float(now_s))
    assert found.announced() == {"GPU-a": HEALTHY, "GPU-b": HEALTHY, "MIG-1": LOST, "MIG-2": LOST}


def test_a_failing_card_is_at_fault_however_many_instances_it_has() -> None:
    """Where every whole card fails, the driver is."""
    found, failing = states(1, 2), CardFailed("Unknown Error", lost=False)
    for now_s in range(0, 40, 10):
        found.answered({"GPU-a": failing, "MIG-1": failing, "MIG-2": failing, "GPU-b": failing}, float(now_s))
    assert health(found) == dict.fromkeys(("MIG-1", "MIG-2"), (Health.SUSPECT, "silent"))


def test_cuda_is_not_tried_on_instances_and_keeps_no_pod_from_them() -> None:
    found = states(1, tries_cuda=True)
    assert set(found.to_try()) == {"GPU-b"}
    found.tried("GPU-b", CudaAnswer(999), 1.0)
    assert found.announced()["MIG-1"] == HEALTHY
    assert (found.cuda_problem(), found.untried(), found.start_problem(["MIG-1"])) == ("", False, "")


@pytest.mark.parametrize("name", ["0", "GPU-a", "MIG-1", "1010"])
def test_a_card_is_released_as_a_whole(name: str) -> None:
    cards = listed(1, 2).cards
    assert [card.uuid for card in named([name], cards)] == ["GPU-a", "MIG-1", "MIG-2"]
    assert [card.uuid for card in named(["1"], cards)] == ["GPU-b"]
    assert [card.uuid for card in named(["all"], cards)] == [card.uuid for card in cards]
