"""Who may see the page: what is asked of the API server, how often, and what holds for how long."""

import asyncio
from http import HTTPStatus

import pytest

from scheduler.kube.port import ApiForbidden, ApiSilent
from scheduler.kube.rest.reviews import User
from scheduler.tools.page.access import KEPT_S, Access, AccessDenied
from tests.scheduler.tools.page.browser import Reviewer, reviewer_of_ann


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reviewer() -> Reviewer:
    made = reviewer_of_ann()
    made.users["t-bob"] = User("bob")
    return made


@pytest.fixture
def access(reviewer: Reviewer, clock: Clock) -> Access:
    return Access(reviewer, clock)


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def refused(access: Access, header: str) -> tuple[int, str]:
    with pytest.raises(AccessDenied) as found:
        await access.viewer(header)
    return found.value.status, found.value.message


@pytest.mark.parametrize("header", ["", "Bearer ", "Basic YTpi", "Bearer " + "x" * 20_000, "Bearer f\u00fcr"])
async def test_without_a_token_nothing_is_asked(access: Access, reviewer: Reviewer, header: str) -> None:
    assert (await refused(access, header))[0] == HTTPStatus.UNAUTHORIZED
    assert reviewer.asked == []


async def test_who_may_get_the_url_sees_the_page(access: Access, reviewer: Reviewer) -> None:
    assert (await access.viewer("Bearer t-ann")).user.username == "ann"
    assert ("url", "ann", "/gpushare") in reviewer.asked


async def test_who_may_not_is_told_which_right_is_missing(access: Access) -> None:
    status, words = await refused(access, "Bearer t-bob")
    assert status == HTTPStatus.FORBIDDEN
    assert words == "bob may not see this page: the right to get the nonResourceURL /gpushare is missing."


async def test_an_answer_holds_for_a_minute_and_no_longer(access: Access, reviewer: Reviewer, clock: Clock) -> None:
    await access.viewer("Bearer t-ann")
    clock.now_s += KEPT_S - 0.1
    await access.viewer("Bearer t-ann")
    assert reviewer.count("token") == 1
    reviewer.may_look.clear()
    clock.now_s += 0.2
    assert (await refused(access, "Bearer t-ann"))[0] == HTTPStatus.FORBIDDEN
    assert reviewer.count("token") == 2


async def test_a_refusal_holds_for_seconds_so_that_a_new_right_counts_soon(
    access: Access, reviewer: Reviewer, clock: Clock
) -> None:
    for _ in range(5):
        await refused(access, "Bearer t-bob")
    assert reviewer.count("token") == 1
    reviewer.may_look.add("bob")
    clock.now_s += 6
    assert (await access.viewer("Bearer t-bob")).user.username == "bob"


async def test_who_asks_with_the_same_token_waits_for_the_same_review(access: Access, reviewer: Reviewer) -> None:
    reviewer.open.clear()
    asking = [asyncio.create_task(access.viewer("Bearer t-ann")) for _ in range(50)]
    await asyncio.sleep(0)
    asking[0].cancel()  # whoever leaves does not end it for the others
    await asyncio.sleep(0)
    reviewer.open.set()
    found = await asyncio.gather(*asking[1:])
    assert len(set(found)) == 1
    assert reviewer.count("token") == 1


async def test_a_flood_of_tokens_makes_few_reviews(access: Access, reviewer: Reviewer, clock: Clock) -> None:
    statuses = [(await refused(access, f"Bearer wrong-{number}"))[0] for number in range(1000)]
    assert reviewer.count("token") == 20
    assert statuses[-1] == HTTPStatus.TOO_MANY_REQUESTS
    clock.now_s += 1
    for number in range(1000):
        await refused(access, f"Bearer other-{number}")
    assert reviewer.count("token") == 30


