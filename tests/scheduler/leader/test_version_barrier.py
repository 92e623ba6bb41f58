"""The resource-version barrier: which changes of pods the tables include."""

import asyncio
from collections.abc import Sequence

import pytest

from scheduler.kube.objects import ObjectMeta, PodObject
from scheduler.kube.port import Bookmark, Changed, Deleted, ListBegins, ListEnds, WatchEvent
from scheduler.kube.resource_versions import version_number
from scheduler.leader.leadership import VersionBarrier


def at(version: str) -> PodObject:
    return PodObject(ObjectMeta("p", resource_version=version))


@pytest.mark.parametrize(
    ("events", "version", "last_change"),
    [
        pytest.param([], "0", "0", id="nothing"),
        pytest.param([ListBegins(), Changed(at("7"))], "0", "7", id="a list that has not ended"),
        pytest.param([ListBegins(), Changed(at("7")), ListEnds("9")], "9", "7", id="a list"),
        pytest.param([ListEnds("9"), Changed(at("12")), Bookmark("15")], "15", "12", id="a bookmark"),
        pytest.param([ListEnds("9"), Changed(at("12")), Deleted(at("13"))], "13", "13", id="a pod that went"),
        pytest.param([ListEnds("9"), Changed(at(""))], "9", "0", id="a pod without a version"),
        pytest.param([ListEnds("9"), Changed(at("v12")), Changed(at("1" * 30))], "9", "0", id="no versions"),
        pytest.param([ListEnds("")], "0", "0", id="a list without a version"),
    ],
)
def test_what_has_come_by_the_watch_is_seen(
    events: Sequence[WatchEvent[PodObject]], version: str, last_change: str
) -> None:
    seen = VersionBarrier()
    seen.handled(events)
    assert (seen.version, seen.last_change) == (version, last_change)


async def test_who_waits_for_a_change_is_told_when_it_is_there() -> None:
    seen = VersionBarrier()
    waiting = asyncio.create_task(seen.wait_for("12"))
    for events in ([ListEnds("9")], [Changed(at("11"))]):
        seen.handled(events)
        await asyncio.sleep(0)
        assert not waiting.done()
    seen.handled([Bookmark("12")])
    await waiting


@pytest.mark.parametrize(("text", "number"), [("12", 12), ("0", 0), ("", 0), ("x", 0), ("١٢", 0), ("9" * 21, 0)])
def test_only_a_number_is_a_version(text: str, number: int) -> None:
    assert version_number(text) == number
