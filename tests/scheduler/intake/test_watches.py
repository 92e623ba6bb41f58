"""Watch batches are handled in slices, so that a batch of large objects does not delay other tasks."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.intake.event_handlers import EventHandlers
from scheduler.intake.volume_handlers import VolumeHandlers
from scheduler.intake.watches import in_slices, watched
from scheduler.kube.objects import ObjectMeta, PodObject
from scheduler.kube.port import Changed, WatchEvent
from scheduler.kube.scheduling import KINDS_AND_OPTIONAL
from tests.support.reported import STANDING, Reported

BATCH: Sequence[WatchEvent[PodObject]] = [Changed(PodObject(ObjectMeta(f"p{number}"))) for number in range(256)]


async def handed_over(seconds_per_event: float) -> tuple[list[WatchEvent[PodObject]], int, float]:
    """(events handed over, number of turns of other tasks, longest time between these turns)."""
    now_s, got, turns_s = 0.0, list[WatchEvent[PodObject]](), [0.0]

    def handle(events: Sequence[WatchEvent[PodObject]]) -> None:
        nonlocal now_s
        got.extend(events)
        now_s += seconds_per_event * len(events)

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            turns_s.append(now_s)

    other = asyncio.create_task(others())
    await asyncio.sleep(0)
    await in_slices(BATCH, handle, lambda: now_s)
    other.cancel()
    turns_s.append(now_s)
    longest_s = max(after - before for before, after in pairwise(turns_s))
    return got, len(turns_s) - 2, longest_s


async def test_a_batch_of_small_objects_is_handed_over_at_once() -> None:
    got, turns, _ = await handed_over(0.000_01)
    assert (got, turns) == (list(BATCH), 0)


async def test_during_a_batch_of_large_objects_others_run_every_few_events() -> None:
    got, turns, longest_s = await handed_over(0.002)
    assert got == list(BATCH)
    assert turns > 50
    assert longest_s <= 0.008


def test_every_kind_is_watched_once() -> None:
    """Readiness asks after the kinds of `KINDS`: one without a watch would never be listed."""
    engine, reader = build_engine(SchedulerConfiguration())
    handlers = EventHandlers(engine, reader, Reported(), STANDING)
    volume_handlers = VolumeHandlers(engine.tables, Reported())

    names = [one.kind.name for one in watched(handlers, volume_handlers)]

    assert sorted(names) == sorted(kind.name for kind in KINDS_AND_OPTIONAL)
