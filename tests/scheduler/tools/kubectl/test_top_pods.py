"""`kubectl gpushare top pods`: who holds how much GPU memory, whether that is enforced, and what is used."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from typer.testing import CliRunner, Result

from config.protocol import names
from scheduler.tools.cli import node_reports
from scheduler.tools.cli.node_reports import USED, used_mib
from scheduler.tools.doctor.facts import PLUGIN_LABEL
from scheduler.tools.kubectl.main import cli
from tests.support.builders import wire_node, wire_pod
from tests.support.placing import on_card
from tests.support.servers.listing_server import PODS, Json, ListingServer, listing

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
METRICS = "/api/v1/namespaces/kube-system/pods/plugin-a:10262/proxy/metrics"
USES = f"""# HELP {USED} Memory that the container uses on the card.
# TYPE {USED} gauge
{USED}{{gpu="0",UUID="GPU-a-0",namespace="default",pod="web",container="main"}} 3.145728e+06
{USED}{{gpu="0",UUID="GPU-a-0",namespace="default",pod="web",container="side"}} 1.048576e+06
"""


def plugin(node: str) -> Json:
    """The device plugin's pod, with its configuration in a ConfigMap."""
    container = {
        "name": "plugin",
        "image": "registry.example/gpushare:1",
        "args": ["--config", "/etc/gpushare/device-plugin.yaml"],
        "ports": [{"containerPort": 10262}],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/gpushare"}],
    }
    volumes = [{"name": "kube-api-access-x7x"}, {"name": "config", "configMap": {"name": PLUGIN_LABEL[1]}}]
    labels = dict([PLUGIN_LABEL])
    meta = {"name": f"plugin-{node}", "namespace": "kube-system", "uid": f"plugin-{node}", "labels": labels}
    return {"metadata": meta, "spec": {"nodeName": node, "containers": [container], "volumes": volumes}, "status": {}}


def configured(server: ListingServer, isolation: str) -> None:
    data = {"device-plugin.yaml": f"isolation: {isolation}\n"}
    server.lists[CONFIG_MAPS] = [{"metadata": {"name": PLUGIN_LABEL[1], "namespace": "kube-system"}, "data": data}]


@pytest.fixture
def server() -> Iterator[ListingServer]:
    nodes = [wire_node(name, [16, 16], labels={"gpushare": "true"}) for name in ("a", "b")]
    pods = [
        wire_pod("web", 3, node="a", annotations=on_card(0, 3), labels={"app": "web"}),
        wire_pod("train", 8, node="b", namespace="ml", annotations=on_card(1, 8), labels={"app": "train"}),
        wire_pod("waits", 8),
    ]
    with listing(nodes, pods) as started:
        started.lists[PODS].append(plugin("a"))
        configured(started, "mps")
        started.pages[METRICS] = USES
        yield started


def run(server: ListingServer, folder: Path, *arguments: str) -> Result:
    command = ["top", "pods", *arguments, "--kubeconfig", server.kubeconfig(folder)]
    return CliRunner(env={"KUBECONFIG": ""}).invoke(cli, command, catch_exceptions=False)


def test_pods_of_the_namespace_with_what_they_hold_and_use(server: ListingServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path)
    head, row, waits = (line.split() for line in ran.stdout.splitlines())
    assert head == ["NAME", "NODE", "CARDS", "REQUESTED", "LIMIT", "ISOLATION", "USED", "STATE"]
    assert row == ["web", "a", "0", "(3)", "3", "GiB", "-", "mps", "4", "MiB", "running"]
    assert waits == ["waits", "-", "-", "8", "GiB", "-", "-", "-", "pending"]


def test_a_pod_that_waits_is_shown_but_counted_apart(server: ListingServer, tmp_path: Path) -> None:
    stranger = wire_pod("stranger", 2, scheduler="default-scheduler")
    server.lists[PODS] += [msgspec.to_builtins(one) for one in (stranger, wire_pod("cpu-only"))]
    document = json.loads(run(server, tmp_path, "-o", "json").stdout)
    assert [pod["name"] for pod in document["pods"]] == ["web"]
    assert [(pod["name"], pod["node"], pod["state"]) for pod in document["waiting"]] == [
        ("stranger", "", "pending"),
        ("waits", "", "pending"),
    ]
    assert run(server, tmp_path, "waits", "--no-headers").stdout.split()[:2] == ["waits", "-"]
    ran = run(server, tmp_path, "none")
    words = "pod none does not exist in namespace default, or requests no GPU memory"
    assert (ran.exit_code, words in ran.stderr) == (1, True), ran.output


@pytest.mark.parametrize(
    ("arguments", "scope"),
    [
        (["-n", "other"], " in namespace other"),
        (["-A", "-l", "app=none"], " in any namespace with labels app=none"),
        (["--node", "c"], " on node c in namespace default"),
    ],
)
def test_an_empty_result_names_its_scope(
    server: ListingServer, tmp_path: Path, arguments: list[str], scope: str
) -> None:
    ran = run(server, tmp_path, *arguments)
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "", f"no pods with GPU memory{scope}\n")


