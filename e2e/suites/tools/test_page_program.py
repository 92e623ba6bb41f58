"""The web page on a real API server, with the rights of the account that deploy/optional gives it."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from e2e.control_plane import processes
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child, free_ports
from e2e.programs import manifests
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess, environment
from e2e.support.gpu_site import gpu_site
from e2e.support.kubectl_gpushare import kubectl_gpushare
from tests.support.repository import ROOT

NAME: Final = "gpushare-page"
OF_THE_PAGE: Final = [
    one
    for one in yaml.safe_load_all((ROOT / "deploy" / "optional" / "page.yaml").read_text(encoding="utf-8"))
    if one["kind"] != "Deployment"
]


@pytest.fixture
async def kubeconfig(control_plane: ControlPlane, admin: Admin) -> AsyncIterator[Path]:
    """Of the page's account."""
    await manifests.apply(admin, *OF_THE_PAGE)
    yield control_plane.kubeconfig_for(await manifests.token(admin, NAME), "service-account")
    await manifests.remove(admin, *OF_THE_PAGE)


class Page:
    """A running `page`, and a browser without a screen."""

    def __init__(self, kubeconfig: Path, configuration: Path, folder: Path) -> None:
        (port,) = free_ports(1)
        self.url, self.log = f"http://127.0.0.1:{port}/", folder / "page.log"
        line = [sys.executable, "-m", "scheduler.main", "page", "--port", str(port), "--config", str(configuration)]
        self.child: Child = processes.start(
            "page", [*line, "--kubeconfig", str(kubeconfig)], self.log, environment(folder)
        )

    async def listens(self, session: aiohttp.ClientSession) -> None:
        async with asyncio.timeout(60):
            while True:
                self.child.check_alive()
                try:
                    async with session.get(self.url) as answer:
                        return answer.raise_for_status()
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.1)

    async def ask(self, session: aiohttp.ClientSession, path: str) -> Any:  # noqa: ANN401 - JSON
        async with session.get(f"{self.url}api/{path}") as answer:
            assert answer.status == 200, await answer.text()
            return json.loads(await answer.text())

    async def shows(self, session: aiohttp.ClientSession, pods: list[Any], waiting: dict[str, str]) -> None:
        """Follow the stream until the first row has these pods, and these wait."""
        found: tuple[Any, Any] = [], {}
        async with asyncio.timeout(30), session.get(f"{self.url}api/stream") as answer:
            async for line in answer.content:
                message = json.loads(line)
                if message["t"] == "rows" and "0" in message["on"]:
                    found = message["on"]["0"], found[1]
                if message["t"] == "waiting":
                    found = found[0], {one["name"]: one["state"] for one in message["pods"]}
                if found == (pods, waiting):
                    return
        message = f"the stream has ended with {found}"
        raise AssertionError(message)


async def test_an_account_that_only_reads_sees_what_the_scheduler_does_and_gets_the_commands_answers(
    kubeconfig: Path, control_plane: ControlPlane, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    with SchedulerProcess(control_plane.kubeconfig_path(), tmp_path, NO_PREDECESSOR) as scheduler:
        await scheduler.ready()
        page = Page(kubeconfig, tmp_path / "scheduler.yaml", tmp_path)
        async with aiohttp.ClientSession(read_bufsize=2**20) as session, gpu_site(admin, namespace, scheduler) as site:
            await page.listens(session)
            await site.nodes(a=[16])
            await site.pod("mine", 3)
            await site.pod("too-large", 17)
            await site.bound("mine")
            await site.unschedulable("too-large")
            await page.shows(session, [[namespace, "mine", [0, 3], 0]], {"too-large": "fits nowhere"})
            why = await page.ask(session, f"explain?namespace={namespace}&name=too-large")
            flags = ("-n", namespace, "--config", str(tmp_path / "scheduler.yaml"), "-o", "json")
            told = await asyncio.to_thread(kubectl_gpushare, control_plane, tmp_path, "explain", "too-large", *flags)
            assert why["answer"] == json.loads(told.stdout)
            fits = await page.ask(session, "what-if?units=4&replicas=5")
            assert fits["headline"].startswith("3 of 5 copies of ")
            await site.pod("later", 2)
            await page.shows(
                session,
                [[namespace, "mine", [0, 3], 0], [namespace, "later", [0, 2], 0]],
                {"too-large": "fits nowhere"},
            )
        page.child.stop()
        assert page.child.process.returncode == 0
        said = page.log.read_text(encoding="utf-8")
        assert said == f"The page is at {page.url} until you press Ctrl-C.\n"