async def test_while_the_api_server_is_slow_few_reviews_wait_for_it(access: Access, reviewer: Reviewer) -> None:
    reviewer.open.clear()
    asking = [asyncio.create_task(access.viewer(f"Bearer t-{number}")) for number in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert reviewer.count("token") == 8
    await access.close()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert sum(isinstance(answer, AccessDenied) for answer in answers) == 12


async def test_a_flood_of_tokens_keeps_no_known_viewer_out(access: Access, clock: Clock) -> None:
    await access.viewer("Bearer t-ann")
    clock.now_s += KEPT_S
    for number in range(50):
        await refused(access, f"Bearer bad-{number}")

    assert (await access.viewer("Bearer t-ann")).until_s == clock.now_s + KEPT_S


async def test_a_known_viewer_waits_for_none_of_the_tokens_under_review(
    access: Access, reviewer: Reviewer, clock: Clock
) -> None:
    await access.viewer("Bearer t-ann")
    clock.now_s += KEPT_S
    reviewer.open.clear()
    strangers = [asyncio.create_task(access.viewer(f"Bearer bad-{number}")) for number in range(20)]
    await settled()
    again = asyncio.create_task(access.viewer("Bearer t-ann"))
    await settled()
    reviewer.open.set()

    assert (await again).user.username == "ann"
    assert all(isinstance(one, AccessDenied) for one in await asyncio.gather(*strangers, return_exceptions=True))


async def test_known_viewers_whose_reviews_are_too_many_stay_for_another_minute_at_most(
    access: Access, reviewer: Reviewer, clock: Clock
) -> None:
    reviewer.users = {f"t-{number}": User("ann") for number in range(30)}
    for token in reviewer.users:
        clock.now_s += 0.1
        await access.viewer(f"Bearer {token}")
    clock.now_s += 2 * KEPT_S - 0.2
    for number in range(20):
        await access.viewer(f"Bearer t-{number + 5}")

    assert (await access.viewer("Bearer t-29")).until_s <= clock.now_s
    assert (await refused(access, "Bearer t-0"))[0] == HTTPStatus.TOO_MANY_REQUESTS


async def test_an_api_server_that_does_not_answer_is_no_refusal_for_good(access: Access, reviewer: Reviewer) -> None:
    reviewer.broken = ApiSilent("no answer")
    assert (await refused(access, "Bearer t-ann"))[0] == HTTPStatus.SERVICE_UNAVAILABLE
    reviewer.broken = ApiForbidden("tokenreviews is forbidden", 403)
    status, words = await refused(access, "Bearer t-ann")
    assert (status, "deploy/optional/page.yaml" in words) == (HTTPStatus.SERVICE_UNAVAILABLE, True)
    reviewer.broken = None
    assert (await access.viewer("Bearer t-ann")).user.username == "ann"


async def test_names_are_shown_in_namespaces_whose_pods_may_be_listed(access: Access, clock: Clock) -> None:
    ann = await access.viewer("Bearer t-ann")
    before = ann.version
    assert not ann.sees("team-a", clock.now_s)  # not known yet
    assert not ann.sees("team-b", clock.now_s)
    access.learn(ann)
    await settled()
    assert ann.sees("team-a", clock.now_s)
    assert not ann.sees("team-b", clock.now_s)
    assert ann.version > before


async def test_who_may_list_all_pods_is_asked_about_no_namespace(
    access: Access, reviewer: Reviewer, clock: Clock
) -> None:
    reviewer.lists["ann"] = {""}
    ann = await access.viewer("Bearer t-ann")
    assert all(ann.sees(f"team-{number}", clock.now_s) for number in range(100))
    access.learn(ann)
    await settled()
    assert reviewer.count("pods") == 1


async def test_a_right_is_asked_for_again_before_it_ends_and_goes_when_it_is_withdrawn(
    access: Access, reviewer: Reviewer, clock: Clock
) -> None:
    ann = await access.viewer("Bearer t-ann")
    ann.sees("team-a", clock.now_s)
    access.learn(ann)
    await settled()
    clock.now_s += KEPT_S - 5
    assert ann.sees("team-a", clock.now_s)
    reviewer.lists["ann"] = set()
    access.learn(ann)
    await settled()
    assert not ann.sees("team-a", clock.now_s)


async def test_no_right_outlives_a_minute_without_an_answer(access: Access, clock: Clock) -> None:
    ann = await access.viewer("Bearer t-ann")
    ann.sees("team-a", clock.now_s)
    access.learn(ann)
    await settled()
    clock.now_s += KEPT_S
    assert not ann.sees("team-a", clock.now_s)