def test_a_limit_that_is_only_counted_is_advisory(server: ListingServer, tmp_path: Path) -> None:
    configured(server, "none")
    assert "  advisory  " in run(server, tmp_path).stdout
    # Whether the driver enforces it is in the inventory alone.
    configured(server, "driver")
    assert "  advisory  " in run(server, tmp_path).stdout
    server.lists[CONFIG_MAPS] = []
    assert "  unknown  " in run(server, tmp_path).stdout
    server.refused.add(CONFIG_MAPS)
    assert "  unknown  " in run(server, tmp_path).stdout
    # Without a configuration, nothing limits.
    server.lists[PODS][-1]["spec"]["containers"][0]["args"] = []
    assert "  advisory  " in run(server, tmp_path).stdout


def test_of_all_namespaces_their_column_is_shown(server: ListingServer, tmp_path: Path) -> None:
    shown = [row[:3] for row in map(str.split, run(server, tmp_path, "-A").stdout.splitlines())]
    assert shown == [
        ["NAMESPACE", "NAME", "NODE"],
        ["default", "web", "a"],
        ["ml", "train", "b"],
        ["default", "waits", "-"],
    ]
    (train,) = run(server, tmp_path, "-n", "ml", "--no-headers").stdout.splitlines()
    assert train.split() == ["train", "b", "1", "(8)", "8", "GiB", "-", "unknown", "-", "running"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        pytest.param(["-l", "app=web"], ["pod/web"], id="a label"),
        pytest.param(["-l", "app!=web"], ["pod/train", "pod/waits"], id="another label"),
        pytest.param(["-l", "app notin (web,api),!tier"], ["pod/train", "pod/waits"], id="labels of a set"),
        pytest.param(["--node", "b"], ["pod/train"], id="a node"),
        pytest.param(["--sort-by", "requested"], ["pod/train", "pod/web", "pod/waits"], id="sorted by request"),
        pytest.param(["--sort-by", "used"], ["pod/web", "pod/train", "pod/waits"], id="sorted by use"),
        pytest.param(["pod/train"], ["pod/train"], id="a name"),
    ],
)
def test_pods_are_chosen_and_sorted(
    server: ListingServer, tmp_path: Path, arguments: list[str], found: list[str]
) -> None:
    assert run(server, tmp_path, "-A", *arguments, "-o", "name").stdout.splitlines() == found


def test_json_and_yaml_have_all_of_it(server: ListingServer, tmp_path: Path) -> None:
    document = json.loads(run(server, tmp_path, "-o", "json").stdout)
    (web,) = document["pods"]
    assert document["unitMiB"] == 1024
    assert (web["cards"], web["uuids"], web["isolation"], web["usedMiB"]) == ({"0": 3}, ["GPU-a-0"], "mps", 4)
    assert yaml.safe_load(run(server, tmp_path, "-o", "yaml").stdout)["pods"][0]["cards"] == {0: 3}
    assert "GPU-a-0" in run(server, tmp_path, "-o", "wide").stdout


def test_metrics_that_may_not_be_read_are_unknown(server: ListingServer, tmp_path: Path) -> None:
    server.refused.add(METRICS)
    ran = run(server, tmp_path, "web")
    assert (ran.exit_code, ran.stderr, ran.stdout.split()[-2]) == (0, "", "-")


def test_a_pod_on_an_unknown_card_says_so(server: ListingServer, tmp_path: Path) -> None:
    lost = wire_pod("lost", 2, node="a", annotations={names.ALLOCATION: '{"main":{"7":2}}'})
    server.lists[PODS].append(msgspec.to_builtins(lost))
    (found,) = json.loads(run(server, tmp_path, "lost", "-o", "json").stdout)["pods"]
    assert (found["units"], found["cards"], found["state"]) == (2, {}, "unknown card")


def test_text_that_is_not_metrics_says_nothing() -> None:
    assert used_mib(USES) == {("default", "web"): 4}
    assert used_mib("<html>") == {}


def test_a_selector_that_is_invalid_is_named(server: ListingServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "-l", "app=a b")
    assert (ran.exit_code, "--selector: 'app=a b' is not a requirement on a label" in ran.stderr) == (2, True)


@pytest.mark.parametrize("name", ["ml/train", "node/train", "ml/pod/train"])
def test_a_namespace_is_not_part_of_a_name(server: ListingServer, tmp_path: Path, name: str) -> None:
    ran = run(server, tmp_path, name)
    assert (ran.exit_code, f"invalid pod {name}: expected NAME or pod/NAME" in ran.stderr) == (2, True), ran.output


def test_only_nodes_of_the_pods_are_asked(server: ListingServer, tmp_path: Path) -> None:
    server.lists[PODS].append(msgspec.to_builtins(wire_pod("other", 1, node="b", annotations=on_card(0, 1))))
    run(server, tmp_path, "other")
    assert METRICS not in {path for _, path in server.requests}


def test_plugins_that_do_not_answer_take_a_limited_time_together(
    server: ListingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.lists[PODS] += [
        {**plugin("b"), "metadata": {**plugin("b")["metadata"], "name": f"silent-{number}"}} for number in range(40)
    ]
    answered = threading.Event()
    server.before_page = lambda path: "silent" not in path or answered.wait(30.0)
    monkeypatch.setattr(node_reports, "_ALL_ANSWERS_S", 0.5)
    began_s = time.monotonic()
    ran = run(server, tmp_path, "-A", "-l", "app", "--no-headers")
    answered.set()
    assert (ran.exit_code, time.monotonic() - began_s < 6.0) == (0, True), ran.output
    assert ran.stderr == "some device plugins did not answer within 0.5 s: USED is incomplete\n"
    assert [line.split()[-3:-1] for line in ran.stdout.splitlines()] == [["4", "MiB"], ["mps", "-"]]
