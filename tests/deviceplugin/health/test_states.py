"""Every card that the node has, and how each does."""

from dataclasses import replace

from config.protocol.inventory import Health
from deviceplugin.driver.cards import Back, DriverCard, DriverCards, Lost, Reading, Xid
from deviceplugin.health.rules import classes
from deviceplugin.health.states import CardStates, Turn, turns

A, B = (
    DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=1024, minor=0),
    DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=1024, minor=1),
)
REMEMBERED = DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=1024)
GOOD = (Health.HEALTHY, "")
XIDS = classes((), ())


def found(*cards: DriverCard) -> DriverCards:
    return DriverCards("580.1", cards)


def states(*cards: DriverCard) -> CardStates:
    made = CardStates(XIDS)
    made.found(found(*cards), 0.0, forget=False)
    return made


def test_the_driver_names_the_cards() -> None:
    made = states(B, A)
    assert (made.driver, made.cards) == ("580.1", (A, B))
    assert made.announced() == {"GPU-a": GOOD, "GPU-b": GOOD}


def test_a_card_that_the_driver_stops_naming_is_kept_as_lost() -> None:
    made = states(A, B)
    made.found(found(A), 1.0, forget=False)
    assert made.cards == (A, B)
    assert made.announced() == {"GPU-a": GOOD, "GPU-b": (Health.UNHEALTHY, "lost")}


def test_cards_remembered_from_this_boot_are_kept_and_older_ones_forgotten() -> None:
    for forget, expected in ((False, (A, REMEMBERED)), (True, (A,))):
        made = CardStates(XIDS)
        made.remember((REMEMBERED,))
        assert made.announced() == {"GPU-b": GOOD}
        made.found(found(A), 1.0, forget=forget)
        assert made.cards == expected


def test_a_replacement_takes_over_the_index_of_a_lost_card() -> None:
    made = states(A, B)
    other = DriverCard(index=1, uuid="GPU-c", model="M", memory_mib=2048)
    for _ in range(2):
        made.found(found(A, other), 1.0, forget=False)
        assert made.cards == (A, other, replace(B, index=2))


def test_a_card_stays_listed_as_lost_when_the_driver_renumbers_its_neighbour() -> None:
    made = states(A, B)
    renumbered = replace(B, index=0)
    made.found(found(renumbered), 1.0, forget=False)
    assert made.cards == (renumbered, replace(A, index=2))
    assert made.announced() == {"GPU-a": (Health.UNHEALTHY, "lost"), "GPU-b": GOOD}
    made.found(found(A, B), 2.0, forget=False)
    assert made.cards == (A, B)


def test_a_card_that_the_driver_leaves_out_once_recovers() -> None:
    made = states(A, B)
    made.found(found(A), 1.0, forget=False)
    made.found(found(A, B), 2.0, forget=False)
    assert made.announced() == {"GPU-a": GOOD, "GPU-b": (Health.UNHEALTHY, "recovering")}


def test_a_card_that_came_back_while_nobody_looked_recovers() -> None:
    before = states(A, B)
    before.event(Lost("GPU-a"), 1.0)
    before.event(Xid("GPU-b", 79), 1.0)
    made = CardStates(XIDS, healths=before.healths)
    made.remember((A, REMEMBERED))
    made.found(found(A, B), 2.0, forget=False)
    # An error of the hardware is not over because the driver still names the card.
    assert made.announced() == {"GPU-a": (Health.UNHEALTHY, "recovering"), "GPU-b": (Health.UNHEALTHY, "xid-79")}


def test_a_lost_card_that_the_driver_goes_on_naming_is_not_back() -> None:
    made = states(A)
    made.event(Lost("GPU-a"), 1.0)
    made.found(found(A), 2.0, forget=False)
    assert made.announced() == {"GPU-a": (Health.UNHEALTHY, "lost")}


def test_an_error_is_that_of_its_card_or_of_all() -> None:
    made = states(A, B)
    made.event(Xid("GPU-b", 79), 1.0)
    assert made.announced() == {"GPU-a": GOOD, "GPU-b": (Health.UNHEALTHY, "xid-79")}
    made.event(Xid("", 32), 2.0)
    assert made.announced()["GPU-a"] == (Health.SUSPECT, "xid-32")


def test_what_was_read_of_a_card_goes_with_it() -> None:
    made = states(A, B)
    for card in (A, B):
        made.reading(card.uuid, Reading(used_mib=7), 1.0)
    made.event(Lost("GPU-a"), 2.0)
    made.unanswered(["GPU-b"], 3.0)
    assert made.readings == {}
    made.event(Back("GPU-a"), 4.0)
    made.reading("GPU-a", Reading(used_mib=8), 5.0)
    assert made.readings == {"GPU-a": Reading(used_mib=8)}


def test_where_health_is_not_watched_every_card_is_healthy() -> None:
    made = CardStates(None)
    made.found(found(A, B), 0.0, forget=False)
    made.event(Xid("GPU-a", 79), 1.0)
    made.unanswered(["GPU-a"] * 9, 2.0)
    made.reading("GPU-a", Reading(used_mib=0, remap_pending=True), 3.0)
    assert made.announced() == {"GPU-a": GOOD, "GPU-b": GOOD}


def test_an_operator_clears_the_cards_that_are_named() -> None:
    made = states(A, B)
    for card in (A, B):
        made.event(Xid(card.uuid, 79), 1.0)
    made.cleared(["GPU-b"], 2.0)
    assert made.announced() == {"GPU-a": (Health.UNHEALTHY, "xid-79"), "GPU-b": (Health.UNHEALTHY, "recovering")}


def test_a_turn_is_a_change_of_what_is_announced() -> None:
    unhealthy = (Health.UNHEALTHY, "xid-79")
    assert turns([A, B], {}, {"GPU-a": unhealthy, "GPU-b": GOOD}) == [Turn(A, GOOD, unhealthy)]
    assert turns([A, B], {"GPU-a": unhealthy}, {"GPU-a": unhealthy, "GPU-b": GOOD}) == []
    assert turns([A], {"GPU-a": unhealthy}, {"GPU-a": GOOD}) == [Turn(A, unhealthy, GOOD)]
