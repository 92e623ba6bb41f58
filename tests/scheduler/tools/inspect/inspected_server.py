"""The part of an API server that inspect speaks to, over real HTTPS on a loopback port."""

import atexit
import functools
import json
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.scheduler.tools.inspect.golden_clusters import Json
from tests.support.byte_server import made_certificate

TOKEN = "secret"  # noqa: S105 - for a server that lives as long as a test


@functools.cache
def _certificate() -> tuple[Path, Path]:
    """With its key; the folder goes when the tests end."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return made_certificate(Path(folder.name))


class ApiServer(ThreadingHTTPServer):
    """Lists nodes and pods, one item a page, to clients that have the token. ca: a file.

    requests: path and query of each. The field selectors of pods are obeyed as far as inspect uses them.
    """

    def __init__(self, nodes: list[Json], pods: list[Json]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        certificate, key = _certificate()
        self.ca = str(certificate)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.lists = {"/api/v1/nodes": nodes, "/api/v1/pods": pods}
        self.requests: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}"

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Json]:
        """Status and body."""
        if path in self.lists:
            return 200, self._page(path, query)
        collection, _, name = path.rpartition("/")
        for item in self.lists.get(collection, []):
            if item["metadata"]["name"] == name:
                return 200, {"kind": "Node", **item}
        return 404, {"kind": "Status", "message": f'nodes "{name}" not found', "code": 404}

    def _page(self, path: str, query: dict[str, str]) -> Json:
        items = [item for item in self.lists[path] if _selected(item, query.get("fieldSelector", ""))]
        start = int(query.get("continue", "0"))
        rest = {"continue": str(start + 1)} if start + 1 < len(items) else {}
        kind = {"kind": "NodeList"} if path.endswith("nodes") else {"kind": "PodList"}
        return {**kind, "metadata": {"resourceVersion": "7"} | rest, "items": items[start : start + 1]}


def _selected(item: Json, selector: str) -> bool:
    for term in filter(None, selector.split(",")):
        field, operator, value = term.partition("!=" if "!=" in term else "=")
        found = {"spec.nodeName": item["spec"].get("nodeName", ""), "status.phase": item["status"]["phase"]}[field]
        if (found == value) != (operator == "="):
            return False
    return True


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path, query = unquote(parts.path), dict(parse_qsl(parts.query))
        self.server.requests.append((path, query))
        status, body = self.server.answer(path, query)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            status, body = 403, {"kind": "Status", "message": "nodes is forbidden: User cannot list", "code": 403}
        encoded = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Keep the test's output clean."""


@contextmanager
def serving(nodes: list[Json], pods: list[Json]) -> Iterator[ApiServer]:
    with ApiServer(nodes, pods) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
