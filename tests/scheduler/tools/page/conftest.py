"""A page that is open to everybody."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from scheduler.tools.page.access import Everybody
from tests.scheduler.tools.page.browser import Browser, filled, serving


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(read_bufsize=2**20) as made:
        yield made


@pytest.fixture
async def open_page(session: aiohttp.ClientSession) -> AsyncIterator[Browser]:
    page = await serving(filled(), Everybody())
    yield Browser(session, page.port)
    await page.close()
