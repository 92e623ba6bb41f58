"""The page of a small cluster."""

from collections.abc import AsyncIterator

import pytest

from tests.scheduler.tools.page.browser import Browser, browsing, filled


@pytest.fixture
async def page() -> AsyncIterator[Browser]:
    async with browsing(filled()) as browser:
        yield browser
