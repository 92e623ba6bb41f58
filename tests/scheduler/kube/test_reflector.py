"""What a consumer of a reflector is told, and from which version it goes on."""

from collections.abc import AsyncIterator
from itertools import chain
from typing import Any, Final, cast

import pytest

from scheduler.kube import port
from scheduler.kube.port import PODS, Bookmark, Changed, Cluster, Deleted, ListBegins, ListEnds, Undecodable
from scheduler.kube.reflector import BATCH, reflect
from tests.scheduler.kube.reflecting import Script, listed, listen, pod, watch_backoff
from tests.support.clocks.virtual_time import run


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


NEW: Final = pod("a", uid="new", version="10")
UNREADABLE: Final = [ListBegins(), Undecodable("default/a", "bad"), ListEnds("9")]


@pytest.mark.parametrize(
    ("before", "again", "told"),
    [
        pytest.param(
            [listed("5", pod("a"), pod("b"), pod("c"))],
            [listed("9", pod("b"))],
            [ListBegins(), Changed(pod("b")), Deleted(pod("a")), Deleted(pod("c")), ListEnds("9")],
            id="what vanished is deleted by name and uid",
        ),
        pytest.param(
            [listed("5", pod("a"))],
            [listed("9", NEW)],
            [ListBegins(), Deleted(pod("a")), Changed(NEW), ListEnds("9")],
            id="a name that came back with another uid was deleted first",
        ),
        pytest.param([listed("5", pod("a"))], [UNREADABLE], UNREADABLE, id="a bad object exists"),
        pytest.param(
            [listed("5", pod("a"))],
            [UNREADABLE, [Deleted(NEW)]],
            [*UNREADABLE, Deleted(pod("a")), Deleted(NEW)],
            id="when what came back could not be decoded, the one before is gone with it",
        ),
        pytest.param(
            [listed("5", pod("a")), [Deleted(pod("a", version="6"))]],
            [listed("9")],
            listed("9"),
            id="what was seen gone is not deleted twice",
        ),
    ],
)
def test_a_second_list_tells_what_became_of_the_first(
    before: list[list[Any]], again: list[list[Any]], told: list[Any]
) -> None:
    heard = listen(Script([[*before, 1.0, port.WatchExpired("")], [*again, 1e9]]))

    assert heard.events == [*chain(*before), *told]


def test_what_went_while_the_list_came_is_gone() -> None:
    during = [ListBegins(), Changed(pod("a")), Deleted(pod("a", version="6")), ListEnds("7")]

    assert listen(Script([[during, 1e9]])).events == during


def test_what_could_not_even_be_named_may_be_any_of_those_that_are_missing() -> None:
    again = [ListBegins(), Undecodable("", "bad"), ListEnds("9")]
    script = Script(
        [[listed("5", pod("a")), 1.0, port.WatchExpired("")], [again, port.WatchExpired("")], [listed("12"), 1e9]]
    )

    heard = listen(script)

    assert heard.events[3:] == [*again, ListBegins(), Deleted(pod("a")), ListEnds("12")]


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


def test_a_missing_right_is_reported_once() -> None:
    denied = port.ApiForbidden("pods is forbidden", 403)

    heard = listen(Script([*([denied] for _ in range(5)), [listed("5"), 1e9]]))

    assert heard.troubles == [denied, None]


def test_a_different_failure_is_reported_again() -> None:
    lost, failed = port.ApiSilent("lost"), port.ApiFailed("etcd", 500)
    script = Script([[lost], [port.ApiSilent("lost")], [failed], [lost], [listed("5"), 1e9]])

    assert listen(script).troubles == [lost, failed, lost, None]


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
