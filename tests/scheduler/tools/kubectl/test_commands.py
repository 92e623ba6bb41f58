"""`kubectl gpushare`, command by command, against an API server of the test's own on loopback."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from config.protocol import names
from scheduler.tools.cli.answering import wanted
from scheduler.tools.kubectl.main import cli
from tests.support.builders import wire_node, wire_pod
from tests.support.legacy import DEFAULT, chosen
from tests.support.placing import on_card
from tests.support.servers.listing_server import NODES, PODS, Json, ListingServer, listing

LEASE: Json = {
    "metadata": {"name": "gpushare-scheduler", "namespace": "kube-system"},
    "spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": "2099-01-01T00:00:00.000000Z"},
}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
DEPLOYMENTS = "/apis/apps/v1/deployments"
READ_ONLY = (
    ["top"],
    ["top", "cluster"],
    ["top", "cards"],
    ["audit"],
    ["doctor"],
    ["adopt"],
    ["explain", "p"],
    ["defragment", "plan", "-f", "docs/examples/whole-card.yaml"],
    ["top", "pods", "-A"],
    ["version"],
    ["cordon", "a", "--dry-run"],
)


@pytest.fixture
def server() -> Iterator[ListingServer]:
    nodes = [wire_node(name, [16, 16], labels={"gpushare": "true"}) for name in ("a", "b")]
    held = wire_pod("p", 3, node="a", annotations=on_card(0, 3))
    with listing(nodes, [held]) as started:
        started.lists[LEASES] = [{**LEASE, "spec": {**LEASE["spec"], "renewTime": datetime.now(UTC).isoformat()}}]
        yield started


def run(server: ListingServer, folder: Path, *arguments: str) -> Result:
    command = [*arguments, "--kubeconfig", server.kubeconfig(folder)]
    return CliRunner(env={"KUBECONFIG": ""}).invoke(cli, command, catch_exceptions=False)


def test_top_shows_nodes_and_reads_nothing_that_it_does_not_show(server: ListingServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "top")
    assert (ran.exit_code, ran.stderr) == (0, "")
    head, a, b = ran.stdout.splitlines()
    assert head.split()[:6] == ["NODE", "CARDS", "UNITS", "REQUESTED", "FREE", "FRAGMENTED"]
    assert a.split() == ["a", "2", "32", "3", "29", "0", "16", "0", "0", "1", "advisory"]
    assert b.split() == ["b", "2", "32", "0", "32", "0", "16", "0", "0", "0", "advisory"]
    asked = {NODES, PODS, "/api/v1/namespaces/kube-system/configmaps", DEPLOYMENTS}
    assert {path for _, path in server.requests} == asked


def test_top_is_sorted_as_asked_and_json_is_the_same(server: ListingServer, tmp_path: Path) -> None:
    assert run(server, tmp_path, "top", "--sort-by", "free").stdout.splitlines()[1].startswith("b ")
    document = json.loads(run(server, tmp_path, "top", "--sort-by", "free", "-o", "json").stdout)
    assert [node["node"] for node in document["nodes"]] == ["b", "a"]
    assert document["cluster"]["units"] == 64


@pytest.mark.parametrize("arguments", READ_ONLY, ids=" ".join)
def test_what_only_reads_writes_nothing(server: ListingServer, tmp_path: Path, arguments: list[str]) -> None:
    if arguments[0] == "explain":
        server.lists[PODS] = []
    ran = run(server, tmp_path, *arguments)
    assert ran.exit_code == (1 if arguments[0] == "explain" else 0), ran.output
    assert {method for method, _ in server.requests} == {"GET"}


def test_an_audit_that_finds_something_ends_with_1(server: ListingServer, tmp_path: Path) -> None:
    assert run(server, tmp_path, "audit").stdout == "Nodes: 2, pods with GPU memory: 1. No problems found.\n"
    server.lists[PODS].append(msgspec.to_builtins(wire_pod("q", 14, node="a", annotations=on_card(0, 14))))
    ran = run(server, tmp_path, "audit")
    assert ran.exit_code == 1
    assert "card GPU-a-0 has 16 units, and 17 are booked: default/q (14), default/p (3)" in ran.stdout
    (found,) = json.loads(run(server, tmp_path, "audit", "-o", "json").stdout)["findings"]
    assert (found["check"], found["about"]) == ("overcommitted", ["node/a"])


def test_a_check_before_adoption_that_finds_something_ends_with_1(server: ListingServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "adopt")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1].endswith("No problems found.")
    old = wire_pod("old", 2, node="b", annotations=chosen(1, 2, 16), scheduler=DEFAULT)
    lost = wire_pod("lost", 2, node="b", scheduler=DEFAULT)
    server.lists[PODS] += [msgspec.to_builtins(old), msgspec.to_builtins(lost)]
    ran = run(server, tmp_path, "adopt")
    assert (ran.exit_code, "failed   without-card: 1 pod" in ran.stdout) == (1, True)
    document = json.loads(run(server, tmp_path, "adopt", "-o", "json").stdout)
    assert [(pod["pod"], pod["by"], pod["cards"]) for pod in document["nodes"][1]["pods"]] == [
        ("default/lost", "nobody", [{"index": 0, "units": 2}, {"index": 1, "units": 2}]),
        ("default/old", "extender", [{"index": 1, "units": 2}]),
    ]
    assert [card["counted"] for card in document["nodes"][1]["cards"]] == [2, 4]
    assert [(one["check"], one["about"]) for one in document["findings"]] == [
        ("without-card", ["pod/default/lost on node b"])
    ]


def test_what_keeps_a_check_from_an_answer_says_its_exit_code(server: ListingServer, tmp_path: Path) -> None:
    server.refused.add(PODS)
    ran = run(server, tmp_path, "adopt")
    assert (ran.exit_code, ran.stdout, "the right to list and watch them" in ran.stderr) == (3, "", True)
    gone = CliRunner().invoke(cli, ["adopt", "--kubeconfig", str(tmp_path / "none")])
    assert (gone.exit_code, gone.stdout) == (3, "")


def test_a_doctor_that_finds_something_ends_with_1(server: ListingServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "doctor")
    assert (ran.exit_code, "failed" in ran.stdout) == (0, False), ran.output
    server.lists[LEASES] = []
    ran = run(server, tmp_path, "doctor")
    assert ran.exit_code == 1
    assert "failed   scheduler: there is no Lease kube-system/gpushare-scheduler" in ran.stdout


def enforced(server: ListingServer, **changed: Json) -> None:
    """The policies with their bindings. changed: by name, with _ for -, what else the binding says."""
    server.lists[POLICIES] = [{"metadata": {"name": name}} for name in names.POLICIES]
    server.lists[BINDINGS] = [
        {
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"], **changed.get(name.replace("-", "_"), {})},
        }
        for name in names.POLICIES
    ]


def test_a_doctor_looks_for_the_policies_that_keep_others_from_what_was_decided(
    server: ListingServer, tmp_path: Path
) -> None:
    ran = run(server, tmp_path, "doctor")
    assert (ran.exit_code, "warning  policies: admission policies are missing" in ran.stdout) == (0, True)
    assert all(f"validatingadmissionpolicy/{name}" in ran.stdout for name in names.POLICIES)
    assert "others can change what the scheduler relies on" in ran.stdout
    enforced(server, gpushare_requests={"matchResources": {"matchPolicy": "Equivalent", "namespaceSelector": {}}})
    assert "ok       policies: 4 admission policies are enforced" in run(server, tmp_path, "doctor").stdout

    here = {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}
    enforced(server, gpushare_allocation={"validationActions": ["Warn"]}, gpushare_requests=here)
    said = run(server, tmp_path, "doctor").stdout
    assert "warning  policies: admission policies are not enforced" in said
    assert ("validatingadmissionpolicy/gpushare-allocation" in said, "gpushare-requests" in said) == (True, True)

    server.refused.add(BINDINGS)
    ran = run(server, tmp_path, "doctor")
    assert ran.exit_code == 0
    assert "unknown  unread: policies cannot be read: validatingadmissionpolicybindings is forbidden" in ran.stdout


def test_a_server_without_such_policies_is_told_so(server: ListingServer, tmp_path: Path) -> None:
    server.absent.add(POLICIES)
    assert "this API server has no ValidatingAdmissionPolicy" in run(server, tmp_path, "doctor").stdout


@pytest.mark.parametrize("year", [2020, 2099])
@pytest.mark.parametrize("at_work", [True, False])
def test_a_lease_of_another_time_is_looked_at_again(
    server: ListingServer, tmp_path: Path, year: int, *, at_work: bool
) -> None:
    """Of its holder's clock nobody knows whether it is right."""
    renewals = (f"{year}-01-01T00:00:{second:02}.000000Z" for second in count())

    def renewed() -> Json:
        spec = {**LEASE["spec"], "leaseDurationSeconds": 1, "renewTime": next(renewals)}
        return {**LEASE, "spec": spec}

    lease = renewed()
    server.made[LEASES] = lambda: [renewed() if at_work else lease]
    ran = run(server, tmp_path, "doctor")
    assert ran.exit_code == (0 if at_work else 1)
    assert ("does not renew it" in ran.stdout) is not at_work


