"""The web page in a real Chromium: what it shows, by keyboard and to a screen reader, how fast, and what it never does.

Screenshots of its main states are kept in `build/page`.
"""

import asyncio
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, Request, ViewportSize, expect

from e2e.deploy.page import browser as browsers
from e2e.deploy.page.browser import HOSTILE, filled, place, serving, shot, violations, waits
from scheduler.core.engine import Engine
from tests.support.builders import engine, wire_node

FIRST_VIEW_S = 2.0
UPDATE_MS = 100.0
TRIES = 8
WIDE: ViewportSize = {"width": 1360, "height": 860}
# window.changed will be the time, in ms since the epoch, of the frame in which a node's row says something else.
WHEN_CHANGED = """name => {
  const row = [...document.querySelectorAll('#canvas .row')].find(one => one.firstChild.textContent === name);
  window.changed = new Promise(resolve => new MutationObserver((_, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => resolve(performance.timeOrigin + performance.now()));
  }).observe(row.children[1], {childList: true, characterData: true, subtree: true}));
}"""

NOTHING_IS_CUT_OFF = "[...document.querySelectorAll('.panel')].every(panel => panel.scrollWidth <= panel.clientWidth)"


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    async with browsers.opened() as browser:
        yield browser


class Seen:
    """What a page has asked for, and what its console says."""

    def __init__(self, page: Page) -> None:
        self.urls: list[str] = []
        self.errors: list[str] = []
        page.on("request", self._request)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _request(self, request: Request) -> None:
        self.urls.append(request.url)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)


async def opened(browser: Browser, url: str, **options: Any) -> tuple[Page, Seen]:  # noqa: ANN401 - Playwright's own
    page = await browser.new_page(**({"viewport": WIDE} | options))
    seen = Seen(page)
    await page.goto(url)
    return page, seen


async def ready(page: Page) -> None:
    await page.wait_for_selector("body[data-ready]", state="attached")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_state_is_accessible_by_axe(chromium: Browser, scheme: str) -> None:
    async with serving(filled(60)) as url:
        page, seen = await opened(chromium, url, color_scheme=scheme, reduced_motion="reduce")
        await ready(page)
        await page.wait_for_selector(".seg:not(.anon)")
        await shot(page, f"cluster-{scheme}")
        assert await violations(page) == []
        await page.get_by_role("button", name="team-a/too-large").click()
        await expect(page.locator("#why")).to_contain_text("wants 200")
        await shot(page, f"why-{scheme}")
        assert await violations(page) == []
        await page.get_by_role("tab", name="What if").click()
        await page.get_by_label("GPU memory (").fill("30")
        await page.get_by_role("button", name="Would it fit?").click()
        await page.get_by_label("Copies").fill("3")
        await page.get_by_role("button", name="Would it fit?").click()
        await expect(page.locator("#what-if .verdict")).to_contain_text("3 of 3 copies")
        assert await page.evaluate(NOTHING_IS_CUT_OFF)
        await shot(page, f"what-if-{scheme}")
        assert await violations(page) == []
        await page.get_by_role("rowheader", name="gpu-00000").click()
        await expect(page.locator("#node")).to_contain_text("unhealthy")
        await shot(page, f"node-{scheme}")
        assert await violations(page) == []
        assert seen.errors == []


async def test_markup_in_names_is_text_and_nothing_is_asked_elsewhere(chromium: Browser) -> None:
    made = filled(3)
    place(made, HOSTILE, ("gpu-00000", 4), 70)
    async with serving(made) as url:
        page, seen = await opened(chromium, url)
        await ready(page)
        await expect(page.get_by_role("button", name=f"team-c/{HOSTILE}")).to_be_visible()
        await page.get_by_role("button", name=f"team-c/{HOSTILE}").click()
        await expect(page.locator("#why h3").first).to_have_text(f"team-c/{HOSTILE}")
        await page.get_by_role("rowheader", name="gpu-00000").click()
        await expect(page.locator("#node")).to_contain_text(HOSTILE)
        await page.get_by_label("Search").fill("<script>")
        await expect(page.locator("#found-pods")).to_contain_text(HOSTILE)
        assert await page.title() == "GPU memory: gpushare-scheduler"
        assert await page.locator("main script, main img, #canvas img").count() == 0
        assert {url for url in seen.urls if not url.startswith(url)} == set()
        assert seen.errors == []


