"""How one card does: what makes it worse, what it takes to trust it again, and what several things at once do."""

from dataclasses import replace

import pytest

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardReading, Xid
from deviceplugin.health.rules import (
    APPLICATION_XIDS,
    FAILED_FOR_S,
    GOOD_FOR_S,
    HARDWARE_XIDS,
    QUIET_S,
    CardHealth,
    HealthState,
    after_reading,
    after_xid,
    announced,
    classes,
    cleared,
    failed,
    released,
    unanswered,
)

GOOD = CardReading(used_mib=0, uncorrected_ecc=0)
COUNTING = replace(GOOD, attached=7, energy_mj=1_000_000, uncorrected_ecc=2, persistent=True)
XIDS = classes((), ())
UNCLASSIFIED = Xid("GPU-a", 32)
BROKEN = Xid("GPU-a", 79)


def happened(*xids: Xid, health: CardHealth | None = None, now_s: float = 0.0) -> CardHealth:
    for xid in xids:
        health = after_xid(health or CardHealth(), xid, now_s, XIDS)
    assert health is not None
    return health


def gone(health: CardHealth | None = None, *, now_s: float = 0.0) -> CardHealth:
    """It has failed to answer for as long as it takes to believe that it is lost."""
    for at_s in (now_s, now_s + 10, now_s + FAILED_FOR_S):
        health = failed(health or CardHealth(), at_s, lost=True)
    assert health is not None
    return health


def reset(health: CardHealth, now_s: float = 0.0) -> CardHealth:
    """It is gone for a while, and answers again."""
    return read(gone(health, now_s=now_s - FAILED_FOR_S), now_s)


def read(health: CardHealth, *times_s: float, reading: CardReading = GOOD) -> CardHealth:
    for now_s in times_s:
        health = after_reading(health, reading, now_s)
    return health


def silent(times: int, health: CardHealth | None = None) -> CardHealth:
    health = health or CardHealth()
    for _ in range(times):
        health = unanswered(health, 0.0)
    return health


def test_the_tables_have_nothing_in_common() -> None:
    assert not APPLICATION_XIDS.keys() & HARDWARE_XIDS.keys()


@pytest.mark.parametrize("number", APPLICATION_XIDS)
def test_an_application_error_does_not_change_the_health(number: int) -> None:
    assert happened(Xid("GPU-a", number)) == CardHealth()


@pytest.mark.parametrize("number", HARDWARE_XIDS)
def test_a_hardware_error_takes_the_card_out_and_time_does_not_heal_it(number: int) -> None:
    health = happened(Xid("GPU-a", number))
    assert announced(health) == (Health.UNHEALTHY, f"xid-{number}")
    assert announced(read(health, *range(10, 100_000, 1000))) == (Health.UNHEALTHY, f"xid-{number}")


def test_the_configuration_moves_an_error_from_one_class_to_another() -> None:
    xids = classes(ignored_xids=[79, 32], hardware_xids=[31])
    assert after_xid(CardHealth(), BROKEN, 0.0, xids) == CardHealth()
    assert after_xid(CardHealth(), UNCLASSIFIED, 0.0, xids) == CardHealth()
    assert after_xid(CardHealth(), Xid("GPU-a", 31), 0.0, xids).needs_reset


def test_an_unclassified_error_makes_the_card_suspect_until_it_has_been_quiet() -> None:
    health = happened(UNCLASSIFIED)
    assert announced(health) == (Health.SUSPECT, "xid-32")
    assert announced(read(health, 10, 50, QUIET_S - 1))[0] is Health.SUSPECT
    assert announced(read(health, 10, 50, QUIET_S)) == (Health.HEALTHY, "")


def test_the_third_unclassified_error_in_ten_minutes_makes_it_unhealthy() -> None:
    health = happened(UNCLASSIFIED, now_s=0.0)
    health = read(health, 10, 50, 350)
    assert health.state is HealthState.HEALTHY
    health = happened(UNCLASSIFIED, health=happened(UNCLASSIFIED, health=health, now_s=400), now_s=500)
    assert announced(health) == (Health.UNHEALTHY, "xid-32")
    # It needs no reset: after a quiet time it is watched, and let back in.
    health = read(health, 510, 550, 500 + QUIET_S)
    assert announced(health) == (Health.UNHEALTHY, "recovering")
    assert announced(read(health, 810, 820, 850))[0] is Health.HEALTHY


def test_unclassified_errors_far_apart_do_not_add_up() -> None:
    health = CardHealth()
    for now_s in (0, 700, 1400, 2100):
        health = happened(UNCLASSIFIED, health=health, now_s=now_s)
        assert health.state is HealthState.SUSPECT


