"""`defragment` on cluster files, by both of its names: what is printed, how it ends, and which cards are kept free."""

import json
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from scheduler.program import cli
from scheduler.tools.defragment.movable import kept_free
from scheduler.tools.defragment.text import Defragmentation, FragmentedUnits, Move, lines
from scheduler.tools.explain.answers import NodeAndCards
from scheduler.tools.explain.tones import as_text
from scheduler.tools.kubectl.main import cli as kubectl
from tests.support.builders import wire_node, wire_pod
from tests.support.placing import on_card
from tests.support.servers.listing_server import listing

EXAMPLES = Path("docs/examples")
HALF_USED, WHOLE_CARD = str(EXAMPLES / "half-used.yaml"), str(EXAMPLES / "whole-card.yaml")


@pytest.mark.parametrize("program", [cli, kubectl])
def test_the_plan_of_the_example(program: Typer) -> None:
    ran = CliRunner().invoke(program, ["defragment", "plan", "--cluster-file", HALF_USED, "-f", WHOLE_CARD])
    assert ran.exit_code == 0
    text = Path("docs/defragment.md").read_text()
    assert f"```text\n{ran.stdout}```" in text


def test_a_pod_for_which_there_is_no_plan_ends_with_1(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(Path(WHOLE_CARD).read_text().replace("gpu-mem: 16", "gpu-mem: 17"))
    ran = CliRunner().invoke(
        cli, ["defragment", "plan", "--cluster-file", HALF_USED, "-f", str(manifest), "-o", "json"]
    )
    assert ran.exit_code == 1
    assert (json.loads(ran.stdout)["place"], json.loads(ran.stdout)["moves"]) == (None, [])


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        pytest.param(
            ("gpu-mem: 16", "gpu-mem: 1.5"),
            "Its request is invalid: aliyun.com/gpu-mem: container train requests 1.5",
            id="request",
        ),
        pytest.param(
            ("spec:\n", "spec:\n  nodeName: n-7\n"), "Its spec.nodeName is n-7, which does not exist.", id="node"
        ),
    ],
)
def test_what_keeps_a_pod_from_any_plan_is_told(tmp_path: Path, edit: tuple[str, str], words: str) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(Path(WHOLE_CARD).read_text().replace(*edit))
    ran = CliRunner().invoke(cli, ["defragment", "plan", "--cluster-file", HALF_USED, "-f", str(manifest)])
    assert (ran.exit_code, words in ran.stdout) == (1, True), ran.stdout


DEPLOYED = """
kind: Deployment
metadata: {name: whole-card}
spec: {template: {spec: {schedulerName: gpushare-scheduler}}}
"""


def test_a_pod_without_a_namespace_is_that_of_the_context(tmp_path: Path) -> None:
    there = wire_pod("whole-card", 16, namespace="team", node="a", annotations=on_card(0, 16))
    with listing([wire_node("a", [16])], [there]) as server:
        kubeconfig = server.kubeconfig(tmp_path, "team")
        ran = CliRunner().invoke(cli, ["defragment", "plan", "--kubeconfig", kubeconfig, "-f", WHOLE_CARD])
    assert (ran.exit_code, "Pod team/whole-card fits without moves: on node a" in ran.stdout) == (0, True), ran.stdout
    assert "It is already bound there" in ran.stdout


@pytest.mark.parametrize("command", ["defragment", "what-if"])
def test_the_pods_of_a_workload_without_a_namespace_are_of_the_context(tmp_path: Path, command: str) -> None:
    manifest = tmp_path / "deployment.yaml"
    manifest.write_text(DEPLOYED)
    with listing([wire_node("a", [16])]) as server:
        asks = [command, "--kubeconfig", server.kubeconfig(tmp_path, "team"), "-f", str(manifest), "-o", "json"]
        ran = CliRunner().invoke(cli, asks)
    assert json.loads(ran.stdout)["pod"] == "team/whole-card"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(
            "priorityClassName: urgent",
            "Its PriorityClass urgent is unknown, because cluster files contain none: its priority is taken as 0.",
            id="a class",
        ),
        pytest.param(
            "priorityClassName: urgent\n  priority: 7",
            "because cluster files contain none: its priority is taken as 7, as its spec.priority says.",
            id="a class with its number",
        ),
        pytest.param("priority: 7", "", id="a number"),
        pytest.param("priorityClassName: system-node-critical", "", id="a class of every cluster"),
    ],
)
def test_cluster_files_hold_no_priority_classes(tmp_path: Path, spec: str, words: str) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(Path(WHOLE_CARD).read_text().replace("spec:\n", f"spec:\n  {spec}\n"))
    ran = CliRunner().invoke(cli, ["defragment", "plan", "--cluster-file", HALF_USED, "-f", str(manifest)])
    assert (words in ran.stdout, "PriorityClass" in ran.stdout) == (True, bool(words)), ran.stdout


def test_without_a_pod_the_fragmentation_is_told() -> None:
    ran = CliRunner().invoke(cli, ["defragment", "plan", "--cluster-file", HALF_USED, "-o", "json"])
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["fragmentation"]["free"] == 32.0


def test_a_cluster_file_is_only_planned_for() -> None:
    ran = CliRunner().invoke(cli, ["defragment", "apply", "--cluster-file", HALF_USED])
    assert (ran.exit_code, "no such option --cluster-file" in ran.stderr) == (2, True)


