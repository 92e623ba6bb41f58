"""TLS handshake of a server connection, from the moment it is accepted.

    accepted ──handshake──▶ the protocol of its requests
       └── fails, takes too long, or is cut off ──▶ closed

asyncio reports a server connection only after the handshake, so silent clients could use up all file descriptors of the
process. Therefore the server listens without TLS, sees each connection, and runs the handshake on its own socket.
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
    """Handshake of one connection. `accepted` is called with it and may then call `begin`."""

    def __init__(self, accepted: Accepted) -> None:
        """accepted: callback of the server."""
        self._accepted = accepted
        self._making: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake."""
        # Before any data is read from the socket, so that the handshake gets all of it.
        self._accepted(self, transport)
        # uvloop's transport is not an asyncio.Transport, but has the methods used here.
        cast("asyncio.Transport", transport).abort()

    def begin(
        self,
        transport: asyncio.BaseTransport,
        protocol: asyncio.BaseProtocol,
        tls: ssl.SSLContext,
        within_s: float,
        over: Callable[[], None],
    ) -> None:
        """Run the handshake, then pass the connection to `protocol`. Call this in `accepted`.

        over: called when the handshake has succeeded or failed.
        """
        try:
            own = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        except OSError:  # no file descriptor is left
            over()
            return
        own.settimeout(0)
        self._making = asyncio.create_task(_make(own, protocol, tls, within_s))
        self._making.add_done_callback(lambda made: _ended(made, own, over))

    def abort(self) -> None:
        """Abort the handshake. No effect after the request protocol took over."""
        if self._making is not None:
            self._making.cancel()


async def _make(own: socket.socket, protocol: asyncio.BaseProtocol, tls: ssl.SSLContext, within_s: float) -> None:
    # Errors of a peer that does not speak TLS, leaves, or sends nothing.
    with contextlib.suppress(OSError):
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol, own, ssl=tls, ssl_handshake_timeout=within_s
        )


def _ended(made: asyncio.Task[None], own: socket.socket, over: Callable[[], None]) -> None:
    over()
    if made.cancelled():
        # Before the handshake began, nothing else uses it.
        own.close()
