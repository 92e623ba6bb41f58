"""Open connections, and the choice of one to close when the server is full.

    CONNECTED --request--> ANSWERING --answered--> IDLE --request--> ANSWERING

The server closes a connection of the address that has the most: first one without a request, then an idle one, then one
being answered; among equals, the one idle longest. So a client with many connections loses one of its own.
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
    """States of a connection, in the order in which connections are closed."""

    CONNECTED = 0
    IDLE = 1
    ANSWERING = 2


@dataclass(slots=True)
class OpenConnection:
    """An open connection. peer: its address. since_s: when it entered its state. deadline: when it is cut off.

    answers: the request, while ANSWERING.
    """

    peer: str
    since_s: float
    deadline: TimerHandle
    state: ConnectionState = ConnectionState.CONNECTED
    answers: web.BaseRequest | None = None

    @property
    def moved_s(self) -> float:
        """Time of the last activity."""
        return self.since_s if self.answers is None else self.answers.get(_WROTE_S, self.since_s)


def wrote(request: web.BaseRequest, now_s: float) -> None:
    """Record that a part of a long answer was written. now_s: the event loop's time."""
    request[_WROTE_S] = now_s


def to_cut_off(places: dict[Hashable, OpenConnection]) -> Hashable:
    """Return the connection to close, in the order that the module describes. places: not empty."""
    of = Counter(place.peer for place in places.values())
    most = max(of.values())
    candidates = [key for key, place in places.items() if of[place.peer] == most]
    return min(candidates, key=lambda key: (places[key].state, places[key].moved_s))
