"""Who has a connection, and whose is cut off for a new one when all places are taken.

    CONNECTED --request--> ANSWERING --answered--> IDLE --request--> ANSWERING

Of the address that has the most: first those that have not asked anything, then those that ask nothing more, then
answers; of these the one on which nothing has happened for longest. So whoever opens many takes the places of his own.
"""

from asyncio import TimerHandle
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from aiohttp import web

_WROTE_S: Final = web.RequestKey("wrote_s", float)


class ConnectionState(IntEnum):
    """In the order in which they are cut off."""

    CONNECTED = 0
    IDLE = 1
    ANSWERING = 2


@dataclass(slots=True)
class OpenConnection:
    """peer: its address. since_s: when it came into its state. deadline: until then it may stay.

    answers: the request, in ANSWERING.
    """

    peer: str
    since_s: float
    deadline: TimerHandle
    state: ConnectionState = ConnectionState.CONNECTED
    answers: web.BaseRequest | None = None

    @property
    def moved_s(self) -> float:
        """When something happened on it last."""
        return self.since_s if self.answers is None else self.answers.get(_WROTE_S, self.since_s)


def wrote(request: web.BaseRequest, now_s: float) -> None:
    """Part of its answer has been written now: for answers that go on. now_s: the event loop's time."""
    request[_WROTE_S] = now_s


def to_cut_off(places: dict[Hashable, OpenConnection]) -> Hashable:
    """Return whose connection, of at least one; see the module."""
    of = Counter(place.peer for place in places.values())
    most = max(of.values())
    candidates = [key for key, place in places.items() if of[place.peer] == most]
    return min(candidates, key=lambda key: (places[key].state, places[key].moved_s))
