"""The whole command, as kubectl starts it, against an API server of the test's own on loopback."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
import yaml

from config import names

ROOT = Path(__file__).parent.parent.parent
GOLDEN = Path(__file__).parent / "golden"


def node(name: str, units: str, count: str, *addresses: str) -> dict[str, Any]:
    status = {
        "allocatable": {names.GPU_MEM: units, names.GPU_COUNT: count},
        "addresses": [{"type": "InternalIP", "address": address} for address in addresses],
    }
    return {"metadata": {"name": name}, "status": status}


def pod(name: str, units: str, index: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": {names.MEM_IDX: index}},
        "spec": {"nodeName": "gpu-node-a", "containers": [{"resources": {"limits": {names.GPU_MEM: units}}}]},
        "status": {"phase": "Running"},
    }


LISTS: dict[str, list[dict[str, Any]]] = {
    "/api/v1/nodes": [node("gpu-node-b", "15", "1"), node("gpu-node-a", "30", "2", "192.168.0.71")],
    "/api/v1/pods": [pod("binpack-1", "4", "1"), pod("binpack-0", "3", "0")],
}


class Api(BaseHTTPRequestHandler):
    """Answers with one item a page, to those who have the token."""

    def do_GET(self) -> None:
        url = urlparse(self.path)
        start = int(parse_qs(url.query).get("continue", ["0"])[0])
        if self.headers["Authorization"] != "Bearer secret":
            self.answer(403, {"message": "nodes is forbidden"})
            return
        items = LISTS[url.path]
        more = str(start + 1) if start + 1 < len(items) else ""
        self.answer(200, {"metadata": {"continue": more}, "items": items[start : start + 1]})

    def answer(self, status: int, document: dict[str, Any]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[str]:
    api = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=api.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{api.server_port}"
    api.shutdown()
    thread.join()
    api.server_close()


def kubeconfig(folder: Path, server: str, token: str) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(document))
    return file


def inspect(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scheduler.cli.inspect", *arguments]
    environment = {"KUBECONFIG": str(config), "PYTHONPATH": str(ROOT), "HOME": str(config.parent)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("arguments", "golden"), [((), "summary"), (("-d",), "details")])
def test_the_command_prints_what_the_originals_prints(
    server: str, tmp_path: Path, arguments: tuple[str, ...], golden: str
) -> None:
    ran = inspect(kubeconfig(tmp_path, server, "secret"), *arguments)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == (GOLDEN / f"{golden}.txt").read_text()


def test_one_node_may_be_named_before_or_after_the_flag(server: str, tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, server, "secret")
    before, after = inspect(config, "gpu-node-b", "-d"), inspect(config, "-d", "gpu-node-b")
    assert before.stdout == after.stdout
    assert "gpu-node-b" in before.stdout
    assert "gpu-node-a" not in before.stdout


def test_json_says_the_same_for_programs(server: str, tmp_path: Path) -> None:
    (first, _) = json.loads(inspect(kubeconfig(tmp_path, server, "secret"), "-o", "json").stdout)["nodes"]
    assert (first["name"], first["totalUnits"], first["allocatedUnits"]) == ("gpu-node-a", 30, 7)
    assert [card["freeUnits"] for card in first["cards"]] == [12, 11]
    assert first["pods"][0] == {"namespace": "default", "name": "binpack-0", "cards": {"0": 3}, "pendingUnits": 0}


@pytest.mark.parametrize(
    ("token", "arguments", "words"),
    [
        pytest.param("wrong", (), "Failed due to", id="forbidden"),
        pytest.param("secret", ("nobody",), 'Failed due to nodes "nobody" not found', id="no such node"),
        pytest.param("secret", ("--context", "other"), "Failed due to", id="no such context"),
    ],
)
def test_what_goes_wrong_is_one_line_and_exit_code_1(
    server: str, tmp_path: Path, token: str, arguments: tuple[str, ...], words: str
) -> None:
    ran = inspect(kubeconfig(tmp_path, server, token), *arguments)
    assert ran.returncode == 1
    assert ran.stdout.startswith(words)
    assert ran.stdout.count("\n") == 1
