"""Many ask for the metrics, one rendering serves them, and decisions go on."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from scheduler.process.scrape import Scrapes, exposition


class Rendered:
    """A text that says the how-manieth rendering it is. most: at the same time."""

    def __init__(self, pieces: int = 3, work_s: float = 0.0) -> None:
        self.pieces, self.work_s = pieces, work_s
        self.count = self.now = self.most = 0
        self.threads: set[int] = set()

    def __call__(self) -> Iterator[bytes]:
        self.count += 1
        return self._text(self.count)

    def _text(self, number: int) -> Iterator[bytes]:
        self.now += 1
        self.most = max(self.most, self.now)
        self.threads.add(threading.get_ident())
        for piece in range(self.pieces):
            until_s = time.thread_time() + self.work_s
            while time.thread_time() < until_s:
                pass
            yield f"{number}.{piece} ".encode()
        self.now -= 1


async def test_who_asks_at_the_same_time_gets_the_same_rendering() -> None:
    rendered = Rendered()
    scrapes = Scrapes(rendered)

    texts = await asyncio.gather(*(scrapes.pieces() for _ in range(32)))

    assert {b"".join(text) for text in texts} == {b"1.0 1.1 1.2 "}
    assert (rendered.count, rendered.most) == (1, 1)
    assert threading.get_ident() not in rendered.threads


async def test_a_rendering_serves_for_a_while_and_then_there_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    scrapes = Scrapes(Rendered(), kept_s=60.0)
    texts = [b"".join(await scrapes.pieces()) for _ in range(10)]
    loop, clock = asyncio.get_running_loop(), asyncio.get_running_loop().time
    monkeypatch.setattr(loop, "time", lambda: clock() + 60.0)
    texts.append(b"".join(await scrapes.pieces()))

    assert texts == [*[b"1.0 1.1 1.2 "] * 10, b"2.0 2.1 2.2 "]


async def test_who_leaves_does_not_end_the_rendering_for_the_others() -> None:
    rendered = Rendered(pieces=20)
    scrapes = Scrapes(rendered)
    leaves, stays = asyncio.create_task(scrapes.pieces()), asyncio.create_task(scrapes.pieces())
    await asyncio.sleep(0)

    leaves.cancel()

    assert len(await stays) == 20
    assert rendered.count == 1


async def test_a_rendering_that_fails_fails_whoever_asked_and_not_the_next_one() -> None:
    texts = iter([b"", b"fine"])

    def scrape() -> Iterator[bytes]:
        text = next(texts)
        if not text:
            raise ZeroDivisionError
        yield text

    scrapes = Scrapes(scrape)
    with pytest.raises(ZeroDivisionError):
        await scrapes.pieces()
    assert await scrapes.pieces() == [b"fine"]


async def test_a_rendering_takes_a_tenth_of_the_time_of_its_thread() -> None:
    rendered = Rendered(pieces=20, work_s=0.002)
    began_s = time.monotonic()

    await Scrapes(rendered).pieces()

    assert time.monotonic() - began_s >= 20 * 0.002 * 10 * 0.95


def test_piece_by_piece_is_the_same_text() -> None:
    registry = CollectorRegistry()
    Counter("c", "Counts.", ["l"], registry=registry).labels("x").inc()
    Gauge("g", "Shows.", registry=registry).set(3)
    Histogram("h", "Measures.", registry=registry).observe(0.2)

    assert b"".join(exposition(registry)) == generate_latest(registry)
