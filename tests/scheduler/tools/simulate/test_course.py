import pytest

from scheduler.tools.simulate.course import Course, first_unplaced, shares_by_arrived


def course(units: int, *came: tuple[int, int, bool]) -> Course:
    """came: (units asked, units booked after it, placed)."""
    made = Course(units)
    for second, (asked, used, placed) in enumerate(came):
        made.note(float(second), asked, used, placed=placed)
    return made


def test_shares_are_means_over_the_pods_at_each_whole_percent_arrived() -> None:
    # 0.2 % and 0.4 % arrived are 0; 1.4 % is 1; 2.4 % and, of a pod that asks no cards, again 2.4 % are 2.
    found = shares_by_arrived(
        course(1000, (2, 2, True), (2, 4, True), (10, 4, False), (10, 14, True), (0, 14, True), (20, 34, True))
    )
    assert found == pytest.approx((0.3, 0.4, 1.4, None, 3.4))


def test_what_did_not_get_its_cards_has_arrived_all_the_same() -> None:
    assert shares_by_arrived(course(100, (60, 60, True), (60, 60, False)))[120] == 60.0


def test_the_shares_end_however_much_comes() -> None:
    found = shares_by_arrived(course(100, (50, 50, True), (950, 100, True), (1, 100, False), (100_000, 100, False)))
    assert (len(found), found[50], found[1_000]) == (1_001, 50.0, 100.0)


def test_each_share_is_rounded_to_two_places_before_the_mean() -> None:
    # 33.333… and 33.34, of which the mean would be 33.3366….
    assert shares_by_arrived(course(60_000, (20_000, 20_000, True), (4, 20_004, True)))[33] == pytest.approx(33.335)


def test_the_first_pod_without_a_place_counts_itself_among_what_has_arrived() -> None:
    assert first_unplaced(course(200, (50, 50, True), (30, 50, False), (90, 50, False))) == 40.0
    assert first_unplaced(course(200, (50, 50, True))) is None


def test_nothing_has_no_shares() -> None:
    assert shares_by_arrived(Course()) == ()
    assert shares_by_arrived(course(0, (5, 0, False))) == ()
    assert first_unplaced(course(0, (5, 0, False))) is None
