"""What can become of one request between two programs, each by itself, and a generator that deals them out.

The outcome in the store is given where it is sure: *not* executed, executed (*once*), or *either*.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import aiohttp

from e2e.fire.proxy import Answer, Cut, Mishap, Passing, status_body

Made: TypeAlias = Callable[[Passing, random.Random], Awaitable[Answer]]

_LONGEST_DELAY_S: Final = 0.5
_JSON: Final = {"Content-Type": "application/json"}
# Beyond the time that the client gives a request (in `site`: bindTimeout, half of renewDeadline for the Lease, and 30 s
# for all others, which is too long), and no later than a new leader can have the Lease.
_LATE_S: Final = (1.2, 1.8)


async def delayed(passing: Passing, rng: random.Random) -> Answer:
    """Once, later."""
    await passing.hold(rng.uniform(0.0, _LONGEST_DELAY_S))
    return await passing.sent()


async def cut_before(_: Passing, __: random.Random) -> Answer:
    """Not: the connection ends instead of an answer."""
    raise Cut


async def half_sent(passing: Passing, _: random.Random) -> Answer:
    """Not: the connections end when half of the body has come through."""
    await passing.half_sent()
    raise Cut


async def half_answered(passing: Passing, _: random.Random) -> Answer:
    """Once: the connection ends in the middle of the answer."""
    raise Cut(await passing.sent())


async def answer_lost(passing: Passing, _: random.Random) -> Answer:
    """Once: the connection ends when it has taken effect."""
    await passing.sent()
    raise Cut


async def executed_late(passing: Passing, rng: random.Random) -> Answer:
    """Once, after the client has given up on it."""

    async def later() -> None:
        await passing.hold(rng.uniform(*_LATE_S))
        with suppress(aiohttp.ClientError, OSError):
            await passing.sent()

    # The request goes on when the client's connection ends, and with it this one.
    await asyncio.shield(asyncio.create_task(later()))
    raise Cut


async def twice(passing: Passing, _: random.Random) -> Answer:
    """Once, and again: the client gets the second answer, as from a proxy that retries."""
    await passing.sent()
    return await passing.sent()


async def first_of_two(passing: Passing, _: random.Random) -> Answer:
    """Once, and again: the client gets the first answer."""
    first = await passing.sent()
    await passing.sent()
    return first


async def throttled(_: Passing, __: random.Random) -> Answer:
    """Not: 429, as the API server says it."""
    return Answer(
        429, {"Retry-After": "1", "Content-Type": "text/plain"}, b"Too many requests, please try again later."
    )


async def failed(passing: Passing, rng: random.Random) -> Answer:
    """Either: 500, when it has ended."""
    if rng.random() < 1 / 2:
        await passing.sent()
    return _status(500, "InternalError", "etcdserver: request timed out")


async def timed_out(passing: Passing, rng: random.Random) -> Answer:
    """Either: 504, when it has ended."""
    if rng.random() < 1 / 2:
        await passing.sent()
    return _status(504, "Timeout", "request did not complete within the allotted timeout")


async def error_page(passing: Passing, rng: random.Random) -> Answer:
    """Either: 502 by a load balancer, which is no answer of the API server's."""
    if rng.random() < 1 / 2:
        await passing.sent()
    return Answer(502, {"Content-Type": "text/html"}, b"<html><h1>502 Bad Gateway</h1></html>")


ALL: Final[Mapping[str, Made]] = {
    one.__name__: one
    for one in (
        *(delayed, cut_before, half_sent, half_answered, answer_lost, executed_late),
        *(twice, first_of_two, throttled, failed, timed_out, error_page),
    )
}
# Events and conditions are written once or not at all; the client gives them 30 s, and they hold up nothing.
_WITH_A_TIMEOUT: Final = frozenset({"executed_late"})


@dataclass(slots=True)
class Dealt:
    """A `proxy.Choose`. chance: that a request has a mishap. counted: those dealt."""

    rng: random.Random
    kinds: Mapping[str, Made]
    chance: float
    counted: Counter[str] = field(default_factory=Counter)

    def __call__(self, passing: Passing) -> Mishap | None:
        """Deal one, or none."""
        short = passing.is_binding or passing.is_lease
        kinds = [name for name in self.kinds if short or name not in _WITH_A_TIMEOUT]
        if not kinds or self.rng.random() >= self.chance:
            return None
        name = self.rng.choice(kinds)
        self.counted[name] += 1
        rng = random.Random(self.rng.random())  # noqa: S311 - of one seed
        return lambda passing: self.kinds[name](passing, rng)


def _status(code: int, reason: str, message: str) -> Answer:
    return Answer(code, _JSON, json.dumps(status_body(code, reason, message)).encode())
