"""Waiting for a state of an object by watching it: no polling, and the time is that of the event."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

import msgspec

from e2e.control_plane.admin import Admin, Json


class NotSeen(Exception):
    """The object did not become what was waited for; the message has its last state."""


async def seen(
    admin: Admin, path: str, wanted: Callable[[Json], bool], query: Mapping[str, str], *, within_s: float
) -> Json:
    """Return the first object under `path` that is as wanted, among those that are there and those that come.

    query: narrows the watch, such as {"fieldSelector": "metadata.name=a"}. Raises NotSeen.
    """
    last: Json = {}
    try:
        async with asyncio.timeout(within_s):
            while True:
                # The server ends a watch now and then; the next one begins with what is there.
                async with aclosing(admin.watch(path, query)) as lines:
                    async for line in lines:
                        event = msgspec.json.decode(line)
                        last = event["object"]
                        if event["type"] in {"ADDED", "MODIFIED"} and wanted(last):
                            return last
    except TimeoutError:
        message = f"{path} {dict(query)}: not seen within {within_s} s; the last that was: {last}"
        raise NotSeen(message) from None
