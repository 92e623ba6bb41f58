"""How the cards do, kept over restarts."""

from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.health.record import HealthFile
from deviceplugin.health.rules import CardHealth, HealthState

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


def test_counting_good_answers_is_not_worth_a_write(tmp_path: Path) -> None:
    file = HealthFile(tmp_path, "boot-1")
    file.save({"GPU-a": UNHEALTHY})
    (tmp_path / "health.json").unlink()
    file.save(
        {
            "GPU-a": CardHealth(
                state=HealthState.UNHEALTHY, reason="xid-79", bad_s=5.0, needs_reset=True, good=3, good_s=9.0, silent=1
            )
        }
    )
    assert not (tmp_path / "health.json").exists()


def test_energy_grows_all_the_time_and_is_not_worth_a_write(tmp_path: Path) -> None:
    file = HealthFile(tmp_path, "boot-1")
    file.save({"GPU-a": replace(UNHEALTHY, energy_mj=5)})
    (tmp_path / "health.json").unlink()
    file.save({"GPU-a": replace(UNHEALTHY, energy_mj=6)})
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
