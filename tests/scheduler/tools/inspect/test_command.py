"""The whole command, as kubectl starts it, against an API server of the test's own on loopback."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.scheduler.tools.inspect.golden_clusters import CLUSTERS, Json, golden, pod
from tests.scheduler.tools.inspect.inspected_server import TOKEN, ApiServer, serving
from tests.support.repository import ROOT

_, NODES, PODS = CLUSTERS["summary"]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with serving(NODES, PODS) as started:
        yield started


def kubeconfig(path: Path, server: ApiServer | str, user: Json | None = None) -> Path:
    """Two contexts: `test`, the current one, and `nobody`, whose user has another token."""
    cluster = (
        {"server": server} if isinstance(server, str) else {"server": server.url, "certificate-authority": server.ca}
    )
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user or {"token": TOKEN}}, {"name": "nobody", "user": {"token": "other"}}],
        "contexts": [{"name": name, "context": {"cluster": "test", "user": name}} for name in ("test", "nobody")],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def inspect(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "scheduler.tools.kubectl.inspect", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(home)} | environment
    return subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)


def at(server: ApiServer, folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return inspect(folder, *arguments, KUBECONFIG=str(kubeconfig(folder / "config", server)))


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_command_prints_what_the_legacy_command_prints(tmp_path: Path, name: str) -> None:
    flags, nodes, pods = CLUSTERS[name]
    with serving(nodes, pods) as server:
        ran = at(server, tmp_path, *flags)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.decode() == golden(name)


def test_lists_are_read_in_pages_of_500_without_finished_pods(server: ApiServer, tmp_path: Path) -> None:
    at(server, tmp_path)
    selector = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
    assert server.requests == [
        ("/api/v1/nodes", {"limit": "500"}),
        ("/api/v1/nodes", {"limit": "500", "continue": "1"}),
        ("/api/v1/pods", {"limit": "500"} | selector),
        ("/api/v1/pods", {"limit": "500", "continue": "1"} | selector),
    ]


def test_one_node_may_be_named_before_or_after_the_flag(server: ApiServer, tmp_path: Path) -> None:
    before, after = at(server, tmp_path, "gpu-node-b", "-d"), at(server, tmp_path, "-d", "gpu-node-b")
    assert before.stdout == after.stdout
    assert b"gpu-node-b" in before.stdout
    assert b"gpu-node-a" not in before.stdout


def test_of_a_named_node_nothing_else_is_read(server: ApiServer, tmp_path: Path) -> None:
    ran = at(server, tmp_path, "gpu-node-a")
    assert b"7/30 (23%)" in ran.stdout
    assert {path for path, _ in server.requests} == {"/api/v1/nodes/gpu-node-a", "/api/v1/pods"}
    assert all("spec.nodeName=gpu-node-a," in query.get("fieldSelector", "") for _, query in server.requests[1:])


def test_json_has_the_same_data(server: ApiServer, tmp_path: Path) -> None:
    (first, _) = json.loads(at(server, tmp_path, "-o", "json").stdout)["nodes"]
    assert (first["name"], first["totalUnits"], first["allocatedUnits"]) == ("gpu-node-a", 30, 7)
    assert [card["freeUnits"] for card in first["cards"]] == [12, 11]


@pytest.mark.parametrize(("flags", "head"), [(("-o", "wide"), b"NODE "), (("-o", "compact", "--used"), b"NODE ")])
def test_other_outputs_are_chosen_by_flags(
    server: ApiServer, tmp_path: Path, flags: tuple[str, ...], head: bytes
) -> None:
    ran = at(server, tmp_path, *flags)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.startswith(head)
    assert (b"gpu-node-b" in ran.stdout) is ("--used" not in flags)


def test_an_object_that_cannot_be_read_is_named_beside_the_output(tmp_path: Path) -> None:
    broken = pod("broken", "1")
    broken["metadata"]["annotations"] = "none"
    with serving(NODES, [*PODS, broken]) as server:
        ran = at(server, tmp_path)
    assert ran.stdout.decode() == golden("summary")
    assert ran.stderr.startswith(b"pod default/broken is left out: ")


def test_a_named_kubeconfig_wins_over_the_environment_which_wins_over_the_home(
    server: ApiServer, tmp_path: Path
) -> None:
    wrong = str(kubeconfig(tmp_path / "wrong", "http://127.0.0.1:9"))
    right = str(kubeconfig(tmp_path / "home/.kube/config", server))
    summary = golden("summary").encode()
    assert inspect(tmp_path, "--kubeconfig", right, KUBECONFIG=wrong).stdout == summary
    assert inspect(tmp_path, KUBECONFIG=right).stdout == summary
    assert inspect(tmp_path / "home", KUBECONFIG="").stdout == summary
    assert inspect(tmp_path / "home").stdout == summary


def configuration(folder: Path, more: str) -> str:
    file = folder / "scheduler.yaml"
    file.write_text(f"apiVersion: gpushare/v1alpha1\nkind: SchedulerConfiguration\n{more}\n", encoding="utf-8")
    return str(file)


def test_the_configuration_says_what_the_resources_are_called(tmp_path: Path) -> None:
    nodes, pods = (
        json.loads(json.dumps(listed).replace("aliyun.com/", "example.com/").replace("gpu-count", "cards"))
        for listed in (NODES, PODS)
    )
    config = configuration(tmp_path, "resources: {gpuMem: example.com/gpu-mem, gpuCount: example.com/cards}")
    with serving(nodes, pods) as server:
        ran = at(server, tmp_path, "--config", config)
        without = at(server, tmp_path)
    assert (ran.stdout.decode(), ran.stderr) == (golden("summary"), b"")
    assert without.stdout.decode() != golden("summary")


def test_the_configuration_says_which_cluster_where_no_flag_does(server: ApiServer, tmp_path: Path) -> None:
    right, wrong = (
        str(kubeconfig(tmp_path / name, url)) for name, url in (("right", server), ("wrong", "http://127.0.0.1:9"))
    )
    config = configuration(tmp_path, f"clientConnection: {{kubeconfig: {right}}}")
    assert inspect(tmp_path, "--config", config, KUBECONFIG=wrong).stdout.decode() == golden("summary")
    config = configuration(tmp_path, f"clientConnection: {{kubeconfig: {wrong}, context: other}}")
    flags = ("--kubeconfig", right, "--context", "test")
    assert inspect(tmp_path, "--config", config, *flags).stdout.decode() == golden("summary")


def test_every_mistake_in_the_configuration_is_on_one_line(server: ApiServer, tmp_path: Path) -> None:
    ran = at(server, tmp_path, "--config", configuration(tmp_path, "unit: 1\nresources: {gpuMen: a}"))
    assert (ran.returncode, ran.stderr, server.requests) == (1, b"", [])
    said = ran.stdout.decode()
    assert said.startswith("Failed due to ")
    assert "unit: unknown field; " in said
    assert "resources.gpuMen: unknown field" in said
    assert "\n" not in said


def test_a_token_file_may_end_in_a_newline(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    config = kubeconfig(tmp_path / "config", server, {"tokenFile": str(tmp_path / "token")})
    assert inspect(tmp_path, KUBECONFIG=str(config)).stdout.decode() == golden("summary")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("--context", "nobody"), "nodes is forbidden: User cannot list", id="forbidden"),
        pytest.param(("nobody",), 'nodes "nobody" not found', id="no such node"),
        pytest.param(("--context", "other"), "there is no context other; correct it", id="no such context"),
        pytest.param(("--kubeconfig", "/dev/null/none"), "kubeconfig /dev/null/none", id="no such file"),
        pytest.param(("--kubeconfig", "/dev/null"), "/dev/null", id="an empty file"),
    ],
)
def test_errors_are_printed_like_the_legacy_command_prints_them(
    server: ApiServer, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    ran = at(server, tmp_path, *arguments)
    assert (ran.returncode, ran.stderr) == (1, b"")
    said = ran.stdout.decode()
    assert said.startswith("Failed due to ")
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize("name", ["", "..", "a,spec.nodeName=b", "a/b", "A"])
def test_what_is_no_name_of_a_node_is_not_asked_for(server: ApiServer, tmp_path: Path, name: str) -> None:
    ran = at(server, tmp_path, name)
    assert (ran.returncode, ran.stdout) == (1, f"Failed due to {name!r} is no name of a node".encode())
    assert server.requests == []


def test_a_server_that_cannot_be_reached_is_one_line_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    config = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{port}")
    began_s = time.monotonic()
    ran = inspect(tmp_path, KUBECONFIG=str(config))
    assert (ran.returncode, ran.stderr) == (1, b"")
    assert b"Connection refused" in ran.stdout
    assert time.monotonic() - began_s < 30


def test_help_does_not_load_the_kubernetes_client(tmp_path: Path) -> None:
    command = "scheduler.tools.kubectl.inspect"
    program = f"import sys\nfrom {command} import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0
    assert {"kubernetes", "numpy", "aiohttp", "rich", "pydantic", "typer"} & set(ran.stdout.split()) == set()
    assert "--kubeconfig" in ran.stdout
