"""What a storm of errors leaves in the log."""

from deviceplugin.driver.cards import Xid
from deviceplugin.health.rules import XidLog


def test_a_storm_is_a_line_a_minute_with_the_number_of_errors() -> None:
    log = XidLog()
    lines = [log.times(Xid("GPU-a", 94, times=10), now_s / 10) for now_s in range(1210)]
    assert [times for times in lines if times] == [10, 6000, 6000]


def test_each_kind_of_error_of_each_card_is_logged_at_once() -> None:
    log = XidLog()
    for xid in (Xid("GPU-a", 94), Xid("GPU-a", 79), Xid("GPU-b", 94)):
        assert log.times(xid, 5.0) == 1