@pytest.mark.parametrize(("command", "code"), [("defragment plan", 0), ("what-if", 1)])
def test_the_namespace_of_the_flag_is_that_of_a_manifest_without_one(tmp_path: Path, command: str, code: int) -> None:
    given = [*command.split(), "--cluster-file", HALF_USED, "-n", "team", "-f"]
    ran = CliRunner().invoke(cli, [*given, WHOLE_CARD])
    assert (ran.exit_code, "team/whole-card" in ran.stdout) == (code, True), ran.output
    other = tmp_path / "pod.yaml"
    other.write_text(Path(WHOLE_CARD).read_text().replace("metadata:", "metadata:\n  namespace: ml"))
    ran = CliRunner().invoke(cli, [*given, str(other)])
    assert (ran.exit_code, "the manifest names namespace ml, but --namespace is team" in ran.stderr) == (1, True)


@pytest.mark.parametrize("program", [cli, kubectl])
def test_without_a_verb_a_plan_is_made(program: Typer) -> None:
    ran = CliRunner().invoke(program, ["defragment", "--cluster-file", HALF_USED, "-f", WHOLE_CARD])
    assert (ran.exit_code, "fits after 1 move" in ran.stdout) == (0, True), ran.output


def test_budgets_of_a_file_count_as_their_status_says(tmp_path: Path) -> None:
    budget = tmp_path / "budget.yaml"
    budget.write_text(
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\n"
        "spec: {selector: {matchExpressions: [{key: app, operator: In, values: [web]}]}}\n"
        "status: {disruptionsAllowed: 0}\n"
    )
    cluster = tmp_path / "cluster.yaml"
    text = Path(HALF_USED).read_text()
    cluster.write_text(text.replace("      ownerReferences", "      labels: {app: web}\n      ownerReferences"))
    given = ["defragment", "plan", "-f", WHOLE_CARD, "--cluster-file", str(cluster)]
    assert CliRunner().invoke(cli, given).exit_code == 0
    assert CliRunner().invoke(cli, [*given, "--cluster-file", str(budget)]).exit_code == 1


def test_a_mistake_in_a_cluster_file_is_told(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("nodes: [{nam: a}]\n")
    ran = CliRunner().invoke(cli, ["defragment", "plan", "--cluster-file", str(cluster)])
    assert (ran.exit_code, str(cluster) in ran.stderr) == (2, True)


def move(pod: str, at: tuple[str, int], to: tuple[str, int], why: str = "room for default/asks") -> Move:
    places = [NodeAndCards(node=node, cards={index: 4}) for node, index in (at, to)]
    return Move(pod=f"default/{pod}", owner="ReplicaSet web", at=places[0], to=places[1], why=why)


ROOM = NodeAndCards(node="a", cards={0: 8, 1: 8})


@pytest.mark.parametrize(
    ("place", "moves", "kept"),
    [
        pytest.param(None, [move("p", ("a", 0), ("b", 0))], {}, id="no pod asks"),
        pytest.param(ROOM, [move("p", ("a", 0), ("b", 0))], {"a": {0, 1}}, id="the cards of the pod"),
        pytest.param(
            ROOM,
            [move("q", ("b", 0), ("c", 0)), move("p", ("a", 0), ("b", 0))],
            {"a": {0, 1}, "b": {0}},
            id="and those of a later move to where the first one leaves",
        ),
        pytest.param(ROOM, [move("p", ("a", 0), ("a", 2))], {"a": {0, 1}}, id="not where the first one itself goes"),
        pytest.param(
            ROOM, [move("p", ("a", 0), ("a", 1))], {"a": {0}}, id="nor a card of the pod, where it goes beside it"
        ),
        pytest.param(NodeAndCards(node="a", cards={}), [move("p", ("a", 0), ("b", 0))], {}, id="it asks no card"),
    ],
)
def test_cards_that_are_kept_free(place: NodeAndCards | None, moves: list[Move], kept: dict[str, set[int]]) -> None:
    assert kept_free(place, moves) == kept


def plan(place: NodeAndCards | None, *moves: Move, fragmentation: FragmentedUnits | None = None) -> str:
    pod = "" if fragmentation else "default/asks"
    answer = Defragmentation(pod=pod, words=(), most_moves=10, place=place, moves=moves, fragmentation=fragmentation)
    return as_text(lines(answer), colour=False)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        pytest.param(
            plan(None), "Pod default/asks does not fit, and no plan of at most 10 moves was found.", id="none"
        ),
        pytest.param(plan(ROOM), "Pod default/asks fits without moves: on node a, card 0-1 (8 each).", id="fits"),
        pytest.param(
            plan(None, fragmentation=FragmentedUnits(free=9, before=4, after=4)),
            "No move lowers the fragmentation: 4 of 9 free units cannot be used by typical pods.",
            id="nothing to lower",
        ),
        pytest.param(
            plan(None, move("p", ("a", 0), ("b", 0)), fragmentation=FragmentedUnits(free=9, before=4, after=1.5)),
            "1 move reduces the memory that typical pods cannot use from 4 to 1.5 of 9 free units.",
            id="one that lowers",
        ),
    ],
)
def test_the_verdict(text: str, first: str) -> None:
    assert text.splitlines()[0] == first
