"""Commands as somebody types them who knows kubectl and has not read our help, and the help itself."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Any, Final

import msgspec
import pytest
import yaml
from typer import Typer
from typer.main import get_command
from typer.testing import CliRunner, Result

from scheduler.program import cli as scheduler
from scheduler.tools.cli.plain import commands_of
from scheduler.tools.cli.target import mounted
from scheduler.tools.kubectl.main import cli
from tests.support.builders import wire_node, wire_pod
from tests.support.placing import on_card
from tests.support.repository import ROOT
from tests.support.servers.listing_server import NODES, PODS, Json, ListingServer, kubeconfig_of, listing

CONFIG_MAPS = "/api/v1/namespaces/gpu/configmaps"
DEPLOYMENTS = "/apis/apps/v1/deployments"


def deployment(*args: str) -> Json:
    """The scheduler's Deployment as the chart writes it."""
    container = {
        "name": "scheduler",
        "image": "registry.example/gpushare-scheduler:0.1.0",
        "args": list(args) or ["run", "--config", "/etc/gpushare/scheduler.yaml"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/gpushare"}],
    }
    volumes = [{"name": "config", "configMap": {"name": "settings"}}]
    spec = {"template": {"spec": {"containers": [container], "volumes": volumes}}}
    return {"metadata": {"name": "gpushare-scheduler", "namespace": "gpu"}, "spec": spec}


def configure(server: ListingServer, **settings: object) -> None:
    text = yaml.safe_dump({"apiVersion": "gpushare/v1alpha1", "kind": "SchedulerConfiguration", **settings})
    meta = {"name": "settings", "namespace": "gpu"}
    server.lists[CONFIG_MAPS] = [{"metadata": meta, "data": {"scheduler.yaml": text}}]


@pytest.fixture
def server() -> Iterator[ListingServer]:
    nodes = [wire_node(name, [16, 16], labels={"gpushare": "true"}) for name in ("a", "b")]
    held = wire_pod("p", 3, node="a", annotations=on_card(0, 3), labels={"app": "web"})
    with listing(nodes, [held]) as started:
        started.named["/api/v1/namespaces/default/pods/p"] = msgspec.to_builtins(held)
        yield started


def run(server: ListingServer, folder: Path, *arguments: str) -> Result:
    environment = {"KUBECONFIG": server.kubeconfig(folder)}
    return CliRunner(env=environment).invoke(cli, arguments, catch_exceptions=False, prog_name="kubectl gpushare")


# What was typed, and a part of what was meant.
GUESSED: Final = [
    ("get pods", "p     a     0 (3)"),
    ("get pods -A", "default    p     a"),
    ("get po p -o yaml", "name: p"),
    ("get pods -l app=web --no-headers", "p     a     0 (3)"),
    ("get nodes", "a         2     32          3"),
    ("get nodes -o wide", "MODELS"),
    ("get node a -o name", "node/a"),
    ("get gpus", "GPU-a-0"),
    ("top pod -A", "default    p     a"),
    ("top node a", "a         2     32          3"),
    ("top node/a", "a         2     32          3"),
    ("describe node a", "default/p (3)"),
    ("describe pod p", "Pod default/p is bound."),
    ("describe pod/p -n default", "Pod default/p is bound."),
    ("explain pod p", "Pod default/p is bound."),
    ("cordon node/a --dry-run=client", "node a: 2 of 2 cards cordoned"),
    ("--context test top nodes", "a         2     32          3"),
    ("-n default get pods", "p     a     0 (3)"),
    ("version", "Kubernetes: v1.36.3"),
    ("list pods", "p     a     0 (3)"),
    ("ls", "a         2     32          3"),
    ("get pods --sort-by memory", "p     a     0 (3)"),
    ("top nodes --sort-by=mem", "a         2     32          3"),
    ("top pods --all-namespaces=true", "default    p     a"),
    ("why p", "Pod default/p is bound."),
    ("why pod/p", "Pod default/p is bound."),
    ("describe pods p p", "Pod default/p is bound."),
    ("describe nodes a b", "GPU-b-1"),
    ("describe gpus a", "default/p (3)"),
    ("describe card GPU-a-0", "default/p (3)"),
    ("get gpu GPU-a-0 -o name", "card/GPU-a-0"),
    ("cordon a --gpu 0 --dry-run=server", "node a: 1 of 2 cards cordoned"),
    ("cordon a --cards=0 --dry-run", "node a: 1 of 2 cards cordoned"),
    ("uncordon a --all --dry-run", "node a: 0 of 2 cards uncordoned"),
    ("what-if 3", "Pod default/what-if would fit now."),
    ("what-if --gpu-mem 16 --copies 5", "3 of 5 copies"),
    ("what-if 20 --gpu-count 2", "10 on each of 2 cards"),
    ("create --dry-run=client -f docs/examples/first-pod.yaml", "Pod default/first-pod would fit now"),
    ("apply -f docs/examples/first-pod.yaml --dry-run", "Pod default/first-pod would fit now"),
    ("fits -f docs/examples/first-pod.yaml --copies 2", "2 of 2 copies"),
    ("help get pods", "kubectl gpushare top pods [POD...] [flags]"),
    ("help top pods", "kubectl gpushare top pods [POD...] [flags]"),
]
UNKNOWN: Final = [
    ("drain a", "cordon keeps new pods off a card; defragment plan"),
    ("evict pod-a", "cordon keeps new pods off a card; defragment plan"),
    ("apply -f pod.yaml", "kubectl apply -f FILE creates a pod; what-if -f FILE shows whether it would fit"),
    ("run x --dry-run=none", "kubectl apply -f FILE creates a pod; what-if -f FILE shows whether it would fit"),
    ("cordon a --dry-run=none", "expected --dry-run or --dry-run=client"),
    (
        "cordon a --crad 1",
        "Error: no such option --crad; did you mean --card?\nUsage: kubectl gpushare cordon NODE [flags]",
    ),
    ("version --short", "Error: no such option --short\nUsage: kubectl gpushare version [flags]\n"),
    ("cordon a --card 1 --all", "expected --card or --all, found both"),
    ("top --sort-by cpu", "'requested'"),
    ("logs", "did you mean doctor?"),
    ("get events", "no such command events; commands: nodes, cards, pods, cluster"),
    ("tpo", "did you mean top?"),
]


@pytest.mark.parametrize(("typed", "meant"), GUESSED)
def test_what_was_meant_is_done(server: ListingServer, tmp_path: Path, typed: str, meant: str) -> None:
    ran = run(server, tmp_path, *typed.split())
    assert (ran.exit_code, ran.stderr, meant in ran.stdout) == (0, "", True), ran.output


@pytest.mark.parametrize(("typed", "advice"), UNKNOWN)
def test_what_cannot_be_done_is_answered_by_what_can(
    server: ListingServer, tmp_path: Path, typed: str, advice: str
) -> None:
    ran = run(server, tmp_path, *typed.split())
    assert (ran.exit_code, advice in ran.stderr) == (2, True), ran.output


def every_command(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - click's, vendored
    for name, command in commands_of(group):
        yield f"{path}{name}", command
        yield from every_command(command, f"{path}{name} ")


ALL = [pytest.param(*one, id=one[0]) for one in every_command(get_command(cli))]


@pytest.mark.parametrize(("path", "command"), ALL)
def test_a_help_begins_with_a_verb_and_has_examples(path: str, command: Any) -> None:  # noqa: ANN401 - as above
    (line,) = command.help.splitlines()
    assert len(line.split()) <= 13
    assert re.match(r"(Show|Explain|Count|Plan|Evict|Take|Let|Find|Check|Print) ", line)
    ran = CliRunner().invoke(cli, [*path.split(), "-h"], prog_name="kubectl gpushare")
    assert not re.search(r"\b(TEXT|INTEGER|PATH|FLOAT|BOOLEAN)\b|Only reads", ran.stdout)
    if not commands_of(command):
        (examples,) = re.findall(r"\nExamples:\n((?:  .*\n)+)", ran.stdout)
        assert all(f"gpushare {path}" in one for one in examples.splitlines())
    assert f"kubectl gpushare {path}" in ran.stdout


@pytest.mark.parametrize("program", [cli, scheduler])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_plain(program: Typer, flag: str) -> None:
    ran = CliRunner().invoke(program, [flag])
    assert (ran.exit_code, ran.stdout.isascii(), "\nUsage:\n" in ran.stdout) == (0, True, True)


# Configuration


def test_the_configuration_is_that_of_the_clusters_scheduler(server: ListingServer, tmp_path: Path) -> None:
    server.lists[DEPLOYMENTS] = [deployment()]
    configure(server, resources={"gpuMem": "example.com/mem"})
    assert run(server, tmp_path, "get", "pods", "-o", "name").stdout == ""
    configure(server)
    assert run(server, tmp_path, "get", "pods", "-o", "name").stdout == "pod/p\n"


def test_a_file_replaces_the_configuration_of_the_cluster(server: ListingServer, tmp_path: Path) -> None:
    server.lists[DEPLOYMENTS] = [deployment("run", "--config=/etc/gpushare/scheduler.yaml")]
    configure(server, resources={"gpuMem": "example.com/mem"})
    file = tmp_path / "own.yaml"
    file.write_text("apiVersion: gpushare/v1alpha1\nkind: SchedulerConfiguration\n")
    assert run(server, tmp_path, "get", "pods", "-o", "name", "--config", str(file)).stdout == "pod/p\n"
    assert DEPLOYMENTS not in {path for _, path in server.requests}


@pytest.mark.parametrize("source", [DEPLOYMENTS, CONFIG_MAPS])
def test_a_configuration_that_may_not_be_read_is_the_default_and_that_is_said(
    server: ListingServer, tmp_path: Path, source: str
) -> None:
    server.lists[DEPLOYMENTS] = [deployment()]
    server.refused.add(source)
    ran = run(server, tmp_path, "get", "pods", "-o", "name")
    (line,) = ran.stderr.splitlines()
    assert (ran.stdout, "so its defaults are used; name a file with --config" in line) == ("pod/p\n", True)


def test_without_any_rights_only_the_error_is_shown(server: ListingServer, tmp_path: Path) -> None:
    server.refused |= {DEPLOYMENTS, NODES, PODS}
    ran = run(server, tmp_path, "get", "pods")
    (line,) = ran.stderr.splitlines()
    assert (ran.exit_code, "nodes cannot be read" in line) == (3, True), ran.stderr


def test_a_mistake_in_the_clusters_configuration_names_the_config_map(server: ListingServer, tmp_path: Path) -> None:
    server.lists[DEPLOYMENTS] = [deployment()]
    configure(server, memroyUnit="1GiB")
    ran = run(server, tmp_path, "top")
    assert (ran.exit_code, "ConfigMap gpu/settings: memroyUnit: unknown field" in ran.stderr) == (2, True), ran.stderr


def test_in_the_schedulers_pod_its_own_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    assert mounted(file) is None
    file.touch()
    assert mounted(file) == file


def test_a_version_names_those_of_the_cluster(server: ListingServer, tmp_path: Path) -> None:
    server.lists[DEPLOYMENTS] = [deployment()]
    client, *others = run(server, tmp_path, "version").stdout.splitlines()
    assert client.startswith("Client: ")
    assert others == [
        "Scheduler: registry.example/gpushare-scheduler:0.1.0",
        "Device plugin: no pod with label app.kubernetes.io/name=gpushare-scheduler-device-plugin found",
        "Kubernetes: v1.36.3",
    ]
    assert run(server, tmp_path, "version", "--client").stdout.splitlines() == [client]
    assert CliRunner().invoke(cli, ["--version"]).stdout == client.replace("Client:", "kubectl-gpushare") + "\n"
    server.lists[DEPLOYMENTS] = []
    assert "Scheduler: no Deployment gpushare-scheduler found\n" in run(server, tmp_path, "version").stdout
    server.refused.add(DEPLOYMENTS)
    assert "Cannot be read: scheduler: deployments is forbidden" in run(server, tmp_path, "version").stdout


# --watch

_WITHIN_S: Final = 30.0


@contextmanager
def watching(server: ListingServer, folder: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The command, ended in any case."""
    command = [sys.executable, "-m", "scheduler.tools.kubectl.main", *arguments, "-w"]
    environment = {"KUBECONFIG": server.kubeconfig(folder), "PATH": "", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        ending = threading.Timer(_WITHIN_S, process.kill)
        ending.start()
        try:
            yield process
        finally:
            process.kill()
            ending.cancel()


@pytest.mark.parametrize("what", ["pods", "nodes"])
def test_watch_prints_the_table_and_then_rows_that_change(server: ListingServer, tmp_path: Path, what: str) -> None:
    with watching(server, tmp_path, "top", what) as process:
        assert process.stdout is not None
        table = [process.stdout.readline().split() for _ in range(2 if what == "pods" else 3)]
        more = msgspec.to_builtins(wire_pod("q", 5, node="b", annotations=on_card(1, 5)))
        more["metadata"]["resourceVersion"] = "200"
        server.lists[PODS].append(more)
        row = process.stdout.readline().split()
        process.send_signal(signal.SIGINT)
        assert (process.stdout.read(), process.wait()) == ("", 130)
    assert table[1][0] == ("p" if what == "pods" else "a")
    assert row[:2] == (["q", "b"] if what == "pods" else ["b", "2"])


def test_watch_prints_a_last_row_of_a_pod_that_ends(server: ListingServer, tmp_path: Path) -> None:
    server.lists[PODS].append(msgspec.to_builtins(wire_pod("waits", 99)))
    with watching(server, tmp_path, "get", "pods", "--no-headers") as process:
        assert process.stdout is not None
        assert {process.stdout.readline().split()[0] for _ in range(2)} == {"p", "waits"}
        held = server.lists[PODS][0]["metadata"]
        held |= {"resourceVersion": "200", "deletionTimestamp": "2026-11-22T08:42:09Z"}
        assert process.stdout.readline().split()[::9] == ["p", "terminating"]
        for pod in server.lists[PODS]:
            pod["metadata"]["resourceVersion"] = "300"
        server.deleted[PODS], server.lists[PODS] = server.lists[PODS], []
        rows = sorted(process.stdout.readline().split() for _ in range(2))
        assert [(name, row[-1]) for name, *row in rows] == [("p", "gone"), ("waits", "gone")]


def test_watch_says_when_it_sees_no_changes_for_a_while(server: ListingServer, tmp_path: Path) -> None:
    with watching(server, tmp_path, "top", "nodes", "--no-headers") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        server.refused.add(PODS)
        assert process.stderr.readline() == "the watch of pods ended and restarts: pods is forbidden\n"


def test_watch_goes_with_tables(server: ListingServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "top", "pods", "-w", "-o", "json")
    assert (ran.exit_code, "--watch prints tables, not json" in ran.stderr) == (2, True)


def test_a_watch_of_what_may_not_be_read_ends(server: ListingServer, tmp_path: Path) -> None:
    server.refused.add(PODS)
    ran = run(server, tmp_path, "top", "nodes", "-w")
    assert (ran.exit_code, "this needs the right to list and watch them" in ran.stderr) == (3, True), ran.output


def test_nothing_to_show_is_said_on_standard_error(server: ListingServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "top", "pods", "-n", "other")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "", "no pods with GPU memory in namespace other\n")
    server.lists[PODS].clear()
    server.lists[NODES].clear()
    assert run(server, tmp_path, "top", "nodes").stderr == "no nodes with GPU memory\n"
    assert run(server, tmp_path, "top", "cards").stderr == "no cards on any node\n"


def test_a_request_is_given_up_after_the_time_of_the_flag(tmp_path: Path) -> None:
    with create_server(("127.0.0.1", 0)) as silent:
        kubeconfig = kubeconfig_of(silent.getsockname()[1], tmp_path)
        ran = CliRunner().invoke(cli, ["top", "--kubeconfig", kubeconfig, "--request-timeout", "200ms"])
    assert (ran.exit_code, "no data for 0.2 s" in ran.stderr) == (3, True), ran.stderr


def test_a_request_without_a_limit_gets_its_answer(server: ListingServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "top", "nodes", "--request-timeout", "0", "-o", "name")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "node/a\nnode/b\n", "")


# Files


def test_examples_can_be_tried_without_a_cluster() -> None:
    files = ["--cluster-file", "docs/examples/cluster.yaml", "--cluster-file", "docs/examples/workload.yaml"]
    ran = CliRunner().invoke(cli, ["explain", "too-big", *files])
    assert (ran.exit_code, "It is larger than every card (largest 79)" in ran.stdout) == (0, True), ran.output
    given = ["what-if", "-f", "docs/examples/whole-card.yaml", "--replicas", "3", *files, "-o", "yaml"]
    answer = yaml.safe_load(CliRunner().invoke(scheduler, given).stdout)
    assert (answer["pod"], answer["fit"]) == ("default/whole-card", 3)
    assert CliRunner().invoke(cli, ["explain", "none", *files]).exit_code == 1
