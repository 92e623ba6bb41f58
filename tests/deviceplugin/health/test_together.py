"""How one card does when several things go wrong with it, or with the clock."""

from dataclasses import replace
from pathlib import Path

import pytest

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardReading, Xid
from deviceplugin.health.record import HealthFile
from deviceplugin.health.rules import (
    CardHealth,
    HealthState,
    after_reading,
    after_xid,
    announced,
    classes,
    failed,
    unanswered,
)

GOOD = CardReading(used_mib=0, uncorrected_ecc=0)
ADVISED = replace(GOOD, recovery="reset")
WAITS = replace(GOOD, remap_pending=True)
XIDS = classes((), ())


def gone(health: CardHealth, now_s: float = 0) -> CardHealth:
    for at_s in (now_s, now_s + 10, now_s + 20):
        health = failed(health, at_s, lost=True)
    return health


def test_withdrawn_advice_does_not_clear_a_hardware_error() -> None:
    health = after_xid(CardHealth(), Xid("GPU-a", 79), 0, XIDS)
    health = after_reading(after_reading(health, ADVISED, 10), GOOD, 20)
    assert (announced(health), health.needs_reset) == ((Health.UNHEALTHY, "xid-79"), True)


def test_a_hardware_error_outlives_earlier_advice() -> None:
    health = after_xid(after_reading(CardHealth(), ADVISED, 0), Xid("GPU-a", 79), 5, XIDS)
    assert announced(after_reading(health, GOOD, 10)) == (Health.UNHEALTHY, "xid-79")


def test_a_finished_remap_does_not_shorten_the_quiet_time_after_an_error() -> None:
    health = after_xid(CardHealth(), Xid("GPU-a", 63), 0, XIDS)
    health = after_reading(health, WAITS, 10)
    for now_s in (20, 30, 50):
        health = after_reading(health, GOOD, now_s)
    assert announced(health)[0] is Health.SUSPECT


def test_an_error_of_no_card_in_particular_does_not_end_a_recovery() -> None:
    health = after_reading(gone(CardHealth(), -20), GOOD, 10)
    health = after_xid(after_reading(health, GOOD, 20), Xid("", 79), 30, XIDS)
    assert health.state is HealthState.RECOVERING
    for now_s in (40, 50, 70):
        assert health.state is HealthState.RECOVERING
        health = after_reading(health, GOOD, now_s)
    assert health.state is HealthState.HEALTHY


def test_a_clock_that_is_set_back_far_keeps_no_card_out_until_it_is_there_again() -> None:
    health = after_xid(CardHealth(), Xid("GPU-a", 32), 1_000_000, XIDS)
    for now_s in (10, 100, 309):
        health = after_reading(health, GOOD, now_s)
        assert health.state is HealthState.SUSPECT
    assert after_reading(health, GOOD, 310).state is HealthState.HEALTHY


@pytest.mark.parametrize("reading", [WAITS, replace(GOOD, recovery="drain"), ADVISED])
def test_a_state_that_does_not_change_is_not_written_again(tmp_path: Path, reading: CardReading) -> None:
    file = HealthFile(tmp_path, "boot-1")
    health = after_reading(CardHealth(), reading, 0)
    file.save({"GPU-a": health})
    (tmp_path / "health.json").unlink()
    file.save({"GPU-a": after_reading(health, reading, 10)})
    assert not (tmp_path / "health.json").exists()


def test_a_card_that_stays_lost_is_not_written_again(tmp_path: Path) -> None:
    file = HealthFile(tmp_path, "boot-1")
    health = gone(CardHealth())
    file.save({"GPU-a": health})
    (tmp_path / "health.json").unlink()
    file.save({"GPU-a": gone(health)})
    assert not (tmp_path / "health.json").exists()


def test_uncorrected_errors_take_a_quiet_time_also_when_a_remap_waits_for_them() -> None:
    health = after_reading(after_reading(CardHealth(), GOOD, 0), replace(WAITS, uncorrected_ecc=1), 10)
    for now_s in (20, 30, 60):
        health = after_reading(health, replace(GOOD, uncorrected_ecc=1), now_s)
    assert announced(health) == (Health.SUSPECT, "row-remap")
    assert after_reading(health, replace(GOOD, uncorrected_ecc=1), 310).state is HealthState.HEALTHY


def test_an_error_from_before_a_clock_was_set_back_does_not_count_forever() -> None:
    health = CardHealth()
    for now_s in (1_000_000, 10, 620, 1000):
        health = after_xid(health, Xid("GPU-a", 32), now_s, XIDS)
        assert health.state is HealthState.SUSPECT


def test_silences_with_an_answer_between_them_are_not_added_up() -> None:
    health = unanswered(unanswered(CardHealth(), 0), 10)
    health = unanswered(unanswered(after_reading(health, GOOD, 20), 30), 40)
    assert health.state is HealthState.HEALTHY
