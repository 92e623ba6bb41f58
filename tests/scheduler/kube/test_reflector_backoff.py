"""How long a reflector waits before it asks again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

import pytest

from scheduler.kube import port
from scheduler.kube.port import PODS, Changed, Cluster, ListBegins
from scheduler.kube.reflector import Backoff, WatchBackoff, reflect
from tests.scheduler.kube.reflecting import Script, listed, listen, pod, rng
from tests.support.clocks.virtual_time import run


def ceilings_s(most_s: float, count: int) -> list[float]:
    return [min(0.1 * 2**number, most_s) for number in range(count)]


@pytest.mark.parametrize(
    ("before", "error", "most_s"),
    [
        pytest.param([], port.ApiSilent("refused"), 1.0, id="nobody there, at a list"),
        pytest.param(listed("5"), port.ApiSilent("refused"), 1.0, id="nobody there, at a watch"),
        pytest.param([], port.ApiFailed("etcd", 500), 30.0, id="a list that the server fails"),
        pytest.param([], port.ApiThrottled("full"), 30.0, id="a list that is too much"),
        pytest.param(listed("5"), port.ApiFailed("etcd", 500), 1.0, id="a watch that the server fails"),
        pytest.param(listed("5"), port.ApiThrottled("full"), 1.0, id="a watch that is too much"),
        pytest.param([], port.ApiForbidden("no right", 403), 30.0, id="refused"),
        pytest.param(listed("5"), port.ApiForbidden("Unauthorized", 401), 30.0, id="refused, at a watch"),
    ],
)
def test_what_failed_says_how_long_to_wait(before: list[Any], error: port.ApiError, most_s: float) -> None:
    script = Script([[before, error] if before else [error], *([error] for _ in range(19))])

    listen(script)

    assert all(
        ceiling / 2 <= pause <= ceiling for pause, ceiling in zip(script.pauses_s, ceilings_s(most_s, 20), strict=True)
    )


def test_a_long_absence_does_not_delay_the_list_after_it() -> None:
    gone = [[port.ApiSilent("refused")] for _ in range(100)]
    script = Script([[listed("5"), *gone[0]], *gone, [port.WatchExpired("")], [listed("9"), 1e9]])

    listen(script)

    assert script.pauses_s[-1] <= 0.1


def test_an_absence_long_after_another_is_looked_into_as_closely() -> None:
    script = Script([[listed("5"), port.ApiSilent("")], *[[port.ApiSilent("")]] * 9, [300.0, port.ApiSilent("")]])

    listen(script)

    assert (script.pauses_s[-2] > 0.4, script.pauses_s[-1] - 300.0 <= 0.1) == (True, True)


def test_a_connection_that_delivered_something_resets_the_back_off() -> None:
    fails = [port.ApiSilent("lost")]
    works = [[Changed(pod("a", version="6"))], port.ApiSilent("lost")]
    script = Script([[listed("5"), *fails], *[fails] * 6, works, fails])

    listen(script)

    assert script.pauses_s[6] >= 0.5
    assert script.pauses_s[7] <= 0.1


def test_a_list_that_never_completes_backs_off() -> None:
    script = Script([[[ListBegins(), Changed(pod("a"))], port.ApiSilent("lost")] for _ in range(12)])

    heard = listen(script)

    assert script.pauses_s[-1] >= 15.0
    assert len(heard.troubles) == 1


def test_a_watch_that_is_accepted_works_again_before_it_tells_anything() -> None:
    script = Script([[listed("5"), port.ApiSilent("lost")], [port.ApiSilent("lost")], [[], 1e9]])

    heard = listen(script)

    assert [type(trouble) for trouble in heard.troubles] == [port.ApiSilent, type(None)]
    assert heard.answers == [True, True]
    assert 0 not in heard.batches


def test_a_version_that_expires_right_after_its_list_backs_off() -> None:
    script = Script([[listed(str(number)), 5.0, port.WatchExpired("")] for number in range(12)])

    listen(script)

    assert script.pauses_s[-1] >= 15.0


def test_a_server_that_says_when_to_retry_is_obeyed() -> None:
    script = Script([[port.ApiThrottled("slow", 22.0)]])

    listen(script)

    assert 22.0 <= script.pauses_s[0] <= 30.0


def test_no_wait_that_is_asked_for_is_longer_than_half_a_minute() -> None:
    script = Script([[port.ApiThrottled("tomorrow", 86_400.0)]])

    listen(script)

    assert script.pauses_s == [port.LONGEST_RETRY_AFTER_S]


@pytest.mark.parametrize(
    ("before", "back_s"),
    [
        pytest.param([], 0.0, id="all ask at the same moment, and are told to come again in a second"),
        pytest.param([port.ApiSilent("gone")] * 100, 60.0, id="all have been without the server for a minute"),
    ],
)
def test_many_clients_do_not_come_back_at_the_same_moment(before: list[port.ApiError], back_s: float) -> None:
    """Throttled three times, as kube-apiserver does it: with Retry-After: 1."""
    clients = 200
    came: list[float] = []
    throttled = port.ApiThrottled("full", 1.0)

    class Together:
        """One server to all of them."""

        async def watch(self, *_: object) -> AsyncIterator[list[Any]]:
            now_s = asyncio.get_running_loop().time()
            if now_s < back_s:
                raise before[0]
            came.append(now_s)
            raise throttled
            yield []

    async def follow(seed: int) -> None:
        backoff = WatchBackoff(rng(seed), reconnect_max_s=5.0)
        async for _ in reflect(cast("Cluster", Together()), PODS, backoff=backoff, on_trouble=lambda *_: None):
            pass

    async def main() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(back_s + 8.0), asyncio.TaskGroup() as tasks:
                for seed in range(clients):
                    tasks.create_task(follow(seed))

    run(main())

    first = clients if not back_s else 0  # nobody can help that they all begin together
    tenths = Counter(int(at_s * 10) for at_s in came[first:])
    assert len(came) > 2 * clients
    assert max(tenths.values()) <= 0.35 * clients


def test_waits_are_the_same_for_the_same_seed_and_differ_for_another() -> None:
    first, same, other = ([Backoff(rng(seed)).delay_s(failures) for failures in range(1, 9)] for seed in (1, 1, 2))

    assert first == same != other
