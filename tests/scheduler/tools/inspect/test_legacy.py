"""The text of `kubectl inspect gpushare`, as the legacy command prints it, and the whole command."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from config.protocol.inventory import Inventory, decode, encode
from scheduler.tools.inspect.tables import aligned, details, summary
from tests.scheduler.tools.inspect.listed import CLUSTERS, cards, golden, node, pod, viewed
from tests.support.repository import ROOT
from tests.support.servers.listing_server import NODES, PODS, ListingServer, kubeconfig_of, listing

A = node("gpu-node-a", "30", "2", "192.168.0.71")


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_text_is_the_legacy_text_byte_for_byte(name: str) -> None:
    flags, nodes, pods = CLUSTERS[name]
    shown = viewed(nodes, pods)
    assert (details(shown) if flags else summary(shown)) == golden(name)


def test_equal_cards_in_an_inventory_give_the_legacy_text() -> None:
    _, (b, a), pods = CLUSTERS["summary"]
    announced = node("gpu-node-a", "30", "2", "192.168.0.71", inventory=cards(15, 15))
    assert announced != a
    assert summary(viewed([b, announced], pods)) == golden("summary")
    assert details(viewed([b, announced], pods)) == golden("details")


def test_cards_of_different_sizes_have_each_their_own_total() -> None:
    (_, row, *_) = summary(viewed([node("n", "96", "2", inventory=cards(16, 80))], [])).splitlines()
    assert row.split() == ["n", "unknown", "0/16", "0/80", "0/96"]


def test_a_card_stands_under_its_own_index_where_indexes_leave_gaps() -> None:
    gap = viewed([node("n", "31", "2", inventory=cards(15, None, 16))], [pod("p", "3", on="n", idx="2")])
    head, row, *_ = summary(gap).splitlines()
    assert head.split()[2:5] == [f"GPU{index}(Allocated/Total)" for index in range(3)]
    assert row.split() == ["n", "unknown", "0/15", "0/0", "3/16", "3/31"]
    assert "GPU0(Allocated)  GPU2(Allocated)" in details(gap)


def test_a_mig_instance_has_a_column_behind_those_of_whole_cards() -> None:
    split = [replace(one, units=0, reason="mig") if one.index == 1 else one for one in decode(cards(15, 15)).cards]
    instance = replace(split[0], index=2091, uuid="MIG-1", parent="GPU-1", units=5)
    announced = encode(Inventory(1024, "", (*split, instance)))
    shown = viewed([node("n", "20", "3", inventory=announced)], [pod("p", "3", on="n", idx="2091")])
    head, row, *_ = summary(shown).splitlines()
    assert head.split()[2:5] == [f"GPU{index}(Allocated/Total)" for index in (0, 1, 2091)]
    assert row.split() == ["n", "unknown", "0/15", "0/0", "3/5", "3/20"]


# In floating point 29 / 100 * 100 is 28.999999999999996, and so in the legacy command.
@pytest.mark.parametrize(
    ("part", "whole", "percent"), [(29, 100, 28), (57, 100, 56), (2, 3, 66), (1, 3, 33), (3, 3, 100)]
)
def test_percentages_are_cut_off_like_the_legacy_floating_point(part: int, whole: int, percent: int) -> None:
    shown = viewed([node("gpu-node-a", str(whole), "1")], [pod("p", str(part), idx="0")])
    assert f"{part}/{whole} ({percent}%)  \n" in summary(shown)
    assert f"{part} ({percent}%)" in details(shown)


@pytest.mark.parametrize(
    ("nodes", "unit"),
    [
        pytest.param([("a", "200", "2")], "GiB", id="100 units a card"),
        pytest.param([("a", "202", "2")], "MiB", id="101 units a card"),
        pytest.param([("a", "15", "1"), ("b", "15360", "1")], "GiB", id="the first node decides"),
        pytest.param([("a", "15360", "0"), ("b", "15", "1")], "GiB", id="the first node that has cards"),
        pytest.param([], "GiB", id="no node"),
    ],
)
def test_the_unit_is_guessed_from_the_first_node_for_all(nodes: list[tuple[str, str, str]], unit: str) -> None:
    assert f"GPU Memory({unit})\n" in summary(viewed([node(*spec) for spec in nodes], []))


def dashes(text: str) -> list[int]:
    return [len(line) for line in text.splitlines() if set(line) == {"-"}]


def test_dashes_are_as_long_as_the_first_nodes_unpadded_rows_and_some_more() -> None:
    nodes = [A, node("gpu-node-b", "15", "1")]
    pods = [pod("p", "3", on="gpu-node-b", idx="0")]
    assert dashes(summary(viewed(nodes, pods))) == [len("gpu-node-a\t192.168.0.71\t0/15\t0/15\t0/30\n") + 20]
    assert dashes(details(viewed(nodes, pods))) == [10, 10]
    assert dashes(details(viewed(nodes[1:], pods))) == [len("p\tdefault\t3\t\n") + 10]


def test_a_cluster_without_gpu_memory_has_an_empty_table() -> None:
    tail = "Allocated/Total GPU Memory In Cluster:"
    assert summary(()) == f"NAME  IPADDRESS  GPU Memory(GiB)\n\n{tail}\n0/0 (0%)  \n"
    assert details(()) == f"\n\n{tail}  0/0 (0%)  \n"


# What go/src/text/tabwriter printed with NewWriter(out, 0, 0, 2, ' ', 0).
@pytest.mark.parametrize(
    ("tabbed", "text"),
    [
        pytest.param("a\tb\n", "a  b\n", id="one cell and what follows it"),
        pytest.param("a\tb\t\nlonger\tc\t\n", "a       b  \nlonger  c  \n", id="a cell that ends a line is padded"),
        pytest.param("\tb\n", "  b\n", id="an empty cell is as wide as the padding"),
        pytest.param("a\tb\nplain\nlonger\tb\n", "a  b\nplain\nlonger  b\n", id="a line without tabs ends a block"),
        pytest.param("a\tb\tc\nd\te\nf\tggg\th\n", "a  b  c\nd  e\nf  ggg  h\n", id="each column has its own blocks"),
        pytest.param("é\tb\naa\tb\n", "é   b\naa  b\n", id="characters count, not bytes"),
    ],
)
def test_columns_are_aligned_as_gos_tabwriter_does(tabbed: str, text: str) -> None:
    assert aligned(tabbed) == text


_, NODE_LIST, POD_LIST = CLUSTERS["summary"]


@pytest.fixture
def server() -> Iterator[ListingServer]:
    with listing(NODE_LIST, POD_LIST) as started:
        for node in started.lists[NODES]:
            started.named[f"{NODES}/{node['metadata']['name']}"] = node
        yield started


def inspect(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "scheduler.tools.kubectl.inspect", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(home)} | environment
    return subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)


def at(server: ListingServer, folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return inspect(folder, *arguments, KUBECONFIG=server.kubeconfig(folder))


def test_the_command_prints_what_the_legacy_command_prints(server: ListingServer, tmp_path: Path) -> None:
    ran = at(server, tmp_path, "-d")
    assert (ran.returncode, ran.stderr, ran.stdout.decode()) == (0, b"", golden("details"))


def test_lists_are_read_in_pages_of_500_without_finished_pods(server: ListingServer, tmp_path: Path) -> None:
    at(server, tmp_path)
    selector = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
    assert server.queries == [
        (NODES, {"limit": "500"}),
        (NODES, {"limit": "500", "continue": "1"}),
        (PODS, {"limit": "500"} | selector),
        (PODS, {"limit": "500", "continue": "1"} | selector),
    ]


def test_one_node_may_be_named_before_or_after_the_flag(server: ListingServer, tmp_path: Path) -> None:
    before, after = at(server, tmp_path, "gpu-node-b", "-d"), at(server, tmp_path, "-d", "gpu-node-b")
    assert before.stdout == after.stdout
    assert b"gpu-node-b" in before.stdout
    assert b"gpu-node-a" not in before.stdout


def test_of_a_named_node_nothing_else_is_read(server: ListingServer, tmp_path: Path) -> None:
    ran = at(server, tmp_path, "gpu-node-a")
    assert b"7/30 (23%)" in ran.stdout
    assert {path for path, _ in server.queries} == {f"{NODES}/gpu-node-a", PODS}
    assert all("spec.nodeName=gpu-node-a," in query.get("fieldSelector", "") for _, query in server.queries[1:])


def configuration(folder: Path, more: str) -> str:
    file = folder / "scheduler.yaml"
    file.write_text(f"apiVersion: gpushare/v1alpha1\nkind: SchedulerConfiguration\n{more}\n", encoding="utf-8")
    return str(file)


def test_the_configuration_says_what_the_resources_are_called(tmp_path: Path) -> None:
    nodes, pods = (
        json.loads(json.dumps(listed).replace("aliyun.com/", "example.com/").replace("gpu-count", "cards"))
        for listed in (NODE_LIST, POD_LIST)
    )
    config = configuration(tmp_path, "resources: {gpuMem: example.com/gpu-mem, gpuCount: example.com/cards}")
    with listing(nodes, pods) as server:
        ran = at(server, tmp_path, "--config", config)
        without = at(server, tmp_path)
    assert (ran.stdout.decode(), ran.stderr) == (golden("summary"), b"")
    assert without.stdout.decode() != golden("summary")


def test_the_configuration_says_which_cluster_where_no_flag_does(server: ListingServer, tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    right, wrong = server.kubeconfig(tmp_path), kubeconfig_of(9, tmp_path / "wrong")
    config = configuration(tmp_path, f"clientConnection: {{kubeconfig: {right}}}")
    assert inspect(tmp_path, "--config", config, KUBECONFIG=wrong).stdout.decode() == golden("summary")
    config = configuration(tmp_path, f"clientConnection: {{kubeconfig: {wrong}, context: other}}")
    flags = ("--kubeconfig", right, "--context", "test")
    assert inspect(tmp_path, "--config", config, *flags).stdout.decode() == golden("summary")


def test_every_mistake_in_the_configuration_is_on_one_line(server: ListingServer, tmp_path: Path) -> None:
    ran = at(server, tmp_path, "--config", configuration(tmp_path, "unit: 1\nresources: {gpuMen: a}"))
    assert (ran.returncode, ran.stderr, server.requests) == (1, b"", [])
    said = ran.stdout.decode()
    assert said.startswith("Failed due to ")
    assert "unit: unknown field; " in said
    assert "resources.gpuMen: unknown field" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("secret",), "secret is forbidden", id="forbidden"),
        pytest.param(("nobody",), 'nodes "nobody" not found', id="no such node"),
        pytest.param(("--context", "other"), "there is no context other; correct it", id="no such context"),
        pytest.param(("--kubeconfig", "/dev/null/none"), "kubeconfig /dev/null/none", id="no such file"),
        pytest.param(("--kubeconfig", "/dev/null"), "/dev/null", id="an empty file"),
    ],
)
def test_errors_are_printed_like_the_legacy_command_prints_them(
    server: ListingServer, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    server.refused.add(f"{NODES}/secret")
    ran = at(server, tmp_path, *arguments)
    assert (ran.returncode, ran.stderr) == (1, b"")
    said = ran.stdout.decode()
    assert said.startswith("Failed due to ")
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize("name", ["", "..", "a,spec.nodeName=b", "a/b", "A"])
def test_what_is_no_name_of_a_node_is_not_asked_for(server: ListingServer, tmp_path: Path, name: str) -> None:
    ran = at(server, tmp_path, name)
    assert (ran.returncode, ran.stdout) == (1, f"Failed due to {name!r} is not a node name".encode())
    assert server.requests == []


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