async def test_no_nodes_no_cards_and_cards_of_nothing_are_shown(chromium: Browser) -> None:
    made = engine()
    async with serving(made) as url:
        page, seen = await opened(chromium, url)
        await ready(page)
        await expect(page.locator("#found-nodes")).to_have_text("0 of 0 nodes")
        await page.get_by_role("tab", name="What if").click()
        await page.get_by_role("button", name="Would it fit?").click()
        await expect(page.locator("#what-if .verdict")).to_contain_text("would not fit now")
        made.node_changed(wire_node("bare"))
        made.node_changed(wire_node("nothing", [0, 0]))
        made.node_changed(wire_node("largest", [2**24, 16]))
        waits(made, "w", 2**24 + 1)
        made.decide(0.0, 0)
        await expect(page.locator("#found-nodes")).to_have_text("2 of 2 nodes")
        await page.get_by_role("tab", name=re.compile("Waiting")).click()
        await page.get_by_role("button", name="default/w").click()
        await expect(page.locator("#why .verdict")).to_have_text("Pod default/w fits on none of 3 nodes.")
        for name in ("nothing", "largest"):
            await page.get_by_role("rowheader", name=name).click()
            await expect(page.locator("#node h2")).to_have_text(name)
        assert "NaN" not in await page.content()
        assert await page.evaluate(NOTHING_IS_CUT_OFF)
        assert seen.errors == []


async def test_the_line_of_memory_booked_ends_at_what_the_tile_says(chromium: Browser) -> None:
    made = filled(2)
    async with serving(made) as url:
        page, _ = await opened(chromium, url)
        await ready(page)
        tile, caption = page.locator("#sum-booked"), page.locator("#chart-booked .hint")
        before = (await tile.inner_text()).split(" of ")[0]
        await expect(caption).to_contain_text(before.split("%")[0])
        for index in (0, 4):
            place(made, f"new-{index}", ("gpu-00001", index), 80)
        await expect(tile).not_to_contain_text(before)
        now = (await tile.inner_text()).split("%")[0]
        await expect(caption).to_have_text(re.compile(f"^{now}% · "))
        await shot(page, "two-nodes")
        assert await page.get_by_text("split").count() == 0


async def test_everything_is_reached_by_keyboard(chromium: Browser) -> None:
    async with serving(filled(200)) as url:
        page, _ = await opened(chromium, url)
        await ready(page)
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the nodes")).to_be_focused()
        await page.keyboard.press("Enter")
        for key in ("ArrowDown", "ArrowDown", "End", "PageUp", "Home", "ArrowDown", "Enter"):
            await page.keyboard.press(key)
        await expect(page.locator("#canvas .row:focus")).to_contain_text("gpu-00001")
        await expect(page.locator("#node")).to_contain_text("gpu-00001")
        await page.keyboard.press("End")
        await expect(page.locator("#canvas .row:focus")).to_have_attribute("aria-rowindex", "201")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("tab", name="Node")).to_be_focused()
        await page.keyboard.press("ArrowRight")
        await expect(page.get_by_role("tab", name=re.compile("Waiting"))).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator("#why")).to_contain_text("team-a/too-large")


async def test_a_small_screen_shows_the_same_one_below_the_other(chromium: Browser) -> None:
    async with serving(filled(20)) as url:
        page, _ = await opened(chromium, url, viewport={"width": 400, "height": 800})
        await ready(page)
        await shot(page, "small")
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert await violations(page) == []


async def test_of_five_thousand_nodes_only_the_visible_ones_are_in_the_document(chromium: Browser) -> None:
    async with serving(filled(5000)) as url:
        page, seen = await opened(chromium, url)
        await ready(page)
        await expect(page.locator("#found-nodes")).to_have_text(re.compile(r"^5\D?000 of"))
        await page.evaluate("document.getElementById('rows').scrollTop = 1e9")
        await expect(page.locator("#canvas .row[aria-rowindex='5001']")).to_be_visible()
        await shot(page, "large")
        assert await page.locator("#canvas .row").count() < 60
        assert seen.errors == []


