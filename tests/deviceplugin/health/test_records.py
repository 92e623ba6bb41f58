"""How the cards do, and the cards as last announced, kept over restarts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.protocol import inventory
from config.protocol.inventory import Inventory
from deviceplugin.driver.cards import CardReading, DriverCard
from deviceplugin.health.record import HealthFile, LastKnown, LastKnownFile
from deviceplugin.health.rules import CardHealth, HealthState, after_reading, failed

UNHEALTHY = CardHealth(state=HealthState.UNHEALTHY, reason="xid-79", bad_s=5.0, needs_reset=True)
SUSPECT = CardHealth(state=HealthState.SUSPECT, reason="xid-32", bad_s=7.0, unclassified_s=(7.0,))


def test_an_unhealthy_card_is_unhealthy_after_a_restart_of_the_plugin(tmp_path: Path) -> None:
    HealthFile(tmp_path, "boot-1").save({"GPU-a": UNHEALTHY, "GPU-b": SUSPECT, "GPU-c": CardHealth()})
    assert HealthFile(tmp_path, "boot-1").load() == {"GPU-a": UNHEALTHY, "GPU-b": SUSPECT}


def test_a_reboot_is_a_reset(tmp_path: Path) -> None:
    HealthFile(tmp_path, "boot-1").save({"GPU-a": UNHEALTHY, "GPU-b": SUSPECT})
    assert HealthFile(tmp_path, "boot-2").load() == {"GPU-a": CardHealth(state=HealthState.RECOVERING, reason="xid-79")}


def test_without_a_file_all_are_healthy_and_there_is_no_problem(tmp_path: Path) -> None:
    file = HealthFile(tmp_path, "boot-1")
    assert (file.load(), file.problem) == ({}, "")


def test_a_file_that_cannot_be_read_is_reported_and_replaced_and_the_cards_have_to_recover(tmp_path: Path) -> None:
    recovering = CardHealth(state=HealthState.RECOVERING, reason="record-unreadable")
    for text, message in (("{", "cannot be read"), ('{"version":9,"bootId":"b","cards":{}}', "has version 9")):
        (tmp_path / "health.json").write_text(text)
        file = HealthFile(tmp_path, "boot-1")
        assert file.load(["GPU-a", "GPU-b"]) == {"GPU-a": recovering, "GPU-b": recovering}
        assert message in file.problem
    file.save({"GPU-a": UNHEALTHY})
    assert HealthFile(tmp_path, "boot-1").load() == {"GPU-a": UNHEALTHY}


def read_twice(**found: Any) -> tuple[CardHealth, CardHealth]:  # noqa: ANN401 - fields of a reading
    """Health after a reading, and after the same one 10 s later."""
    reading = CardReading(used_mib=0, uncorrected_ecc=0, **found)
    first = after_reading(CardHealth(), reading, 0)
    return first, after_reading(first, reading, 10)


def lost(health: CardHealth) -> CardHealth:
    for now_s in (0, 10, 20):
        health = failed(health, now_s, lost=True)
    return health


@pytest.mark.parametrize(
    ("written", "later"),
    [
        pytest.param(UNHEALTHY, replace(UNHEALTHY, good=3, good_s=9.0, silent=1), id="good answers are counted"),
        pytest.param(replace(UNHEALTHY, energy_mj=5), replace(UNHEALTHY, energy_mj=6), id="energy grows all the time"),
        pytest.param(*read_twice(remap_pending=True), id="a remap waits as before"),
        pytest.param(*read_twice(recovery="drain"), id="a drain is advised as before"),
        pytest.param(*read_twice(recovery="reset"), id="a reset is advised as before"),
        pytest.param(lost(CardHealth()), lost(lost(CardHealth())), id="it stays lost"),
    ],
)
def test_a_state_that_does_not_change_is_not_written_again(
    tmp_path: Path, written: CardHealth, later: CardHealth
) -> None:
    file = HealthFile(tmp_path, "boot-1")
    file.save({"GPU-a": written})
    (tmp_path / "health.json").unlink()
    file.save({"GPU-a": later})
    assert not (tmp_path / "health.json").exists()


def test_a_released_card_is_released_after_a_restart_and_not_after_a_reboot(tmp_path: Path) -> None:
    let_go = CardHealth(released_s=600.0)
    HealthFile(tmp_path, "boot-1").save({"GPU-a": let_go})
    assert HealthFile(tmp_path, "boot-1").load() == {"GPU-a": let_go}
    assert HealthFile(tmp_path, "boot-2").load() == {}


@pytest.mark.parametrize("damage", [b'"unheal"', b'"\xff"'], ids=["another word", "no UTF-8"])
def test_a_record_that_is_damaged_costs_no_other_and_its_card_has_to_recover(tmp_path: Path, damage: bytes) -> None:
    HealthFile(tmp_path, "boot-1").save({"GPU-a": UNHEALTHY, "GPU-b": UNHEALTHY, "GPU-c": SUSPECT})
    path = tmp_path / "health.json"
    path.write_bytes(path.read_bytes().replace(b'"unhealthy"', damage, 1))
    file = HealthFile(tmp_path, "boot-1")
    damaged = CardHealth(state=HealthState.RECOVERING, reason="record-unreadable")
    assert file.load() == {"GPU-a": damaged, "GPU-b": UNHEALTHY, "GPU-c": SUSPECT}
    assert "the record of card GPU-a cannot be read" in file.problem


CARDS = (
    inventory.Card(
        index=0, uuid="GPU-a", model="A100", memory_mib=81559, units=79, numa=0, pci="0000:07:00.0", links={"1": "NV12"}
    ),
    inventory.Card(index=1, uuid="GPU-b", model="A100", memory_mib=81559, units=0, reason="mig"),
)
TEXT = inventory.encode(Inventory(1024, "580.1", CARDS))


def test_what_was_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    LastKnownFile(tmp_path, "boot-1").save(TEXT)
    assert LastKnownFile(tmp_path, "boot-1").load() == LastKnown(
        (
            DriverCard(
                index=0, uuid="GPU-a", model="A100", memory_mib=81559, pci="0000:07:00.0", numa=0, links={"1": "NV12"}
            ),
            DriverCard(index=1, uuid="GPU-b", model="A100", memory_mib=81559, mig=True),
        ),
        same_boot=True,
    )


def test_another_boot_is_noticed(tmp_path: Path) -> None:
    LastKnownFile(tmp_path, "boot-1").save(TEXT)
    known = LastKnownFile(tmp_path, "boot-2").load()
    assert (len(known.cards), known.same_boot) == (2, False)


def test_without_a_file_nothing_is_known_and_there_is_no_problem(tmp_path: Path) -> None:
    assert LastKnownFile(tmp_path, "boot-1").load() == LastKnown()


def test_a_file_that_cannot_be_read_is_reported_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "inventory.json").write_text('{"bootId":')
    file = LastKnownFile(tmp_path, "boot-1")
    assert "inventory.json cannot be read" in file.load().problem
    file.save(TEXT)
    assert file.load().problem == ""
