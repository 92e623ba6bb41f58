"""No test reaches a cluster that it did not start. Each guard is shown to be what prevents it."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.support.repository import ROOT

PROBE: Final = "tests/support/servers/cluster_of_the_environment.py"
VERSION: Final = dict.fromkeys(
    ("major", "minor", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"), "0"
) | {"gitVersion": "v0.0.0-somebody-elses"}


class SomebodyElsesCluster(ThreadingHTTPServer):
    """An API server that knows its version, and counts the connections that were opened to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.connections = 0

    def verify_request(self, request: object, client_address: object) -> bool:
        del request, client_address
        self.connections += 1
        return True

    def write_kubeconfig(self, path: Path) -> Path:
        server = f"http://127.0.0.1:{self.server_address[1]}"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "theirs", "cluster": {"server": server}}],
            "users": [{"name": "theirs", "user": {"token": "theirs"}}],
            "contexts": [{"name": "theirs", "context": {"cluster": "theirs", "user": "theirs"}}],
            "current-context": "theirs",
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(VERSION).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class gave it
        """Keep the test output to the tests."""


@pytest.fixture
def cluster() -> Iterator[SomebodyElsesCluster]:
    with SomebodyElsesCluster() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def pytest_run(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """`make unit` as a user with this environment would run it, over the probe alone."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, PROBE]
    inherited = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return subprocess.run(
        command, cwd=ROOT, env=inherited | environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_tests_open_no_connection_to_the_cluster_of_their_user(cluster: SomebodyElsesCluster, tmp_path: Path) -> None:
    kubeconfig = cluster.write_kubeconfig(tmp_path / "home/.kube/config")
    run = pytest_run({"KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path / "home")})
    assert cluster.connections == 0, run.stdout
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "/dev/null/kubeconfig, named by KUBECONFIG, does not exist" in run.stdout


@pytest.mark.parametrize("variable", ["KUBECONFIG", "HOME"])
def test_without_the_guard_they_would(cluster: SomebodyElsesCluster, tmp_path: Path, variable: str) -> None:
    kubeconfig = cluster.write_kubeconfig(tmp_path / ".kube/config")
    run = pytest_run({variable: str({"KUBECONFIG": kubeconfig, "HOME": tmp_path}[variable])}, "--noconftest")
    assert run.returncode == pytest.ExitCode.OK, run.stdout
    assert cluster.connections > 0