@pytest.mark.parametrize("unhealthy", [happened(BROKEN), gone(), gone(happened(BROKEN))])
def test_a_reset_has_the_card_watched_before_it_is_trusted(unhealthy: CardHealth) -> None:
    health = reset(unhealthy, now_s=100)
    assert announced(health) == (Health.UNHEALTHY, "recovering")
    assert announced(read(health, 105, 110))[1] == "recovering"
    assert announced(read(health, 100 + GOOD_FOR_S))[1] == "recovering"
    assert announced(read(health, 115, 100 + GOOD_FOR_S)) == (Health.HEALTHY, "")


def test_a_lost_card_that_had_an_error_keeps_its_reason() -> None:
    assert announced(gone(happened(BROKEN))) == (Health.UNHEALTHY, "xid-79")
    assert announced(gone()) == (Health.UNHEALTHY, "lost")


def test_whatever_goes_wrong_while_it_recovers_ends_that() -> None:
    health = read(reset(happened(BROKEN)), 0, 10)
    assert announced(happened(UNCLASSIFIED, health=health, now_s=11)) == (Health.UNHEALTHY, "xid-32")
    assert announced(read(health, 11, reading=replace(GOOD, remap_pending=True)))[1] == "row-remap"


def test_a_healthy_card_has_nothing_to_recover_from() -> None:
    later = replace(COUNTING, attached=8)
    assert announced(read(read(CardHealth(), 0, reading=COUNTING), 10, reading=later)) == (Health.HEALTHY, "")
    assert announced(read(silent(3), 10, reading=COUNTING))[0] is Health.SUSPECT


def test_one_error_in_answer_makes_no_card_worse() -> None:
    health = failed(CardHealth(), 0, lost=False)
    assert announced(health) == (Health.HEALTHY, "")
    assert announced(failed(health, 10, lost=False)) == (Health.SUSPECT, "failing")
    # And it proves no reset.
    assert announced(read(failed(happened(BROKEN), 0, lost=True), 10)) == (Health.UNHEALTHY, "xid-79")


def test_a_card_that_says_it_is_gone_takes_no_new_pods_at_once_and_is_lost_a_while_later() -> None:
    health = failed(CardHealth(), 0, lost=True)
    assert announced(health) == (Health.SUSPECT, "failing")
    assert announced(read(health, 10, 20)) == (Health.HEALTHY, "")
    health = failed(failed(health, 1, lost=True), 2, lost=True)
    assert announced(health) == (Health.SUSPECT, "failing")
    assert announced(failed(health, FAILED_FOR_S, lost=True)) == (Health.UNHEALTHY, "lost")


@pytest.mark.parametrize(
    ("later", "seen"),
    [
        pytest.param(replace(COUNTING, attached=8), True, id="the driver was attached again"),
        pytest.param(replace(COUNTING, uncorrected_ecc=0), True, id="it counts errors from 0"),
        pytest.param(replace(COUNTING, energy_mj=5), True, id="it counts energy from 0"),
        pytest.param(replace(COUNTING, energy_mj=5, persistent=False), True, id="persistence mode goes with a reset"),
        pytest.param(replace(COUNTING, energy_mj=2_000_000), False, id="it goes on counting"),
        pytest.param(
            replace(COUNTING, attached=None, energy_mj=None, uncorrected_ecc=None), False, id="it tells nothing"
        ),
    ],
)
def test_a_reset_is_seen_by_what_the_card_counts(later: CardReading, seen: bool) -> None:  # noqa: FBT001 # a table
    health = happened(BROKEN, health=read(CardHealth(), 0, reading=COUNTING), now_s=5)
    day_s = 86_400.0
    expected = "recovering" if seen else "xid-79"
    assert announced(read(health, day_s, reading=later)) == (Health.UNHEALTHY, expected)


def test_without_persistence_mode_a_card_counts_from_0_for_no_reason() -> None:
    idle = replace(COUNTING, persistent=False)
    health = happened(BROKEN, health=read(CardHealth(), 0, reading=idle), now_s=5)
    assert announced(read(health, 10, reading=replace(idle, energy_mj=0, uncorrected_ecc=0)))[1] == "xid-79"


def test_a_released_card_takes_no_new_pods_and_keeps_what_is_wrong_with_it() -> None:
    assert announced(released(CardHealth(), 600)) == (Health.SUSPECT, "released")
    assert announced(released(happened(UNCLASSIFIED), 600)) == (Health.SUSPECT, "released")
    assert announced(released(happened(BROKEN), 600)) == (Health.UNHEALTHY, "xid-79")
    assert announced(cleared(released(happened(UNCLASSIFIED), 600), 5)) == (Health.SUSPECT, "released")
    for health in (CardHealth(), happened(UNCLASSIFIED), happened(BROKEN)):
        assert released(released(health, 600), None) == health


def test_errors_at_one_moment_count_each() -> None:
    assert announced(happened(Xid("GPU-a", 32, times=3))) == (Health.UNHEALTHY, "xid-32")


def test_silence_makes_a_card_suspect_and_two_answers_make_it_healthy() -> None:
    assert announced(silent(2)) == (Health.HEALTHY, "")
    assert announced(silent(9)) == (Health.SUSPECT, "silent")
    assert announced(read(silent(9), 1))[0] is Health.SUSPECT
    assert announced(read(silent(9), 1, 2)) == (Health.HEALTHY, "")


