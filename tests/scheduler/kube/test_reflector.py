import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import pytest

from scheduler.kube import objects, port
from scheduler.kube.port import PODS, Bookmark, Changed, Cluster, Deleted, ListBegins, ListEnds, Undecodable
from scheduler.kube.reflector import BATCH, Backoff, WatchBackoff, reflect
from tests.support.virtual_time import run


def pod(name: str, uid: str = "", version: str = "") -> objects.Pod:
    return objects.Pod(objects.ObjectMeta(name, "default", uid or f"uid-{name}", version))


def rng(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 a seed, no secret


def watch_backoff(seed: int = 1) -> WatchBackoff:
    return WatchBackoff(rng(seed), reconnect_max_s=1.0)


def listed(version: str, *pods: objects.Pod) -> list[Any]:
    return [ListBegins(), *map(Changed, pods), ListEnds(version)]


@dataclass
class Script:
    """Connections of a cluster: each a sequence of batches, seconds to wait, and an error at the end; then silence."""

    connections: Sequence[Sequence[Any]]
    asked: list[tuple[float, str | None]] = field(default_factory=list)
    closed: int = 0

    async def watch(self, kind: port.Kind[objects.Pod], since: str | None) -> AsyncIterator[list[Any]]:
        assert kind is PODS
        self.asked.append((asyncio.get_running_loop().time(), since))
        try:
            nth = len(self.asked) - 1
            for step in self.connections[nth] if nth < len(self.connections) else [1e9]:
                if isinstance(step, port.ApiError):
                    raise step
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    yield list(step)
        finally:
            self.closed += 1

    @property
    def versions(self) -> list[str | None]:
        return [since for _, since in self.asked]

    @property
    def pauses_s(self) -> list[float]:
        return [later - earlier for (earlier, _), (later, _) in pairwise(self.asked)]


@dataclass
class Heard:
    events: list[Any]
    batches: list[int]
    troubles: list[port.ApiError | None]
    answers: list[bool] = field(default_factory=list)
    """Of each answer, whether it opened a connection."""


def listen(script: Script, hours: float = 1.0) -> Heard:
    """What a consumer hears in this (virtual) time."""
    heard = Heard([], [], [])

    async def main() -> None:
        def on_trouble(_: port.Kind[objects.Pod], error: port.ApiError | None) -> None:
            heard.troubles.append(error)

        with suppress(TimeoutError):
            async with asyncio.timeout(3600 * hours):
                batches = reflect(
                    cast("Cluster", script),
                    PODS,
                    backoff=watch_backoff(7),
                    on_trouble=on_trouble,
                    on_answer=lambda _, opened: heard.answers.append(opened),
                )
                async for batch in batches:
                    heard.events += batch
                    heard.batches.append(len(batch))

    run(main())
    return heard


def test_lists_and_changes_pass_and_bookmarks_stay_inside() -> None:
    script = Script([[listed("5", pod("a")), [Bookmark("6")], [Deleted(pod("a", version="7"))], 1e9]])

    heard = listen(script)

    assert heard.events == [*listed("5", pod("a")), Deleted(pod("a", version="7"))]
    assert 0 not in heard.batches


@pytest.mark.parametrize(
    ("last", "version"),
    [
        pytest.param([], "5", id="the list"),
        pytest.param([Changed(pod("b", version="8"))], "8", id="a change"),
        pytest.param([Deleted(pod("a", version="9"))], "9", id="a deletion"),
        pytest.param([Bookmark("10")], "10", id="a bookmark"),
        pytest.param([Changed(pod("b", version="8")), Undecodable("default/x", "bad")], "8", id="not a bad object"),
    ],
)
def test_a_watch_that_ends_normally_resumes_at_once_from_the_last_version(last: list[Any], version: str) -> None:
    script = Script([[listed("5", pod("a", version="3")), [*last], 300.0], [1e9]])

    listen(script)

    assert script.versions == [None, version]
    assert script.pauses_s == [300.0]


def test_a_watch_that_always_ends_at_once_is_not_resumed_in_a_hot_loop() -> None:
    script = Script([[listed("5")], *([] for _ in range(200))])

    heard = listen(script)

    assert heard.troubles == []
    assert len(script.asked) < 200
    assert script.pauses_s[0] >= 0.05
    assert max(script.pauses_s) <= 30.0


def test_events_do_not_make_a_hot_loop_harmless() -> None:
    script = Script([[listed("0")], *([[Changed(pod("a", version=str(number)))]] for number in range(1, 50))])

    listen(script)

    assert min(script.pauses_s) >= 0.05


def test_an_expired_version_lists_again() -> None:
    script = Script([[listed("5", pod("a")), 10.0, port.WatchExpired("too old", 410)], [listed("9", pod("a")), 1e9]])

    heard = listen(script)

    assert script.versions == [None, None]
    assert heard.events == [*listed("5", pod("a")), *listed("9", pod("a"))]
    assert heard.troubles == []


def test_what_vanished_between_two_lists_is_deleted_by_name_and_uid() -> None:
    first = [pod("a"), pod("b"), pod("c")]
    script = Script([[listed("5", *first), 1.0, port.WatchExpired("")], [listed("9", pod("b")), 1e9]])

    heard = listen(script)

    assert heard.events[5:] == [ListBegins(), Changed(pod("b")), Deleted(pod("a")), Deleted(pod("c")), ListEnds("9")]


def test_a_name_that_came_back_with_another_uid_was_deleted_first() -> None:
    script = Script([[listed("5", pod("a")), 1.0, port.WatchExpired("")], [listed("9", pod("a", uid="new")), 1e9]])

    heard = listen(script)

    assert heard.events[3:] == [ListBegins(), Deleted(pod("a")), Changed(pod("a", uid="new")), ListEnds("9")]


def test_when_what_came_back_could_not_be_decoded_the_one_before_is_gone_with_it() -> None:
    unreadable = [ListBegins(), port.Undecodable("default/a", "bad"), ListEnds("9")]
    gone = [Deleted(pod("a", uid="new", version="10"))]
    script = Script([[listed("5", pod("a")), 1.0, port.WatchExpired("")], [unreadable, gone, 1e9]])

    heard = listen(script)

    assert heard.events[6:] == [Deleted(pod("a")), *gone]


def test_what_was_seen_gone_is_not_deleted_twice() -> None:
    before = [listed("5", pod("a")), [Deleted(pod("a", version="6"))], 1.0, port.WatchExpired("")]

    heard = listen(Script([before, [listed("9"), 1e9]]))

    assert sum(isinstance(event, Deleted) for event in heard.events) == 1


def test_what_went_while_the_list_came_is_gone() -> None:
    during = [ListBegins(), Changed(pod("a")), Deleted(pod("a", version="6")), ListEnds("7")]

    assert listen(Script([[during, 1e9]])).events == during


def test_a_bad_object_of_a_list_exists() -> None:
    again = [ListBegins(), Undecodable("default/a", "bad"), ListEnds("9")]

    heard = listen(Script([[listed("5", pod("a")), 1.0, port.WatchExpired("")], [again, 1e9]]))

    assert heard.events[3:] == again


def test_a_list_that_broke_off_starts_over_and_its_versions_are_ignored() -> None:
    half = [ListBegins(), Changed(pod("a", version="99"))]
    script = Script([[half, port.ApiSilent("lost")], [listed("9", pod("b")), 1e9]])

    heard = listen(script)

    assert script.versions == [None, None]
    assert heard.events == [*half, ListBegins(), Changed(pod("b")), Deleted(pod("a")), ListEnds("9")]


def test_many_deletions_come_in_small_batches() -> None:
    pods = [pod(f"p{number:04}") for number in range(1000)]
    full = listed("5", *pods)
    chunks = [full[start : start + BATCH] for start in range(0, len(full), BATCH)]

    heard = listen(Script([[*chunks, 1.0, port.WatchExpired("")], [listed("9"), 1e9]]))

    assert sum(isinstance(event, Deleted) for event in heard.events) == 1000
    assert max(heard.batches) <= BATCH


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


def test_a_missing_right_is_reported_once() -> None:
    denied = port.ApiForbidden("pods is forbidden", 403)

    heard = listen(Script([*([denied] for _ in range(5)), [listed("5"), 1e9]]))

    assert heard.troubles == [denied, None]


def test_a_different_failure_is_reported_again() -> None:
    lost, failed = port.ApiSilent("lost"), port.ApiFailed("etcd", 500)
    script = Script([[lost], [port.ApiSilent("lost")], [failed], [lost], [listed("5"), 1e9]])

    assert listen(script).troubles == [lost, failed, lost, None]


def test_waits_are_the_same_for_the_same_seed_and_differ_for_another() -> None:
    first, same, other = ([Backoff(rng(seed)).delay_s(failures) for failures in range(1, 9)] for seed in (1, 1, 2))

    assert first == same != other


def test_a_consumer_that_stops_closes_the_connection() -> None:
    script = Script([[listed("5"), 1e9]])

    async def main() -> None:
        batches = reflect(cast("Cluster", script), PODS, backoff=watch_backoff(), on_trouble=lambda _, __: None)
        await anext(batches)
        await cast("Any", batches).aclose()
        assert script.closed == 1

    run(main())


def test_a_bug_is_not_retried() -> None:
    class Broken:
        async def watch(self, _: object, __: object) -> AsyncIterator[list[Any]]:
            message = "a bug"
            raise ZeroDivisionError(message)
            yield []

    async def main() -> None:
        backoff = watch_backoff()
        async for _ in reflect(cast("Cluster", Broken()), PODS, backoff=backoff, on_trouble=lambda _, __: None):
            pass

    with pytest.raises(ZeroDivisionError):
        run(main())
