"""A container's part of its cards, as templates have it."""

import pytest

from tests.support.node.container_shares import share_of


@pytest.mark.parametrize(
    ("units", "cards", "asked", "percent"),
    [
        pytest.param(4, 1, 0, 25, id="its share of the memory"),
        pytest.param(1, 1, 0, 6, id="rounded down"),
        pytest.param(16, 1, 0, 100, id="a whole card"),
        pytest.param(4, 1, 30, 30, id="what it asks of compute"),
        pytest.param(4, 2, 25, 13, id="spread over its cards, rounded up"),
        pytest.param(4, 1, 400, 100, id="never more than a card"),
    ],
)
def test_hundredths_of_a_card(units: int, cards: int, asked: int, percent: int) -> None:
    assert share_of(units, cards=cards, percent=asked).percent == percent


def test_a_share_too_small_for_a_hundredth_is_one() -> None:
    assert share_of(1, card_units=1000).percent == 1


def test_the_values_of_a_container_with_two_cards() -> None:
    assert share_of(4, cards=2, name="p").values() == {
        "units": "4",
        "mib": "4096",
        "percent": "25",
        "uuid": "GPU-0000,GPU-0001",
        "index": "0,1",
        "pod_uid": "uid-p",
        "container": "c0",
    }
