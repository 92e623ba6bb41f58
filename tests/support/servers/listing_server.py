"""An API server on a loopback port for whole commands: streams lists of any kind, and lets nodes be annotated.

Nodes and pods are also listed in pages, one item per page.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import yaml

from scheduler.kube import objects

Json: TypeAlias = dict[str, Any]
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"


class ListingServer(ThreadingHTTPServer):
    """The server. lists: objects by collection path, empty for other paths. refused: paths that are forbidden.

    deleted: by the path of their collection, objects that a watch reports as deleted.
    absent: paths that the server does not know. made: by path, what makes its objects anew each time they are listed.
    may_write: whether nodes may be changed. before_write: called with a node before it is changed.
    named: objects that are asked for alone, by their paths. pages: text by its path. requests: method and path of
    each. queries: path and query of each GET. before_page: called with the path of a GET before its answer.
    """

    daemon_threads = True

    def __init__(
        self,
        nodes: Sequence[objects.Node | Mapping[str, object]],
        pods: Sequence[objects.PodObject | Mapping[str, object]] = (),
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lists: dict[str, list[Json]] = {
            NODES: [msgspec.to_builtins(node) for node in nodes],
            PODS: [msgspec.to_builtins(pod) for pod in pods],
        }
        for node in self.lists[NODES]:
            node["metadata"]["resourceVersion"] = "7"
        self.deleted: dict[str, list[Json]] = {}
        self.refused: set[str] = set()
        self.absent: set[str] = set()
        self.made: dict[str, Callable[[], list[Json]]] = {}
        self.named: dict[str, Json] = {}
        self.pages: dict[str, str] = {}
        self.may_write = True
        self.requests: list[tuple[str, str]] = []
        self.queries: list[tuple[str, dict[str, str]]] = []
        self.before_write: Callable[[Json], None] = lambda _: None
        self.before_page: Callable[[str], object] = lambda _: None

    def node(self, name: str) -> Json:
        return next(node for node in self.lists[NODES] if node["metadata"]["name"] == name)

    def page(self, path: str, query: Mapping[str, str]) -> Json:
        """Return one item of the list, and the start of the next page."""
        items = [item for item in self.lists[path] if _selected(item, query)]
        start = int(query.get("continue", "0"))
        rest = {"continue": str(start + 1)} if start + 1 < len(items) else {}
        kind = "NodeList" if path == NODES else "PodList"
        return {"kind": kind, "metadata": {"resourceVersion": "7", **rest}, "items": items[start : start + 1]}

    def annotated(self, name: str, patch: Json) -> tuple[int, Json]:
        """Annotate the node; return status and body."""
        node = self.node(name)
        self.before_write(node)
        meta, wanted = node["metadata"], patch["metadata"]
        if wanted["resourceVersion"] != meta["resourceVersion"]:
            return 409, refusal(409, "the object has been modified")
        merged = {**(meta["annotations"] or {}), **wanted["annotations"]}
        meta["annotations"] = {key: text for key, text in merged.items() if text is not None}
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
        return 200, {"kind": "Node", **node}

    def kubeconfig(self, folder: Path, namespace: str = "") -> str:
        return kubeconfig_of(self.server_port, folder, namespace)


def _selected(item: Json, query: Mapping[str, str]) -> bool:
    """Return whether the item has the labels and fields that the commands select."""
    fields = {
        "metadata.name": item["metadata"]["name"],
        "spec.nodeName": item.get("spec", {}).get("nodeName", ""),
        "status.phase": item.get("status", {}).get("phase", ""),
    }
    labels = item["metadata"].get("labels") or {}
    terms = [(fields, term) for term in query.get("fieldSelector", "").split(",") if term]
    terms += [(labels, term) for term in query.get("labelSelector", "").split(",") if term]
    return all(_holds(found, term) for found, term in terms)


def _holds(found: Mapping[str, str], term: str) -> bool:
    name, operator, value = term.partition("!=" if "!=" in term else "=")
    return (found.get(name, "") == value) == (operator == "=")


def kubeconfig_of(port: int, folder: Path, namespace: str = "") -> str:
    """Write a kubeconfig for a local port without TLS; return its path. namespace: of its context."""
    return str(written_kubeconfig(folder, f"http://127.0.0.1:{port}", user={"token": "t"}, namespace=namespace))


def written_kubeconfig(
    folder: Path, url: str, *, user: Json, cluster: Mapping[str, object] | None = None, namespace: str = ""
) -> Path:
    """Write a kubeconfig. user, cluster: fields besides the server's address. namespace: of its context."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url, **(cluster or {})}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def refusal(code: int, message: str) -> Json:
    return {"kind": "Status", "status": "Failure", "message": message, "code": code}


class _Handler(BaseHTTPRequestHandler):
    server: ListingServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path, query = unquote(parts.path), dict(parse_qsl(parts.query))
        self.server.requests.append(("GET", path))
        self.server.queries.append((path, query))
        self.server.before_page(path)
        if path in self.server.refused:
            self._answer(403, refusal(403, f"{path.rpartition('/')[2]} is forbidden"))
        elif path in self.server.pages:
            self._answer(200, self.server.pages[path])
        elif path in self.server.named:
            self._answer(200, {"kind": "Node" if path.startswith(NODES) else "Pod", **self.server.named[path]})
        elif path == "/version":
            self._answer(200, {"gitVersion": "v1.36.3"})
        elif "watch" in query and path not in self.server.absent:
            self._stream(path, query)
        elif path in self.server.lists and path not in self.server.absent:
            self._answer(200, self.server.page(path, query))
        else:
            collection, _, name = path.rpartition("/")
            self._answer(404, refusal(404, f'{collection.rpartition("/")[2]} "{name}" not found'))

    def do_PATCH(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(("PATCH", path))
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.server.may_write:
            self._answer(403, refusal(403, 'nodes "a" is forbidden: User cannot patch'))
        else:
            self._answer(*self.server.annotated(path.rpartition("/")[2], patch))

    def _stream(self, path: str, query: Mapping[str, str]) -> None:
        annotations = {"k8s.io/initial-events-end": "true"}
        end = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "100", "annotations": annotations}}}
        items = self.server.made[path]() if path in self.server.made else self.server.lists.get(path, [])
        lists = "sendInitialEvents" in query
        since = 0 if lists else int(query.get("resourceVersion") or 0)
        lines: list[Json] = [
            {"type": "ADDED", "object": item}
            for item in items
            if _selected(item, query) and (lists or int(item["metadata"].get("resourceVersion") or 0) > since)
        ]
        lines += [
            {"type": "DELETED", "object": item}
            for item in (() if lists else self.server.deleted.get(path, ()))
            if int(item["metadata"]["resourceVersion"]) > since
        ]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write("".join(f"{json.dumps(line)}\n" for line in [*lines, *([end] if lists else [])]).encode())

    def _answer(self, status: int, body: Json | str) -> None:
        encoded = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Keep the test's output clean."""


@contextmanager
def listing(
    nodes: Sequence[objects.Node | Mapping[str, object]],
    pods: Sequence[objects.PodObject | Mapping[str, object]] = (),
) -> Iterator[ListingServer]:
    with ListingServer(nodes, pods) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
