"""Whatever stands in nodes, pods and files, no command prints anything that a terminal would obey."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from config.clusterfile.reading import read
from config.protocol import names
from config.protocol.inventory import Health, Inventory, encode
from config.settings.mistakes import ConfigurationError
from scheduler.kube.objects import Taint
from scheduler.process.terminal import escaped_json, one_line, typed
from scheduler.program import cli
from scheduler.tools.kubectl import inspect
from scheduler.tools.kubectl.main import cli as kubectl
from tests.support.builders import UNIT_MIB, card, wire_node, wire_pod
from tests.support.placing import on_card
from tests.support.servers.hostile import HOSTILE, shows_only_text, spoiled, texts, variants
from tests.support.servers.listing_server import NODES, PODS, Json, ListingServer, listing

COMMANDS: Final = (
    ["top", "cluster"],
    ["top", "nodes"],
    ["top", "cards"],
    ["audit"],
    ["doctor"],
    ["adopt"],
    ["explain", "waits"],
    ["explain", "held"],
    ["what-if", "-f", "docs/examples/whole-card.yaml"],
    ["defragment", "plan"],
    ["top", "pods", "-A"],
    ["top", "cards", "-o", "wide"],
    ["version"],
)


def plain(wire: msgspec.Struct) -> Json:
    document: Json = msgspec.to_builtins(wire)
    return document


def inventory(text: str) -> str:
    """With the text in every free field; UUIDs are none, since they are checked."""
    made = [
        replace(card(number, 16, model=f"M{text}", health=health), reason=f"r{text}", pci=text, links={"0": text})
        for number, health in enumerate((Health.HEALTHY, Health.UNHEALTHY))
    ]
    return encode(Inventory(UNIT_MIB, f"580{text}", tuple(made)))


def nodes() -> list[Json]:
    labels = {"gpushare": "true", "zone": "z"}
    node = plain(wire_node("node", [16, 16], labels=labels, taints=(Taint("k", "v", "NoSchedule"),)))
    node["metadata"]["annotations"] |= {names.CORDON: "GPU-node-1", names.MAX_SHARERS: "2", names.HELD_UNTIL: ""}
    node["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.0", "architecture": "amd64"}
    odd = plain(wire_node("odd", [16, 16], labels={"gpushare": "true"}))
    odd["metadata"]["annotations"][names.INVENTORY] = inventory(HOSTILE)
    bad = plain(wire_node("bad", [16], labels={"gpushare": "true"}))
    document = json.loads(bad["metadata"]["annotations"][names.INVENTORY])
    document["cards"][0]["uuid"] = f"GPU-{HOSTILE}"
    bad["metadata"]["annotations"][names.INVENTORY] = json.dumps(document)
    return [node, odd, bad]


def pods() -> list[Json]:
    held = plain(wire_pod("held", 3, node="odd", annotations={**on_card(0, 3), names.CARDS: '{"0":"GPU-a-0"}'}))
    waits = plain(wire_pod("waits", 17, annotations={names.CARD_MODELS: "A", names.CARD_UUIDS: "GPU-a"}))
    waits["spec"]["nodeSelector"] = {"zone": "z"}
    waits["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: x."}
    ]
    other = plain(wire_pod("other", 2, scheduler="other", annotations={names.MEM_IDX: "0"}))
    return [held, waits, other]


@pytest.fixture(scope="module")
def hostile() -> Iterator[ListingServer]:
    with listing([]) as server:
        server.lists[NODES] = [*nodes(), *variants(nodes()[:1])]
        server.lists[PODS] = [*pods(), *variants(pods())]
        for pod in server.lists[PODS]:
            server.named[f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"] = pod
        yield server


def run(server: ListingServer, folder: Path, *arguments: str) -> Result:
    command = [*arguments, "--kubeconfig", server.kubeconfig(folder)]
    return CliRunner(env={"KUBECONFIG": "", "COLUMNS": "120"}).invoke(kubectl, command, catch_exceptions=False)


@pytest.mark.parametrize("output", ["", "json", "yaml"])
def test_no_command_prints_what_a_terminal_would_obey(hostile: ListingServer, tmp_path: Path, output: str) -> None:
    printed = ""
    for command in COMMANDS:
        ran = run(hostile, tmp_path, *command, *(("-o", output) if output else ()))
        assert shows_only_text(ran.stdout), command
        assert "\nFAKE" not in ran.stdout, command  # a line of its own
        assert shows_only_text(ran.stderr), command
        assert output != "json" or json.loads(ran.stdout)
        assert output != "yaml" or yaml.safe_load(ran.stdout)
        printed += ran.stdout + ran.stderr
    # It has come as far as that.
    assert printed.count("[2J") > len(COMMANDS)


def test_explain_prints_none_of_it_whatever_field_of_the_pod_has_it(hostile: ListingServer, tmp_path: Path) -> None:
    (of,) = (pod for pod in pods() if pod["metadata"]["name"] == "waits")
    codes = set()
    for number, path in enumerate(texts(of)):
        if path != ("metadata", "name"):
            ran = run(hostile, tmp_path, "explain", f"waits-{number}")
            assert shows_only_text(ran.stdout + ran.stderr), path
            codes.add(ran.exit_code)
    # One that is explained, and one that cannot be read.
    assert codes == {0, 1}


@pytest.mark.parametrize(
    "flags", [[], ["-d"], ["-o", "wide"], ["-o", "compact"], ["-o", "json"], ["odd"], ["x\x1b[2J"], ["--x\x1b[2J"]]
)
def test_inspect_prints_none_of_it_either(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [{**pod, "spec": {**pod["spec"], "nodeName": "odd"}} for pod in [*pods(), *variants(pods())]]
    with listing([*nodes(), *variants(nodes()[:1])], held) as server:
        server.named = {f"{NODES}/{node['metadata']['name']}": node for node in server.lists[NODES]}
        monkeypatch.setenv("KUBECONFIG", server.kubeconfig(tmp_path))
        try:
            inspect.main(flags)
        except SystemExit:
            assert "\x1b" in "".join(flags)
    printed = capsys.readouterr()
    assert shows_only_text(printed.out)
    assert shows_only_text(printed.err)


def cluster_file() -> dict[str, Any]:
    return {
        "nodes": [
            {
                "name": "n",
                "labels": {"zone": "z"},
                "taints": [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}],
                "annotations": {"a": "b"},
                "cards": [{"model": "M", "memoryMiB": 16384, "uuid": "GPU-n", "links": {"1": "NV1"}}],
            }
        ],
        "pods": [{"pod": pod} for pod in pods()],
        "faults": [{"at_s": 1, "node": "n", "card": "GPU-n", "xid": 79}],
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two cluster files: with hostile text wherever it is taken, and wherever it is a mistake."""
    taken, mistaken, folder = cluster_file(), cluster_file(), tmp_path_factory.mktemp("files")
    for path in texts(cluster_file()):
        try:
            read(written(folder / "one.yaml", spoiled(cluster_file(), path)))
        except ConfigurationError:
            mistaken = spoiled(mistaken, path)
        else:
            taken = spoiled(taken, path)
    return written(folder / "taken.yaml", taken), written(folder / "mistaken.yaml", mistaken)


def written(file: Path, document: dict[str, Any]) -> Path:
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


@pytest.mark.parametrize("flags", [[], ["--summary"], ["-o", "json"]])
def test_simulate_prints_none_of_it_wherever_it_stands_in_a_file(files: tuple[Path, Path], flags: list[str]) -> None:
    for file, code in zip(files, (0, 2), strict=True):
        ran = CliRunner().invoke(cli, ["simulate", str(file), *flags], catch_exceptions=False)
        assert (ran.exit_code, shows_only_text(ran.stdout + ran.stderr)) == (code, True), ran.stdout + ran.stderr
        assert "[2J" in ran.stdout + ran.stderr


@given(st.lists(st.text(), min_size=1))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_is_to_be_typed_is_the_same_words_in_a_shell(words: list[str]) -> None:
    assert shlex.split(typed(*words)) == words


@given(st.text())
def test_a_line_is_text_alone_and_json_keeps_its_meaning(text: str) -> None:
    assert one_line(text).isprintable()
    assert len(one_line(text)) == len(text)
    written = msgspec.json.encode({text: [text]}).decode()
    assert shows_only_text(escaped_json(written))
    assert json.loads(escaped_json(written)) == {text: [text]}