def test_a_lease_that_cannot_be_read_again_is_not_said_to_be_old(server: ListingServer, tmp_path: Path) -> None:
    old = {**LEASE, "spec": {**LEASE["spec"], "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"}}

    def once() -> list[Json]:
        server.refused.add(LEASES)
        return [old]

    server.made[LEASES] = once
    ran = run(server, tmp_path, "doctor")
    assert (ran.exit_code, "unread: leases cannot be read" in ran.stdout) == (0, True)


def test_a_lease_that_lasts_for_years_keeps_nobody_waiting(
    server: ListingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("scheduler.tools.kubectl.diagnosing.asyncio.sleep", sleep)
    server.lists[LEASES] = [{**LEASE, "spec": {**LEASE["spec"], "leaseDurationSeconds": 2**31 - 1, "renewTime": None}}]
    assert "does not renew it" in run(server, tmp_path, "doctor").stdout
    assert max(slept) == 10.0


def test_a_doctor_says_since_when_a_plugin_is_away(server: ListingServer, tmp_path: Path) -> None:
    server.node("a")["status"]["allocatable"][names.GPU_MEM] = "0"
    plugin = {
        "metadata": {
            "name": "plugin",
            "namespace": "kube-system",
            "labels": {"app.kubernetes.io/name": "gpushare-scheduler-device-plugin"},
        },
        "spec": {"nodeName": "a", "containers": []},
        "status": {
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-23T01:02:03Z"}],
        },
    }
    server.lists[PODS].append(plugin)
    server.lists["/api/v1/namespaces/kube-system/pods"] = [plugin]
    ran = run(server, tmp_path, "doctor")
    assert ran.exit_code == 1
    assert "node/a since 2026-11-23T01:02:03Z" in ran.stdout


def test_a_card_is_cordoned_and_uncordoned(server: ListingServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "cordon", "a", "--card", "0")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout == (
        "node a: 1 of 2 cards cordoned\nnode a: card 0 (GPU-a-0) takes no new pods; its pods stay: default/p (3)\n"
    )
    assert server.node("a")["metadata"]["annotations"][names.CORDON] == "GPU-a-0"

    assert run(server, tmp_path, "uncordon", "a").stdout == (
        "node a: 1 of 2 cards uncordoned\n"
        "node a: card 0 (GPU-a-0) takes new pods again\nnode a: card 1 (GPU-a-1) was not cordoned\n"
    )
    assert names.CORDON not in server.node("a")["metadata"]["annotations"]
    assert names.INVENTORY in server.node("a")["metadata"]["annotations"]


def test_a_dry_run_says_how_many_cards_it_would_concern_and_changes_none(server: ListingServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "cordon", "node/a", "--dry-run")
    assert ran.stdout.splitlines()[:2] == ["dry run: nothing was changed", "node a: 2 of 2 cards cordoned"]
    assert [path for method, path in server.requests if method == "PATCH"] == []


def test_what_is_cordoned_already_is_not_written_again(server: ListingServer, tmp_path: Path) -> None:
    server.node("a")["metadata"]["annotations"][names.CORDON] = "GPU-a-0"
    ran = run(server, tmp_path, "cordon", "a", "--card", "GPU-a-0")
    assert (ran.exit_code, "was already cordoned" in ran.stdout) == (0, True)
    assert [path for method, path in server.requests if method == "PATCH"] == []


def test_what_others_write_meanwhile_is_kept(server: ListingServer, tmp_path: Path) -> None:
    def once(node: Json) -> None:
        if names.CORDON not in node["metadata"]["annotations"]:
            node["metadata"]["annotations"][names.CORDON] = "GPU-a-1"
            node["metadata"]["resourceVersion"] = "8"

    server.before_write = once
    assert run(server, tmp_path, "cordon", "a", "--card", "0").exit_code == 0
    assert server.node("a")["metadata"]["annotations"][names.CORDON] == "GPU-a-1,GPU-a-0"


def test_a_node_that_always_changes_is_given_up(server: ListingServer, tmp_path: Path) -> None:
    def always(node: Json) -> None:
        node["metadata"]["resourceVersion"] = str(int(node["metadata"]["resourceVersion"]) + 1)

    server.before_write = always
    ran = run(server, tmp_path, "cordon", "a")
    assert (ran.exit_code, "node a was not changed" in ran.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["cordon", "none"], 1, "kubectl gpushare: there is no node none"),
        (["cordon", "a", "--card", "7"], 1, "node a has no card 7; it has card 0 (GPU-a-0), card 1 (GPU-a-1)"),
        (["explain", "none"], 1, "there is no pod none in namespace default"),
        (["explain", "a/b/c"], 2, "expected NAME or NAMESPACE/NAME"),
        (["explain", "ml/p", "-n", "other"], 2, "expected NAME or NAMESPACE/NAME"),
        (["explain", "/p"], 2, "expected NAME or NAMESPACE/NAME"),
        (["explain", "ml/"], 2, "expected NAME or NAMESPACE/NAME"),
        (["explain", "deployment/p", "-n", "ml"], 2, "expected NAME or NAMESPACE/NAME"),
        (["explain", ""], 2, "invalid pod '': expected NAME or NAMESPACE/NAME"),
        (["explain", "x\x1b[2J"], 2, "expected NAME or NAMESPACE/NAME"),
        (["explain", "p?watch=1"], 2, "expected NAME or NAMESPACE/NAME"),
        (["explain", "p", "-n", "../../nodes"], 2, "expected NAME or NAMESPACE/NAME"),
        (["top", "everything"], 2, "no such command everything; commands: nodes, cards, pods, cluster"),
        (["top", "--sort-by", "x"], 2, "sort-by"),
        (["top", "nodes", "none"], 1, "there is no node none with GPU memory"),
        (["top", "pods", "none"], 1, "pod none does not exist in namespace default, or requests no GPU memory"),
        (["top", "pods", "-l", "=x"], 2, "--selector: '=x' is not a requirement on a label"),
        (["top", "--request-timeout", "soon"], 2, "expected a duration such as 500ms"),
        (["top", "--cluster", "cluster.yaml"], 2, "--cluster-file reads a file"),
        (["top", "--cluster", "none"], 3, "names the cluster none, which does not exist"),
        (["explain", "p", "p", "-o", "json"], 2, "-o json takes one pod, found 2"),
        (["top", "cards", "none"], 1, "there is no card or node none with GPU memory"),
        (["what-if"], 2, "expected either -f FILE or an amount, as in `kubectl gpushare what-if 20`"),
        (["what-if", "3", "-f", "x"], 2, "expected either -f FILE or an amount"),
        (["what-if", "-f", "x", "--replicas", "0"], 2, "'--replicas': expected at least 1"),
        (["what-if", "-f", "x", "--replicas", "x"], 2, "'--replicas': expected a whole number"),
    ],
)
def test_what_cannot_be_done_ends_with_its_own_code(
    server: ListingServer, tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    ran = run(server, tmp_path, *arguments)
    assert (ran.exit_code, ran.stdout) == (code, "")
    assert words in ran.stderr


def test_a_cordon_that_is_refused_changes_nothing_and_says_why(server: ListingServer, tmp_path: Path) -> None:
    server.may_write = False
    before = dict(server.node("a")["metadata"])
    ran = run(server, tmp_path, "cordon", "a")
    assert (ran.exit_code, "node a was not changed: " in ran.stderr) == (1, True)
    assert server.node("a")["metadata"] == before


@pytest.mark.parametrize("arguments", [["top"], ["audit"], ["doctor"], ["cordon", "a"], ["explain", "p"]], ids=" ".join)
def test_a_cluster_that_does_not_answer_ends_with_3(tmp_path: Path, arguments: list[str]) -> None:
    with listing([]) as server:
        file = server.kubeconfig(tmp_path)
    ran = CliRunner().invoke(cli, [*arguments, "--kubeconfig", file])
    assert (ran.exit_code, ran.stdout) == (3, "")
    assert ran.stderr.startswith("kubectl gpushare: ")


def test_nodes_that_may_not_be_read_end_with_3(server: ListingServer, tmp_path: Path) -> None:
    server.refused.add(NODES)
    ran = run(server, tmp_path, "top")
    assert (ran.exit_code, "this needs the right to list and watch them" in ran.stderr) == (3, True)


# Colour


class Out:
    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour_is_for_terminals_whose_user_wants_it(
    environment: dict[str, str], *, terminal: bool, coloured: bool
) -> None:
    assert wanted(Out(terminal=terminal), environment) is coloured  # type: ignore[arg-type]
