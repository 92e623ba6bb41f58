"""A connection to a server from the moment it is accepted until its TLS handshake is over.

    accepted ──handshake──▶ the protocol of its requests
       └── fails, takes too long, or is cut off ──▶ closed

asyncio tells a server of a connection once the handshake is over, and until then counts none: whoever opens connections
and says nothing would take every file that the process may open. So the server listens without TLS, learns of each, and
has the handshake made on a socket of its own.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from typing import cast

Accepted = Callable[["Handshake", asyncio.BaseTransport], None]


class Handshake(asyncio.Protocol):
    """One. `accepted` is called with it, and may call `begin` then."""

    def __init__(self, accepted: Accepted) -> None:
        """accepted: of the server."""
        self._accepted = accepted
        self._making: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is accepted."""
        # Before anything is read of it, so that the handshake finds all.
        self._accepted(self, transport)
        # uvloop's is no asyncio.Transport, but has what is used.
        cast("asyncio.Transport", transport).abort()

    def begin(
        self,
        transport: asyncio.BaseTransport,
        protocol: asyncio.BaseProtocol,
        tls: ssl.SSLContext,
        within_s: float,
        over: Callable[[], None],
    ) -> None:
        """Make it, then give the connection to `protocol`; in `accepted`. over: called when it is, or has failed."""
        try:
            own = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        except OSError:  # no file is left
            over()
            return
        own.settimeout(0)
        self._making = asyncio.create_task(_make(own, protocol, tls, within_s))
        self._making.add_done_callback(lambda made: _ended(made, own, over))

    def abort(self) -> None:
        """Close it; afterwards that of the requests is none of ours."""
        if self._making is not None:
            self._making.cancel()


async def _make(own: socket.socket, protocol: asyncio.BaseProtocol, tls: ssl.SSLContext, within_s: float) -> None:
    # What comes of a peer that speaks no TLS, leaves, or says nothing.
    with contextlib.suppress(OSError):
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol, own, ssl=tls, ssl_handshake_timeout=within_s
        )


def _ended(made: asyncio.Task[None], own: socket.socket, over: Callable[[], None]) -> None:
    over()
    if made.cancelled():
        # Before it began, nobody else has it.
        own.close()
