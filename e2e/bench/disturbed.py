"""What a scheduler serves beside its work while it is measured: `/metrics` that is scraped, open web pages."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

SCRAPED_EVERY_S: Final = 5.0
_OPEN_WITHIN_S: Final = 60.0
_LONGEST_LINE: Final = 2**22
_ENDED: Final = "what was to disturb the scheduler has ended before the measurement: it was not disturbed"


class NotDisturbed(Exception):
    """The measurement says nothing: what was to go on beside it has ended."""


@asynccontextmanager
async def disturbed(metrics: int | None, pages: Sequence[int], token: str) -> AsyncIterator[None]:
    """While the context lasts. metrics: port that is scraped. pages: port of each open page; all of it arrives first.

    Raises NotDisturbed.
    """
    tasks = [asyncio.create_task(_scrape(metrics))] if metrics is not None else []
    opened = [asyncio.Event() for _ in pages]
    tasks += [asyncio.create_task(_follow(port, token, event)) for port, event in zip(pages, opened, strict=True)]
    try:
        async with asyncio.timeout(_OPEN_WITHIN_S):
            await asyncio.gather(*(event.wait() for event in opened))
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(ended, asyncio.CancelledError):
                raise NotDisturbed(_ENDED) from ended


async def _follow(port: int, token: str, opened: asyncio.Event) -> None:
    """Read the stream of a page, as a browser does; ask again, from the version that is there, when it ends."""
    headers, since = {"Authorization": f"Bearer {token}"}, dict[str, str]()
    async with aiohttp.ClientSession(headers=headers, read_bufsize=_LONGEST_LINE) as session:
        while True:
            async with session.get(f"http://127.0.0.1:{port}/api/stream", params=since) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    message = json.loads(line)
                    if message["t"] == "begin":
                        since["instance"] = message["instance"]
                    elif message["t"] == "ready":
                        since["version"] = str(message["version"])
                        opened.set()


async def _scrape(port: int) -> None:
    while True:
        await asyncio.to_thread(_read_page, port)
        await asyncio.sleep(SCRAPED_EVERY_S)


def _read_page(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    connection.getresponse().read()
    connection.close()
