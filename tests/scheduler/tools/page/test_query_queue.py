"""Questions in steps: who asks much leaves room for others."""

import asyncio
from collections.abc import Generator
from http import HTTPStatus

import pytest

from scheduler.tools.page.access import AccessDenied
from scheduler.tools.page.query_queue import QueryQueue


def question(until: asyncio.Event) -> Generator[None, None, str]:
    while not until.is_set():
        yield
    return "answered"


async def test_who_asks_much_leaves_room_for_others() -> None:
    steps, may_end = QueryQueue(), asyncio.Event()
    asked = [asyncio.create_task(steps.answer(question(may_end), "greedy")) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(AccessDenied) as refused:
        await steps.answer(question(may_end), "greedy")
    asked.append(asyncio.create_task(steps.answer(question(may_end), "modest")))
    may_end.set()

    assert refused.value.status == HTTPStatus.TOO_MANY_REQUESTS
    assert await asyncio.gather(*asked) == ["answered"] * 5
    assert await steps.answer(question(may_end), "greedy") == "answered"


async def test_who_leaves_may_ask_again() -> None:
    steps, never = QueryQueue(), asyncio.Event()
    asked = [asyncio.create_task(steps.answer(question(never), "one")) for _ in range(4)]
    await asyncio.sleep(0)
    for one in asked:
        one.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    never.set()

    assert await steps.answer(question(never), "one") == "answered"
