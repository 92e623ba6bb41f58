"""The web page in a real Chromium at a replica that stands by: the leader's cluster, and its own while none answers."""

from pathlib import Path

from playwright.async_api import Page, ViewportSize, expect

from e2e.deploy.page import browser as browsers
from e2e.deploy.page.browser import filled, place, shot, violations
from scheduler.tools.page.tls import ServerCertificate
from tests.support.servers.byte_server import made_certificate
from tests.support.servers.page_replicas import TOKEN, Replica

SMALL: ViewportSize = {"width": 400, "height": 800}


async def test_a_page_at_a_standby_shows_the_leader_and_the_standby_while_no_leader_answers(tmp_path: Path) -> None:
    certificate = ServerCertificate(*made_certificate(tmp_path))
    leader = Replica("gpushare-scheduler-6d9f7c5b4-aaaaa", filled(6), leads=True)
    standby = Replica("gpushare-scheduler-6d9f7c5b4-bbbbb", filled(4), leads=False)
    standby.leader_name = leader.name
    place(leader.engine, "of-the-leader", ("gpu-00001", 4), 8)
    for one in (leader, standby):
        await one.serve(certificate)
    standby.named = leader.url
    async with browsers.opened() as chromium:
        page = await chromium.new_page(ignore_https_errors=True, viewport=SMALL)
        await page.goto(f"{standby.url}/")
        await page.get_by_label("Token").fill(TOKEN)
        await page.keyboard.press("Enter")
        await shows(page, f"live; {leader.name} answers", 6)
        await page.get_by_role("rowheader", name="gpu-00001").click()
        await expect(page.locator("#node")).to_contain_text("of-the-leader")
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

        await leader.close()
        await shows(page, f"live; {standby.name} stands by, {leader.name} schedules", 4)
        await expect(page.locator("#waiting-counts")).to_have_text("2 waiting.")
        await page.wait_for_selector(".seg:not(.anon)")
        await page.get_by_role("rowheader", name="gpu-00001").click()
        await expect(page.locator("#node")).not_to_contain_text("of-the-leader")
        await shot(page, "standby")
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert await violations(page) == []

        standby.leader_name = standby.name
        await shows(page, f"live; {standby.name} is becoming the leader", 4)
        standby.leads, standby.named = True, None
        await shows(page, f"live; {standby.name} answers", 4)
        await expect(page.locator("#waiting-counts")).to_have_text("2 fit nowhere.")
    await standby.close()


async def shows(page: Page, status: str, nodes: int) -> None:
    await expect(page.locator("#status")).to_have_text(status, timeout=20_000)
    await expect(page.locator("#found-nodes")).to_have_text(f"{nodes} of {nodes} nodes", timeout=20_000)
