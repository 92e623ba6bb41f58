"""The documents as a site: every link leads somewhere, every document has a page, nothing comes from elsewhere."""

import importlib.util
import re
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from e2e.deploy.page import browser
from tests.support.documents import documents_site
from tests.support.documents.documents_site import CONFIGURATION, SiteFailed
from tests.support.repository import ROOT

# What a browser fetches by itself, and where the address stands.
FETCHED: Final = {
    "script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"
}  # fmt: skip
ELSEWHERE: Final = re.compile(r"(?:https?:)?//")
LOOKED_AT: Final = ("index.html", "docs/node.html", "docs/develop/decisions/index.html")
DOCS: Final = "docs"  # those of the small repository are not ours: nothing here cites one
NAVIGATION: Final = f"nav:\n  - README.md\n  - {DOCS}/a.md\n  - {DOCS}/decisions/[0-9]*.md\n"


class Fetches(HTMLParser):
    """The addresses on a page that a browser fetches by itself."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found = list[str]()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if value and FETCHED.get(tag) == name]


class QuietHandler(SimpleHTTPRequestHandler):
    """Says nothing of what it is asked."""

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None:
        browser.missing("mkdocs is not installed: run by `make test-deploy`")
    return documents_site.build(ROOT, tmp_path_factory.mktemp("site") / "site")


@pytest.fixture
def small(site: Path, tmp_path: Path) -> Path:  # noqa: ARG001 - asked for its skip
    """A repository with four documents, configured as ours."""
    texts = {
        "README.md": f"# One\n\n[a]({DOCS}/a.md#a-heading--more) [code](code/x.py)\n",
        f"{DOCS}/a.md": "# Two\n\n## A heading & more\n\n[up](../README.md)\n",
        f"{DOCS}/decisions/0001-one.md": "# Three\n",
        f"{DOCS}/decisions/0002-two.md": "# Four\n\n[one](0001-one.md)\n",
        "code/x.py": "x = 1\n",
        CONFIGURATION: (ROOT / CONFIGURATION).read_text(encoding="utf-8").partition("nav:")[0] + NAVIGATION,
    }
    for name, text in texts.items():
        (tmp_path / "repository" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repository" / name).write_text(text, encoding="utf-8")
    return tmp_path / "repository"


def test_every_document_has_a_page(site: Path) -> None:
    documents = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
    named = [path.parent / "index.html" if path.stem == "README" else path.with_suffix(".html") for path in documents]
    assert len(named) > 100
    assert [str(path) for path in named if not (site / path).is_file()] == []


def test_nothing_on_a_page_is_fetched_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    fetched = {path.name: [one for one in Fetches(path).found if ELSEWHERE.match(one)] for path in pages}
    assert {name: found for name, found in fetched.items() if found} == {}
    assert all(Fetches(path).found for path in pages)
    styles = [path.name for path in site.rglob("*.css") if re.search(r"url\([\"']?(?:https?:)?//", path.read_text())]
    assert styles == []


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The site's address on loopback."""
    handler = partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_a_browser_reads_and_searches_it_and_asks_nobody_else(served: str) -> None:
    asked = list[str]()
    async with browser.opened() as opened:
        page = await opened.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for name in LOOKED_AT:
            await page.goto(f"{served}/{name}", wait_until="networkidle")
        # Typed key by key: the page listens for keys, not for a field that is filled at once.
        await page.locator("input[name=query]").press_sequentially("UnexpectedAdmissionError")
        await page.locator(".md-search-result__item a[href*=troubleshooting]").first.wait_for(state="attached")
    assert {f"{served}/{name}" for name in LOOKED_AT} <= set(asked)
    assert [url for url in asked if not url.startswith((f"{served}/", "data:", "blob:"))] == []


def test_lists_are_lists(site: Path) -> None:
    """The site wants an empty line before a list, git hosts do not."""
    paragraph = re.compile(r"<p>(?:(?!</p>).)*?^(?:- |\d\. )", re.DOTALL | re.MULTILINE)
    assert [path.name for path in site.rglob("*.html") if paragraph.search(path.read_text(encoding="utf-8"))] == []


def test_links_and_anchors_are_those_of_a_git_host(small: Path, tmp_path: Path) -> None:
    page = (documents_site.build(small, tmp_path / "site") / "index.html").read_text(encoding="utf-8")
    assert 'href="docs/a.html#a-heading--more"' in page
    assert 'href="code/x.py"' in page


def test_what_leads_nowhere_ends_the_build(small: Path, tmp_path: Path) -> None:
    wrong = f"[b]({DOCS}/b.md) [c](code/y.py) [d]({DOCS}/a.md#none)"
    (small / "README.md").write_text(f"# One\n\n{wrong}\n", encoding="utf-8")
    (small / DOCS / "left-out.md").write_text("# Five\n", encoding="utf-8")
    with pytest.raises(SiteFailed) as failed:
        documents_site.build(small, tmp_path / "site")
    lines = str(failed.value).splitlines()
    for name in (f"{DOCS}/b.md", "code/y.py", "#none", f"{DOCS}/left-out.md"):
        assert [line for line in lines if name in line], lines