def test_silence_changes_no_other_state() -> None:
    assert announced(silent(9, happened(BROKEN))) == (Health.UNHEALTHY, "xid-79")
    assert announced(silent(9, happened(UNCLASSIFIED))) == (Health.SUSPECT, "xid-32")


@pytest.mark.parametrize("advice", ["reset", "reboot", "drain-reset"])
def test_the_drivers_advice_holds_until_it_is_withdrawn(advice: str) -> None:
    health = read(CardHealth(), 0, 1000, reading=replace(GOOD, recovery=advice))
    assert announced(health) == (Health.UNHEALTHY, f"recovery-{advice}")
    health = read(health, 1010)
    assert announced(health)[1] == "recovering"
    assert announced(read(health, 1020, 1040))[0] is Health.HEALTHY


@pytest.mark.parametrize(
    ("reading", "reason"),
    [(replace(GOOD, recovery="drain"), "recovery-drain"), (replace(GOOD, remap_pending=True), "row-remap")],
)
def test_a_card_that_waits_for_a_repair_takes_no_new_pods(reading: CardReading, reason: str) -> None:
    health = read(CardHealth(), 0, reading=reading)
    assert announced(health) == (Health.SUSPECT, reason)
    assert announced(read(health, 10, 20))[0] is Health.SUSPECT
    assert announced(read(health, 10, 20, 40)) == (Health.HEALTHY, "")


def test_uncorrected_errors_count_when_they_become_more() -> None:
    health = read(CardHealth(), 0, reading=replace(GOOD, uncorrected_ecc=5))
    assert health.state is HealthState.HEALTHY
    health = read(health, 10, reading=replace(GOOD, uncorrected_ecc=6))
    assert announced(health) == (Health.SUSPECT, "ecc")
    # A driver that restarts counts from 0.
    assert read(replace(health, state=HealthState.HEALTHY), 20, reading=GOOD).state is HealthState.HEALTHY


def test_a_cleared_card_recovers_first() -> None:
    health = cleared(happened(BROKEN), 50)
    assert announced(health) == (Health.UNHEALTHY, "recovering")
    assert announced(read(health, 60, 70, 90))[0] is Health.HEALTHY
    assert announced(cleared(happened(UNCLASSIFIED), 50)) == (Health.HEALTHY, "")
    assert cleared(CardHealth(), 50) == CardHealth()


def test_an_error_of_no_card_in_particular_does_not_end_a_recovery() -> None:
    health = happened(Xid("", 79), health=read(gone(now_s=-20), 10, 20), now_s=30)
    assert health.state is HealthState.RECOVERING
    for now_s in (40, 50, 70):
        assert health.state is HealthState.RECOVERING
        health = read(health, now_s)
    assert health.state is HealthState.HEALTHY


def test_uncorrected_errors_take_a_quiet_time_also_when_a_remap_waits_for_them() -> None:
    more = replace(GOOD, uncorrected_ecc=1)
    health = read(read(CardHealth(), 0), 10, reading=replace(more, remap_pending=True))
    health = read(health, 20, 30, 60, reading=more)
    assert announced(health) == (Health.SUSPECT, "row-remap")
    assert read(health, 310, reading=more).state is HealthState.HEALTHY


def test_an_error_from_before_a_clock_was_set_back_does_not_count_forever() -> None:
    health = CardHealth()
    for now_s in (1_000_000, 10, 620, 1000):
        health = happened(UNCLASSIFIED, health=health, now_s=now_s)
        assert health.state is HealthState.SUSPECT


def test_silences_with_an_answer_between_them_are_not_added_up() -> None:
    assert silent(2, read(silent(2), 20)).state is HealthState.HEALTHY


def test_a_clock_that_is_set_back_far_keeps_no_card_out_until_it_is_there_again() -> None:
    health = read(happened(UNCLASSIFIED, now_s=1_000_000), 10, 100, 309)
    assert health.state is HealthState.SUSPECT
    assert read(health, 310).state is HealthState.HEALTHY


@pytest.mark.parametrize(
    ("waiting", "unknown", "reason"),
    [
        (replace(GOOD, remap_pending=True), replace(GOOD, remap_pending=None), "row-remap"),
        (replace(GOOD, recovery="drain"), replace(GOOD, recovery=None), "recovery-drain"),
        (replace(GOOD, recovery="reset"), replace(GOOD, recovery=None), "recovery-reset"),
    ],
)
def test_a_card_waits_on_while_the_driver_fails_to_tell(
    waiting: CardReading, unknown: CardReading, reason: str
) -> None:
    health = read(CardHealth(), 0, reading=waiting)
    assert announced(read(health, *range(10, 2000, 10), reading=unknown))[1] == reason
    assert announced(read(CardHealth(), *range(10, 2000, 10), reading=unknown)) == (Health.HEALTHY, "")
