"""What the random histories take for the same."""

from tests.system.history import without_numbers


def test_a_reason_is_the_same_whatever_its_numbers_are() -> None:
    one = "0/3 nodes are available: 1 node(s) had 1 card that is listed, 2 node(s) were unschedulable."
    other = "0/4 nodes are available: 1 node(s) were unschedulable, 3 node(s) had 5 cards that is listed."

    assert without_numbers(one) == without_numbers(other)
    assert without_numbers(one) != without_numbers(one.replace("listed", "cordoned"))
