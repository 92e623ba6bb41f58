"""Every card that the node has, and how each does."""

from dataclasses import replace

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardFailed, CardReading, DriverCard, DriverCards, NoAnswer, Xid
from deviceplugin.health.rules import CardHealth, HealthState, classes
from deviceplugin.health.states import CardStates, HealthChange, health_changes

A, B = (
    DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=1024, minor=0),
    DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=1024, minor=1),
)
REMEMBERED = DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=1024)
GOOD = (Health.HEALTHY, "")
XIDS = classes((), ())


def found(*cards: DriverCard) -> DriverCards:
    return DriverCards("580.1", cards)


GONE = CardFailed("it is lost", lost=True)
UNKNOWN = CardFailed("unknown error", lost=False)


def lost(made: CardStates, *uuids: str) -> None:
    for now_s in (1.0, 11.0, 21.0):
        made.answered(dict.fromkeys(uuids, GONE), now_s)


def states(*cards: DriverCard) -> CardStates:
    made = CardStates(XIDS)
    made.found(found(*cards), forget=False)
    return made


def test_a_card_that_the_driver_stops_naming_is_kept_and_lost_when_it_stays_away() -> None:
    made = states(A, B)
    made.found(found(A), forget=False)
    assert made.cards == (A, B)
    assert made.announced() == {"GPU-a": GOOD, "GPU-b": GOOD}
    lost(made, "GPU-b")
    assert made.announced() == {"GPU-a": GOOD, "GPU-b": (Health.UNHEALTHY, "lost")}


def test_a_card_that_was_not_asked_is_kept_also_after_a_reboot() -> None:
    made = CardStates(XIDS)
    made.remember((A, REMEMBERED))
    made.found(DriverCards("580.1", (A,), frozenset({"GPU-b"})), forget=True)
    assert made.cards == (A, REMEMBERED)


def test_cards_remembered_from_this_boot_are_kept_and_older_ones_forgotten() -> None:
    for forget, expected in ((False, (A, REMEMBERED)), (True, (A,))):
        made = CardStates(XIDS)
        made.remember((REMEMBERED,))
        assert made.announced() == {"GPU-b": GOOD}
        made.found(found(A), forget=forget)
        assert made.cards == expected


def test_cards_are_remembered_with_how_they_did() -> None:
    made = CardStates(XIDS)
    made.remember((A, REMEMBERED), {"GPU-b": CardHealth(state=HealthState.RECOVERING)})
    assert made.announced() == {"GPU-a": GOOD, "GPU-b": (Health.UNHEALTHY, "recovering")}


def test_where_health_is_not_watched_nothing_of_what_was_remembered_keeps_a_card_out_but_that_it_is_released() -> None:
    made = CardStates(None)
    made.remember(
        (A, REMEMBERED),
        {
            "GPU-a": CardHealth(state=HealthState.UNHEALTHY, reason="xid-79", needs_reset=True),
            "GPU-b": CardHealth(state=HealthState.RECOVERING, released_s=600.0),
        },
    )
    assert made.announced()["GPU-a"] == GOOD
    assert made.released() == {"GPU-b": 600.0}


def test_a_replacement_takes_over_the_index_of_a_lost_card() -> None:
    made = states(A, B)
    other = DriverCard(index=1, uuid="GPU-c", model="M", memory_mib=2048)
    for _ in range(2):
        made.found(found(A, other), forget=False)
        assert made.cards == (A, other, replace(B, index=2))


def test_a_card_stays_listed_as_lost_when_the_driver_renumbers_its_neighbour() -> None:
    made = states(A, B)
    renumbered = replace(B, index=0)
    made.found(found(renumbered), forget=False)
    assert made.cards == (renumbered, replace(A, index=2))
    made.found(found(A, B), forget=False)
    assert made.cards == (A, B)


def test_what_the_driver_names_now_is_without_what_it_has_lost_or_never_named() -> None:
    made = CardStates(XIDS)
    made.remember((A, REMEMBERED))
    assert made.named() == DriverCards("", ())
    made.found(found(A, B), forget=False)
    assert made.named() == found(A, B)
    lost(made, "GPU-b")
    assert made.named() == found(A)
    made.answered({"GPU-b": CardReading(used_mib=0)}, 30.0)
    assert made.named() == found(A, B)
    made.found(found(A), forget=False)
    assert made.named() == found(A)