@pytest.mark.nightly  # nothing else may run on the machine
async def test_five_thousand_nodes_are_there_in_two_seconds_and_move_without_stutter(chromium: Browser) -> None:
    made = filled(5000)
    tries: list[tuple[float, float, float]] = []
    async with serving(made) as url:
        # Other work on the machine makes it slower, never faster: the best of some tries is what the page takes.
        while len(tries) < TRIES and not _quick(tries):
            tries.append(await _tried(chromium, made, url, len(tries)))
    told = [f"{view:.2f} s, {update:.0f} ms, {frame:.0f} ms" for view, update, frame in tries]
    print("first view, median update, longest frame:", "; ".join(told))  # noqa: T201 - the figures
    assert _quick(tries), told


def _quick(tries: list[tuple[float, float, float]]) -> bool:
    limits = (FIRST_VIEW_S, UPDATE_MS, UPDATE_MS)
    return bool(tries) and all(
        min(figures) < limit for figures, limit in zip(zip(*tries, strict=True), limits, strict=True)
    )


async def _tried(browser: Browser, made: Engine, url: str, number: int) -> tuple[float, float, float]:
    """(seconds to the first view, ms to the screen of a change, ms of the longest frame while scrolling and typing)."""
    page = await browser.new_page(viewport=WIDE)
    began = time.monotonic()
    await page.goto(url)
    await ready(page)
    first_view_s = time.monotonic() - began
    frame_ms = await page.evaluate(SCROLLS_AND_TYPES)
    await page.get_by_label("Search").fill("")
    await page.wait_for_timeout(1000)
    updates = [await changed_ms(page, made, node, number) for node in range(10)]
    await page.close()
    return first_view_s, statistics.median(updates), frame_ms


# Scrolls through all nodes, then types a search letter by letter; the longest time between two frames, in ms.
SCROLLS_AND_TYPES = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  let worst = 0, last = await frame();
  const next = async () => { const now = await frame(); worst = Math.max(worst, now - last); last = now; };
  const rows = document.getElementById('rows'), search = document.getElementById('search');
  for (let at = 0; at < rows.scrollHeight; at += rows.scrollHeight / 60) { rows.scrollTop = at; await next(); }
  for (const text of ['g', 'gp', 'gpu', 'gpu-', 'gpu-0', 'gpu-00', 'gpu-000', 'gpu-0001']) {
    search.value = text; search.dispatchEvent(new Event('input')); await next(); await next();
  }
  rows.scrollTop = 0;
  return worst;
}"""


async def changed_ms(page: Page, made: Engine, number: int, turn: int) -> float:
    """From a pod's binding, as a watch shows it, to the frame in which its node's row says so."""
    name = f"gpu-{number:05}"
    row = page.get_by_role("rowheader", name=name, exact=True)
    await row.scroll_into_view_if_needed()
    await page.evaluate(WHEN_CHANGED, name)
    began_ms = time.time() * 1000
    place(made, f"late-{number}-{turn}", (name, 4), 1)
    at_ms: float = await asyncio.wait_for(page.evaluate("() => window.changed"), 10)
    return at_ms - began_ms


async def test_the_demo_serves_it_too(chromium: Browser) -> None:
    command = [sys.executable, "-u", "-m", "scheduler.main", "demo", "--speed", "20", "--serve", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:  # noqa: ASYNC220 - nothing else runs yet
        try:
            assert demo.stdout is not None
            lines = asyncio.to_thread(lambda: next(line for line in demo.stdout or () if "http://" in line))
            found = re.search(r"http://127\.0\.0\.1:\d+/", await asyncio.wait_for(lines, 60))
            assert found is not None
            page, seen = await opened(chromium, found[0])
            await ready(page)
            await expect(page.locator("#canvas")).to_contain_text("a100")
            await page.wait_for_selector(".seg:not(.anon)")
            await shot(page, "demo")
            assert seen.errors == []
        finally:
            demo.terminate()
