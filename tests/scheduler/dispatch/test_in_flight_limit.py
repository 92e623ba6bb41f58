"""The limit of bind requests in flight: fair among namespaces, low for those that fail."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from scheduler.dispatch.in_flight_limit import InFlightLimit, Stopped
from scheduler.kube.port import ApiError, ApiForbidden, ApiNotFound, ApiSilent, ApiThrottled


class Site:
    """A limit, and requests that stay in flight until they are answered."""

    def __init__(self, most: int) -> None:
        loop = asyncio.get_running_loop()
        self._most = most
        self.limit = InFlightLimit(most, loop.time, lambda failures: 0.1 * 2.0**failures)
        self.sent: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.open: list[asyncio.Future[None]] = []

    def asks(self, namespace: str, times: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._request(namespace)) for _ in range(times)]

    async def _request(self, namespace: str) -> None:
        answer = asyncio.get_running_loop().create_future()
        with self.limit.binding(namespace):
            try:
                async with self.limit.request(namespace):
                    self.sent.append(namespace)
                    self.open.append(answer)
                    await answer
            except ApiError:
                await self.limit.pause(1000.0)

    async def answer(self, error: ApiError | None = None) -> None:
        waiting = self.open.pop(0)
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)
        await settled()

    async def have_answered(self, *namespaces: str) -> None:
        """Let the namespaces answer until no window limits them; none of their requests stays in flight."""
        for name in self._most * namespaces:
            self.asks(name)
            await settled()
            await self.answer()
        self.sent.clear()

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def site_of(most: int) -> AsyncIterator[Site]:
    made = Site(most)
    yield made
    await made.end()
    assert (made.limit.in_flight, made.limit.taken) == (0, 0)


@pytest.fixture
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    async with site_of(getattr(request, "param", 8)) as made:
        yield made


def slots(most: int) -> pytest.MarkDecorator:
    """Mark a test whose site has another number of slots than 8."""
    return pytest.mark.parametrize("site", [most], indirect=True)


async def test_one_namespace_leaves_a_quarter_to_others(site: Site) -> None:
    await site.have_answered("a", "b")
    site.asks("a", 10)
    site.asks("b", 4)
    await settled()
    assert (site.sent.count("a"), site.sent.count("b")) == (6, 2)


@slots(1)
async def test_free_slots_go_round(site: Site) -> None:
    site.asks("a", 3)
    site.asks("b", 2)
    site.asks("c", 1)
    await settled()
    for _ in range(5):
        await site.answer()
    assert site.sent == ["a", "a", "b", "c", "a", "b"]


@pytest.mark.parametrize(
    ("error", "fails"),
    [
        pytest.param(ApiSilent("x"), True, id="silence"),
        pytest.param(ApiThrottled("x"), True, id="429"),
        pytest.param(ApiForbidden("Unauthorized", 401), True, id="credentials"),
        pytest.param(ApiForbidden('cannot create resource "pods/binding" in', 403), True, id="the right to bind"),
        pytest.param(ApiForbidden("policy", 403), False, id="a policy"),
        pytest.param(ApiNotFound("x", 404), False, id="404"),
    ],
)
async def test_a_failure_that_is_not_of_the_pod_slows_its_namespace(site: Site, error: ApiError, fails: bool) -> None:  # noqa: FBT001
    await site.have_answered("a")
    site.asks("a", 2)
    await settled()
    await site.answer(error)
    site.asks("a", 3)
    await settled()
    assert len(site.sent) == (2 if fails else 5)
    await site.answer(ApiSilent("x") if fails else None)
    await asyncio.sleep(0.5)
    assert len(site.sent) == (3 if fails else 5)
    assert bool(site.limit.pause_reason("a")) == fails


async def test_a_success_ends_it(site: Site) -> None:
    site.asks("a")
    await settled()
    await site.answer(ApiSilent("x"))
    site.asks("a", 4)
    await asyncio.sleep(0.3)
    assert len(site.sent) == 2
    await site.answer()
    assert len(site.sent) == 4
    assert site.limit.pause_reason("a") == ""


async def test_failing_namespaces_have_a_quarter_together_and_keep_nobody_from_being_placed(site: Site) -> None:
    for name in "abcd":
        site.asks(name)
    await settled()
    for _ in "abcd":
        await site.answer(ApiSilent("x"))
    for name in "abcd":
        site.asks(name, 10)
    await asyncio.sleep(1.0)
    assert (site.limit.in_flight, site.limit.taken) == (2, 2)


async def test_a_namespace_that_is_silent_on_all_its_slots_fails_after_a_second(site: Site) -> None:
    await site.have_answered("a")
    site.asks("a", 12)
    await asyncio.sleep(0.9)
    assert site.limit.pause_reason("a") == ""
    await asyncio.sleep(0.2)
    assert (site.limit.taken, site.limit.pause_reason("a")) == (6, "no answer for 1 s")


async def test_a_namespace_that_is_silent_on_all_its_slots_lets_others_pass_at_once_and_loses_nothing_by_it(
    site: Site,
) -> None:
    await site.have_answered("a")
    site.asks("a", 8)
    await asyncio.sleep(0.04)
    assert (site.limit.taken, site.limit.lets_pass("a")) == (8, False)
    await asyncio.sleep(0.02)
    assert (site.limit.taken, site.limit.lets_pass("a"), site.limit.lets_pass("b")) == (6, True, False)
    await site.answer()
    assert (site.limit.taken, site.limit.lets_pass("a")) == (7, False)
    assert site.sent == ["a"] * 7


async def test_a_namespace_without_others_that_wait_for_its_slots_is_never_late(site: Site) -> None:
    await site.have_answered("a")
    site.asks("a", 6)
    await asyncio.sleep(10.0)
    assert not site.limit.lets_pass("a")


@slots(64)
async def test_each_namespace_that_is_silent_leaves_something_to_the_next(site: Site) -> None:
    await site.have_answered("a", "b", "c", "well")
    for name in "abc":
        site.asks(name, 100)
        await asyncio.sleep(0.06)
    assert [site.sent.count(name) for name in "abc"] == [48, 12, 3]
    site.asks("well")
    await settled()
    assert site.sent[-1] == "well"


@slots(64)
async def test_one_request_shows_whether_a_new_namespace_gets_answers(site: Site) -> None:
    site.asks("new", 20)
    await settled()
    assert (len(site.sent), site.limit.taken, site.limit.lets_pass("new")) == (1, 1, True)
    for asked in (2, 4, 8):
        for _ in range(len(site.open)):
            await site.answer()
        assert len(site.open) == asked


async def test_a_namespace_that_never_answers_fails_after_a_second_although_it_has_one_slot(site: Site) -> None:
    site.asks("new", 5)
    await asyncio.sleep(1.1)
    assert (site.limit.taken, site.limit.pause_reason("new")) == (1, "no answer for 1 s")


@slots(1)
async def test_a_namespace_is_late_although_all_slots_are_taken(site: Site) -> None:
    await site.have_answered("a")
    site.asks("a", 2)
    await asyncio.sleep(0.06)
    assert site.limit.lets_pass("a")


@pytest.mark.parametrize("hang", [3, 10, 50, 100])
@slots(64)
async def test_however_many_namespaces_hang_one_that_answers_has_slots(site: Site, hang: int) -> None:
    await site.have_answered("well")
    for name in range(hang):
        site.asks(f"hangs-{name}", 20)
    await asyncio.sleep(0.06)
    assert site.limit.in_flight == min(hang, 60)
    site.asks("well", 3)
    await settled()
    assert site.sent[-3:] == ["well"] * 3


@pytest.mark.parametrize("number", [3, 20, 50])
@slots(64)
async def test_namespaces_that_answered_some_time_ago_and_hang_together_hold_one_slot_each(
    site: Site, number: int
) -> None:
    hang = [f"hangs-{name}" for name in range(number)]
    await site.have_answered(*hang, "well")
    await asyncio.sleep(1.1)
    for name in hang:
        site.asks(name, 20)
        await settled()
    site.asks("well")
    await settled()
    assert (site.sent[-1], site.limit.in_flight) == ("well", number + 1)


async def test_a_namespace_has_room_until_its_slots_are_taken_or_asked_for(site: Site) -> None:
    await site.have_answered("a")
    assert site.limit.has_room("a")
    site.asks("a", 5)
    await settled()
    assert site.limit.has_room("a")
    site.asks("a")
    await settled()
    assert not site.limit.has_room("a")
    await site.answer()
    assert site.limit.has_room("a")


async def test_a_pause_lasts_as_long_as_the_server_asks(site: Site) -> None:
    site.asks("a")
    await settled()
    await site.answer(ApiThrottled("slow", 17.0))
    site.asks("a")
    await asyncio.sleep(16.9)
    assert len(site.sent) == 1
    await asyncio.sleep(0.2)
    assert len(site.sent) == 2


@slots(1)
async def test_a_stop_ends_all_waiting_but_not_what_is_on_the_wire(site: Site) -> None:
    site.asks("a", 3)
    await settled()
    site.limit.stop()
    await settled()
    assert [task.done() for task in site.tasks] == [False, True, True]
    assert isinstance(site.tasks[1].exception(), Stopped)
    await site.answer()
    assert site.tasks[0].exception() is None


@slots(1)
async def test_who_gives_up_when_its_turn_comes_leaves_it_to_the_next(site: Site) -> None:
    site.asks("a", 3)
    await settled()
    # The request is granted in one turn of the loop, and its task continues in the next.
    site.open.pop(0).set_result(None)
    while not site.tasks[0].done():  # noqa: ASYNC110 - the very turn of the loop
        await asyncio.sleep(0)
    site.tasks[1].cancel()
    await settled()
    assert (site.limit.in_flight, len(site.sent)) == (1, 2)
    await site.answer()
    assert site.tasks[2].done()


@slots(1)
async def test_who_gives_up_waiting_leaves_the_others_their_turn(site: Site) -> None:
    site.asks("a", 3)
    await settled()
    site.tasks[1].cancel()
    await settled()
    await site.answer()
    assert site.limit.in_flight == 1
    await site.answer()
    assert (site.limit.in_flight, len(site.sent)) == (0, 2)


async def test_an_answer_costs_no_more_however_many_namespaces_wait() -> None:
    async def least_s(namespaces: int) -> float:
        """CPU seconds of the quickest of some answers."""
        async with site_of(16) as site:
            for number in range(namespaces):
                site.asks(f"ns-{number}")
            await settled()
            took_s = []
            for _ in range(30):
                began_s = time.thread_time()
                await site.answer()
                took_s.append(time.thread_time() - began_s)
            return min(took_s)

    few_s, many_s = [await least_s(namespaces) for namespaces in (50, 4000)]
    assert many_s < 5 * few_s


async def test_of_many_namespaces_that_wait_each_gets_a_slot_in_its_turn_whatever_becomes_of_others(site: Site) -> None:
    for number in range(100):
        site.asks(f"ns-{number:02d}", 2)
    await settled()
    for number in range(100):
        await site.answer(ApiSilent("x") if number % 10 == 3 else None)
    first_of_each = list(dict.fromkeys(site.sent))
    assert first_of_each == [f"ns-{number:02d}" for number in range(100)]