def test_a_card_that_was_not_asked_is_still_named_unless_another_has_its_minor() -> None:
    made = states(A, B)
    made.found(DriverCards("580.1", (A,), frozenset({"GPU-b"})), forget=False)
    assert made.named() == found(A, B)
    other = DriverCard(index=1, uuid="GPU-c", model="M", memory_mib=1024, minor=1)
    made.found(DriverCards("580.1", (A, other), frozenset({"GPU-b"})), forget=False)
    assert made.named() == found(A, other)


def test_a_card_that_came_back_while_nobody_looked_recovers() -> None:
    before = states(A, B)
    lost(before, "GPU-a")
    before.xid(Xid("GPU-b", 79), 1.0)
    made = CardStates(XIDS, healths=before.healths)
    made.remember((A, REMEMBERED))
    made.found(found(A, B), forget=False)
    made.answered(dict.fromkeys(("GPU-a", "GPU-b"), CardReading(used_mib=0)), 30.0)
    # An error of the hardware is not over because the card answers.
    assert made.announced() == {"GPU-a": (Health.UNHEALTHY, "recovering"), "GPU-b": (Health.UNHEALTHY, "xid-79")}


def test_where_all_cards_fail_and_none_is_said_to_be_gone_it_is_the_driver() -> None:
    made = states(A, B)
    for now_s in (0.0, 10.0, 20.0, 30.0):
        made.answered(dict.fromkeys(("GPU-a", "GPU-b"), UNKNOWN), now_s)
    assert set(made.announced().values()) == {(Health.SUSPECT, "silent")}
    alone = states(A)
    for now_s in (0.0, 10.0, 20.0):
        alone.answered({"GPU-a": UNKNOWN}, now_s)
    assert alone.announced() == {"GPU-a": (Health.UNHEALTHY, "lost")}


def test_an_error_is_that_of_its_card_or_of_all() -> None:
    made = states(A, B)
    made.xid(Xid("GPU-b", 79), 1.0)
    assert made.announced() == {"GPU-a": GOOD, "GPU-b": (Health.UNHEALTHY, "xid-79")}
    made.xid(Xid("", 32), 2.0)
    assert made.announced()["GPU-a"] == (Health.SUSPECT, "xid-32")


def test_what_was_read_of_a_card_goes_when_it_does_not_answer() -> None:
    made = states(A, B)
    made.answered(dict.fromkeys(("GPU-a", "GPU-b"), CardReading(used_mib=7)), 1.0)
    made.answered({"GPU-a": GONE, "GPU-b": NoAnswer("late")}, 2.0)
    assert made.readings == {}
    made.answered({"GPU-a": CardReading(used_mib=8)}, 5.0)
    assert made.readings == {"GPU-a": CardReading(used_mib=8)}


def test_where_health_is_not_watched_every_card_is_healthy() -> None:
    made = CardStates(None)
    made.found(found(A, B), forget=False)
    made.xid(Xid("GPU-a", 79), 1.0)
    made.unanswered(["GPU-a"] * 9, 2.0)
    made.answered({"GPU-a": CardReading(used_mib=0, remap_pending=True)}, 3.0)
    assert made.announced() == {"GPU-a": GOOD, "GPU-b": GOOD}


def test_an_operator_clears_the_cards_that_are_named() -> None:
    made = states(A, B)
    for card in (A, B):
        made.xid(Xid(card.uuid, 79), 1.0)
    made.cleared(["GPU-b"], 2.0)
    assert made.announced() == {"GPU-a": (Health.UNHEALTHY, "xid-79"), "GPU-b": (Health.UNHEALTHY, "recovering")}


def test_a_turn_is_a_change_of_what_is_announced() -> None:
    unhealthy = (Health.UNHEALTHY, "xid-79")
    assert health_changes([A, B], {}, {"GPU-a": unhealthy, "GPU-b": GOOD}) == [HealthChange(A, unhealthy)]
    assert health_changes([A, B], {"GPU-a": unhealthy}, {"GPU-a": unhealthy, "GPU-b": GOOD}) == []
    assert health_changes([A], {"GPU-a": unhealthy}, {"GPU-a": GOOD}) == [HealthChange(A, GOOD)]
