"""What holds an event loop is found, and is judged by the longest and by all but one in a thousand."""

import time

import pytest
import uvloop

from e2e.bench.probed import Holds, Probe


def test_what_holds_the_loop_is_found() -> None:
    loop = uvloop.new_event_loop()
    probe = Probe(loop)

    def hold() -> None:
        end_s = time.thread_time() + 0.03
        while time.thread_time() < end_s:
            pass

    loop.call_later(0.005, hold)
    loop.call_later(0.05, loop.stop)
    loop.run_forever()
    loop.close()

    assert 30 <= probe.holds().longest < 60


@pytest.mark.parametrize(
    ("longest", "p99_9", "said"),
    [(50.0, 20.0, "reached"), (50.1, 2.0, "**missed**"), (30.0, 20.1, "**missed**")],
)
def test_both_have_to_stay_below(longest: float, p99_9: float, said: str) -> None:
    assert Holds(1000, longest, p99_9).row("here")[2].endswith(f", {said}")
