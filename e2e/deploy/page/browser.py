"""A real browser for the web page, and a cluster in memory that the page shows.

Debian's Chromium, driven by Playwright; and axe-core, which judges what it shows: from the npm registry into the user's
cache, by the hash that is written here, and never into the tree. The cluster has as many nodes as wanted, most cards
with pods on them, and pods that wait.
"""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Browser, Page, async_playwright

from config.protocol import names
from config.protocol.inventory import Card, Health
from e2e.control_plane import cache
from scheduler.core.engine import Engine
from scheduler.kube.objects import PodObject
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.asking import ClusterView
from scheduler.tools.explain.reading import ClusterSnapshot
from scheduler.tools.page.server import page_served
from tests.support.builders import READER, UNIT_MIB, bound, card, engine, pod, wire_node, wire_pod
from tests.support.repository import ROOT

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
TEAMS = ("team-a", "team-b", "team-c")
_UNITS = (24, 40, 16, 80, 8)


def filled(nodes: int, cards: int = 8) -> Engine:
    """Nodes of 80 units a card; on three of four cards a pod of 8 to 80 units. Some cards are out of use."""
    made = engine()
    for number in range(nodes):
        made.node_changed(wire_node(f"gpu-{number:05}", _cards(number, cards), pods="250"))
    for number in range(nodes * cards):
        if number % 4:
            at, index = divmod(number, cards)
            place(made, f"serve-{number}", (f"gpu-{at:05}", index), _UNITS[number % 5], TEAMS[number % 3])
    waits(made, "too-large", 200, "team-a", priority=5)
    waits(made, HOSTILE, 300, "team-c")
    while made.decide(0.0, 0) is not None:
        pass
    return made


def _cards(node: int, count: int) -> list[Card]:
    health = {0: Health.UNHEALTHY, 1: Health.SUSPECT}.get(node % 50, Health.HEALTHY)
    usual = [card(index, 80, node=f"{node}", model="NVIDIA-H100-80GB") for index in range(count)]
    return [card(0, 80, node=f"{node}", model="NVIDIA-H100-80GB", health=health), *usual[1:]]


def place(made: Engine, name: str, at: tuple[str, int], units: int, namespace: str = "team-a") -> None:
    """A pod on a card, as a watch shows it. at: node and card."""
    node, index = at
    on_card = {names.MEM_IDX: str(index), names.UNIT_MIB: str(UNIT_MIB)}
    made.pod_assigned(bound(pod(name, units, namespace=namespace, annotations=on_card), node))


_waiting: Final[dict[tuple[str, str], PodObject]] = {}


def waits(made: Engine, name: str, units: int, namespace: str = "default", **options: object) -> None:
    """A pod that waits."""
    wire = wire_pod(name, units, namespace=namespace, **options)
    _waiting[namespace, name] = wire
    made.pod_waiting(READER.read(wire), 0.0)


class _WaitingPods(MemoryCluster):
    """Answers for the pods of `waits`."""

    async def pod(self, namespace: str, name: str) -> PodObject | None:
        """A waiting pod, as it was made."""
        return _waiting.get((namespace, name))


@asynccontextmanager
async def serving(made: Engine) -> AsyncIterator[str]:
    """Serve the page of this cluster; its URL."""
    view = ClusterView(_WaitingPods(World(time.time)), ClusterSnapshot(made, UNIT_MIB), READER)
    async with page_served(view, str, 0) as url:
        yield url


AXE_VERSION: Final = "4.10.3"
AXE_SHA512: Final = "Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg=="
ARTEFACTS: Final = ROOT / "build" / "page"
_CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
# Beside what WCAG asks, what axe calls best practice.
_TAGS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def missing(what: str) -> None:
    """End the test: skipped with a line, in CI failed."""
    if os.environ.get("CI"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def chromium() -> str:
    """The browser's path."""
    path = next((found for name in _CHROMIUM if (found := shutil.which(name))), "")
    if not path:
        missing("chromium is not on PATH; Debian, Ubuntu: apt install chromium")
    return path


@asynccontextmanager
async def opened() -> AsyncIterator[Browser]:
    """A browser without a window."""
    async with async_playwright() as playwright:
        # In a container there is neither the right to make namespaces nor enough of /dev/shm.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = await playwright.chromium.launch(executable_path=chromium(), args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


async def violations(page: Page) -> list[str]:
    """What axe-core has to say against the page as it is, a line each."""
    await page.evaluate(axe())
    found: dict[str, Any] = await page.evaluate(
        "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", _TAGS
    )
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:120] for node in one['nodes']]}" for one in found["violations"]
    ]


async def shot(page: Page, name: str) -> None:
    """Keep what the page shows, for people to look at."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=ARTEFACTS / f"{name}.png")


def axe() -> str:
    """The script, fetched once."""
    kept = cache.folder() / "npm" / f"axe-core-{AXE_VERSION}.js"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        script = _unpacked(_fetched())
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_bytes(script)
        partial.replace(kept)
    return kept.read_text(encoding="utf-8")


def _fetched() -> bytes:
    if not shutil.which("npm"):
        missing("npm is not on PATH, which fetches axe-core")
    folder = cache.folder() / "npm"
    command = ["npm", "pack", f"axe-core@{AXE_VERSION}", "--json", "--pack-destination", str(folder)]
    packed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    archive = folder / Path(json.loads(packed.stdout)[0]["filename"]).name
    content = archive.read_bytes()
    archive.unlink()
    return content


def _unpacked(archive: bytes) -> bytes:
    digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if digest != AXE_SHA512:
        message = f"axe-core {AXE_VERSION} has another hash: {digest}"
        raise ValueError(message)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        member = files.extractfile("package/axe.min.js")
        if member is None:
            message = "axe-core has no package/axe.min.js"
            raise ValueError(message)
        return member.read()
