"""A real browser for the web page: Debian's Chromium, driven by Playwright; and axe-core, which judges what it shows.

axe-core comes from the npm registry into the user's cache, by the hash that is written here, and never into the tree.
"""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Browser, Page, async_playwright

from e2e.control_plane import cache
from tests.support.repository import ROOT

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
