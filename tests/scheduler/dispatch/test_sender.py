"""Sender: fair among namespaces, few requests for those that get no answers."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from scheduler.dispatch.sender import Sender, Stopped, Write
from scheduler.kube.port import ApiError, ApiFailed, ApiNotFound, ApiSilent, ApiThrottled
from scheduler.kube.reflector import Backoff
from tests.support.clocks.virtual_time import now_s


class Site:
    """A sender, and requests that stay in flight until they are answered."""

    def __init__(self, most: int) -> None:
        self.freed = asyncio.Event()
        self.sender = Sender(most, Backoff(random.Random(0)), self.freed)  # noqa: S311 - repeatable
        self.sent: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.open: list[tuple[str, asyncio.Future[None]]] = []

    def asks(self, namespace: str, times: int = 1, write: Write = Write.BIND) -> None:
        self.tasks += [asyncio.create_task(self._ask(write, namespace)) for _ in range(times)]

    async def _ask(self, write: Write, namespace: str) -> None:
        try:
            await self.sender.send(write, namespace, self.request, namespace)
        except ApiError:
            return

    async def request(self, namespace: str) -> None:
        answer = asyncio.get_running_loop().create_future()
        self.sent.append(namespace)
        self.open.append((namespace, answer))
        await answer

    async def answer(self, error: ApiError | None = None, at: int = 0) -> None:
        """Answer an open request, the oldest one by default."""
        _, waiting = self.open.pop(at)
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)
        await settled()

    async def are_answered(self, *namespaces: str) -> None:
        """Let each namespace get an answer."""
        for name in namespaces:
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
    assert made.sender.in_flight(Write.BIND) == 0


@pytest.fixture
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    async with site_of(getattr(request, "param", 8)) as made:
        yield made


def places(most: int) -> pytest.MarkDecorator:
    """Mark a test whose site has another number of places than 8."""
    return pytest.mark.parametrize("site", [most], indirect=True)


@places(16)
async def test_each_namespace_leaves_half_to_the_next(site: Site) -> None:
    await site.are_answered("a", "b", "c")
    for name in "abc":
        site.asks(name, 20)
        await settled()
    assert [site.sent.count(name) for name in "abc"] == [8, 4, 2]
    site.asks("d")
    await settled()
    assert site.sent[-1] == "d"


async def test_one_request_shows_whether_a_new_namespace_gets_answers(site: Site) -> None:
    site.asks("new", 20)
    await settled()
    assert (len(site.sent), site.sender.share(Write.BIND, "new")) == (1, 0)
    await site.answer()
    assert len(site.open) == 4


async def test_a_namespace_without_answers_sends_one_request_after_each_back_off(site: Site) -> None:
    site.asks("a", 5)
    await settled()
    pauses_s = []
    for number in range(3):
        failed_s, sent = now_s(), len(site.sent)
        await site.answer(ApiFailed("broken", 500))
        # One failure may be chance.
        assert site.sender.failure(Write.BIND, "a") == ("500: broken" if number else "")
        while len(site.sent) == sent:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
        pauses_s.append(now_s() - failed_s)
        assert len(site.open) == 1
    assert pauses_s[0] < pauses_s[1] < pauses_s[2]
    await site.answer()
    assert (site.sender.failure(Write.BIND, "a"), len(site.open)) == ("", 1)


async def test_a_pause_lasts_as_long_as_the_server_asks(site: Site) -> None:
    site.asks("a", 2)
    await settled()
    await site.answer(ApiThrottled("slow", 17.0))
    await asyncio.sleep(16.9)
    assert len(site.sent) == 1
    await asyncio.sleep(0.2)
    assert len(site.sent) == 2


async def test_what_is_known_of_a_namespace_is_forgotten(site: Site) -> None:
    await site.are_answered("a")
    assert site.sender.share(Write.BIND, "a") == 4
    await asyncio.sleep(2.1)
    assert site.sender.share(Write.BIND, "a") == 0

    site.asks("fails", 2)
    await settled()
    for _ in range(2):
        await site.answer(ApiSilent("x"))
        await asyncio.sleep(0.2)
    await asyncio.sleep(50.0)
    assert site.sender.failure(Write.BIND, "fails")
    await asyncio.sleep(71.0)
    assert not site.sender.failure(Write.BIND, "fails")


async def test_trials_of_namespaces_that_fail_take_a_quarter_of_the_places(site: Site) -> None:
    for name in range(8):
        site.asks(f"fails-{name}", 5)
    await settled()
    for _ in range(8):
        await site.answer(ApiSilent("x"))
    await asyncio.sleep(0.2)
    assert site.sender.in_flight(Write.BIND) == 2
    site.asks("well", 2)
    await settled()
    assert site.sent[-1] == "well"


async def test_a_webhook_that_hangs_for_one_kind_delays_no_other(site: Site) -> None:
    site.asks("a", 20, Write.VOLUME)
    await settled()
    await site.answer(ApiSilent("x"))
    site.sent.clear()
    for write in Write:
        site.asks("a", write=write)
    await settled()
    assert len(site.sent) == len(Write) - 1


async def test_of_the_volumes_of_a_namespace_that_fails_few_wait(site: Site) -> None:
    site.asks("a", 20, Write.VOLUME)
    await settled()
    await site.answer(ApiSilent("x"))
    assert not any(task.done() for task in site.tasks[1:])
    await asyncio.sleep(0.2)
    await site.answer(ApiSilent("x"))
    site.asks("a", 3, Write.VOLUME)
    await settled()
    assert [task.done() for task in site.tasks].count(False) == 4
    await asyncio.sleep(0.5)
    await site.answer()
    assert len(site.open) == 3


@places(4)
async def test_conditions_and_events_leave_the_way_to_bindings(site: Site) -> None:
    site.asks("b")
    await settled()
    for name in range(16):
        site.asks(f"a-{name}", write=Write.STATUS)
    await settled()
    assert site.sender.in_flight(Write.STATUS) == 4
    await site.answer()
    assert site.sender.in_flight(Write.STATUS) == 16


async def test_an_idempotent_request_is_retried_but_not_if_it_is_rejected(site: Site) -> None:
    answers: list[ApiError] = [ApiThrottled("x", 3.0), ApiFailed("x", 500), ApiNotFound("x", 404)]

    async def request() -> None:
        raise answers.pop(0)

    with pytest.raises(ApiNotFound):
        await site.sender.deliver(Write.EVICT, "a", request)
    assert now_s() >= 3.0
    answers += [ApiFailed("x", 500)] * 9
    with pytest.raises(ApiFailed):
        await site.sender.deliver(Write.EVICT, "a", request)
    assert len(answers) == 5


@places(1)
async def test_a_stop_ends_all_waiting_but_not_what_is_on_the_wire(site: Site) -> None:
    site.asks("a", 3)
    await settled()
    site.sender.stop()
    await settled()
    assert [task.done() for task in site.tasks] == [False, True, True]
    assert isinstance(site.tasks[1].exception(), Stopped)
    await site.answer()
    assert site.tasks[0].exception() is None
    with pytest.raises(Stopped):
        await site.sender.send(Write.BIND, "a", site.request, "a")


@places(1)
async def test_who_gives_up_when_its_turn_comes_leaves_it_to_the_next(site: Site) -> None:
    site.asks("a", 3)
    await settled()
    # The place is given in one turn of the loop, and its task continues in the next.
    site.open.pop(0)[1].set_result(None)
    while not site.tasks[0].done():  # noqa: ASYNC110 - the very turn of the loop
        await asyncio.sleep(0)
    site.tasks[1].cancel()
    await settled()
    assert (site.sender.in_flight(Write.BIND), len(site.sent)) == (1, 2)
    await site.answer()
    assert site.tasks[2].done()


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


async def test_of_many_namespaces_that_wait_each_gets_a_place_in_its_turn_whatever_becomes_of_others(
    site: Site,
) -> None:
    for number in range(100):
        site.asks(f"ns-{number:02d}", 2)
    await settled()
    for number in range(100):
        await site.answer(ApiSilent("x") if number % 10 == 3 else None)
    first_of_each = list(dict.fromkeys(site.sent))
    assert first_of_each == [f"ns-{number:02d}" for number in range(100)]


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_is_answered_or_given_up_no_limit_is_broken_and_everything_is_sent(seed: int) -> None:
    """Random requests of some namespaces, outcomes and cancellations."""
    rng = random.Random(seed)  # noqa: S311 - repeatable
    async with site_of(8) as site:
        of_bindings = site.sender._places[Write.BIND]  # noqa: SLF001 - judged in every state
        for _ in range(300):
            match rng.choice(["ask", "answer", "answer", "fail", "cancel", "wait"]):
                case "ask":
                    site.asks(rng.choice("abcde"), rng.randint(1, 4))
                case "answer" | "fail" as how if site.open:
                    at = rng.randrange(len(site.open))
                    if not site.open[at][1].done():
                        await site.answer(ApiSilent("x") if how == "fail" else None, at)
                case "cancel" if site.tasks:
                    rng.choice(site.tasks).cancel()
                case _:
                    await asyncio.sleep(rng.random())
            await settled()
            site.open = [one for one in site.open if not one[1].done()]
            in_flight = Counter(namespace for namespace, _ in site.open)
            assert in_flight.total() == site.sender.in_flight(Write.BIND) <= 8
            lanes = of_bindings.lanes.values()
            assert {lane.namespace: lane.in_flight for lane in lanes if lane.in_flight} == in_flight
            may_send = [one for one in lanes if one.waiting and of_bindings.room(one)]
            assert not [one for one in may_send if of_bindings.may_try or not one.breaker.failures]
        async with asyncio.timeout(1000.0):
            while not all(task.done() for task in site.tasks):
                if site.open:
                    await site.answer()
                await asyncio.sleep(1.0)
        await asyncio.sleep(200.0)
        assert not of_bindings.lanes
