"""Findings of `kubectl gpushare doctor` in a cluster in order but for what a test says, and what to do."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from config.protocol import inventory, names
from config.protocol.inventory import Card, Health
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube import objects
from scheduler.kube.leases import Lease, LeaseSpec
from scheduler.kube.versions import ServerVersion
from scheduler.pods.gpu_request import ResourceNames
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.tools.doctor.cluster_checks import diagnosed
from scheduler.tools.doctor.facts import PLUGIN_LABEL, SCHEDULER_LABEL, ClusterFacts
from scheduler.tools.explain.findings import ClusterFinding, Severity, lines
from scheduler.tools.explain.tones import as_text
from scheduler.tools.kubectl.diagnosing import read_facts
from tests.support.builders import card, wire_node, wire_pod
from tests.support.explaining import NOW_S, there, waits, world
from tests.support.repository import ROOT

LABELS = dict([names.NODE_LABEL])
LEASE = Lease(objects.ObjectMeta("gpushare-scheduler", "kube-system"), LeaseSpec("pod-1_x", 15))
NODE = wire_node("a", [16], labels=LABELS)
NODE_B = wire_node("b", [16], labels=LABELS)


def facts(*nodes: objects.Node, pods: Sequence[objects.PodObject] = (), **more: object) -> ClusterFacts:
    usual: dict[str, object] = {
        "resources": ResourceNames(),
        "unit_mib": 1024,
        "scheduler_names": frozenset({"gpushare-scheduler", "gpushare"}),
        "lease_name": "kube-system/gpushare-scheduler",
        "lease": LEASE,
        "lease_age_s": 3.0,
        "policies": dict.fromkeys(names.POLICIES, True),
        "version": ServerVersion("v1.36.3"),
    }
    return ClusterFacts(nodes=nodes or (NODE,), pods=pods, **(usual | more))  # type: ignore[arg-type]


def found(check: str, of: ClusterFacts, severity: Severity = Severity.FAILED) -> list[ClusterFinding]:
    return [one for one in diagnosed(of).findings if one.check == check and one.severity is severity]


def one(check: str, of: ClusterFacts, severity: Severity = Severity.FAILED) -> ClusterFinding:
    (single,) = found(check, of, severity)
    return single


def program(name: str, image: str, label: tuple[str, str], node: str = "a") -> objects.PodObject:
    made = wire_pod(name, namespace="kube-system", node=node, labels=dict([label]))
    (container,) = made.spec.containers
    spec = msgspec.structs.replace(made.spec, containers=(msgspec.structs.replace(container, image=image),))
    return msgspec.structs.replace(made, spec=spec)


def kubelet(node: objects.Node, version: str) -> objects.Node:
    info = objects.NodeInfo(kubelet_version=version)
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, node_info=info))


def test_a_cluster_in_order_has_nothing_to_do() -> None:
    whole = diagnosed(facts(pods=[wire_pod("p", 3)]))
    assert {finding.severity for finding in whole.findings} == {Severity.OK}
    assert whole.clean
    assert "do: " not in as_text(lines(whole), colour=False)


@pytest.mark.parametrize(
    ("lease", "age_s", "words"),
    [
        pytest.param(None, None, "there is no Lease kube-system/gpushare-scheduler", id="none"),
        pytest.param(Lease(LEASE.metadata, LeaseSpec()), 3.0, "no scheduler holds the Lease", id="given up"),
        pytest.param(
            LEASE,
            300.0,
            "pod-1_x holds the Lease kube-system/gpushare-scheduler but does not renew it, for 300 s",
            id="old",
        ),
        pytest.param(LEASE, None, "does not renew it", id="no time"),
    ],
)
def test_no_scheduler_at_work_is_the_first_finding(lease: Lease | None, age_s: float | None, words: str) -> None:
    first = diagnosed(facts(lease=lease, lease_age_s=age_s, lease_is_renewed=False)).findings[0]
    assert (first.check, first.severity) == ("scheduler", Severity.FAILED)
    assert words in first.message
    assert first.remedy


def test_no_remedy_puts_the_charts_defaults_in_the_place_of_what_is_installed() -> None:
    pods = [program("s", "image:2", SCHEDULER_LABEL), program("p", "image:1", PLUGIN_LABEL), PASSED]
    of = facts(wire_node("cpu"), NODE, pods=pods, lease=None, lease_age_s=None, policies={})
    remedies = {finding.check: finding.remedy for finding in diagnosed(of).findings}
    assert remedies["scheduler"].startswith("kubectl -n kube-system get deploy,pods")
    assert remedies["policies"].startswith("docs/operations.md, Reinstall the same version")
    assert remedies["versions"] == "docs/operations.md, Upgrade: one image for both"
    assert "apply -k" not in "".join(remedies.values())


def test_the_parts_of_documents_that_remedies_name_are_there() -> None:
    operations = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert "\n## Reinstall the same version\n" in operations
    assert "\n## Upgrade\n" in operations


@pytest.mark.parametrize(
    ("version", "lacks"),
    [
        (ServerVersion("v1.36.3"), []),
        (ServerVersion("v1.29.1"), ["WatchList", "ValidatingAdmissionPolicy"]),
        (ServerVersion("v1.36.3", "v1.29"), ["WatchList", "ValidatingAdmissionPolicy"]),
        (None, []),
    ],
)
def test_an_old_server_is_told_with_what_is_off_there(version: ServerVersion | None, lacks: list[str]) -> None:
    told = " ".join(finding.message for finding in found("server", facts(version=version), Severity.WARNING))
    assert [name for name in lacks if name in told] == lacks
    assert bool(told) is bool(lacks)


def test_old_kubelets_different_images_and_drivers_are_told() -> None:
    pods = [
        program("s", "gpushare-scheduler:2", SCHEDULER_LABEL),
        program("p-0", "gpushare-scheduler:1", PLUGIN_LABEL),
        program("p-1", "gpushare-scheduler:1", PLUGIN_LABEL),
    ]
    of = facts(kubelet(NODE, "v1.30.1"), pods=pods)
    old, images = found("versions", of, Severity.WARNING)
    assert "kubelet v1.30.1: KubeletPodResourcesGet is off by default" in old.message
    assert images.about == ("gpushare-scheduler:1: 2 pods", "gpushare-scheduler:2: 1 pod")
    assert found("versions", facts(kubelet(NODE, "v1.36.1"), pods=pods[1:]), Severity.WARNING) == []


def test_different_drivers_are_said_and_no_failure() -> None:
    def with_driver(name: str, driver: str) -> objects.Node:
        node = wire_node(name, [16], labels=LABELS)
        annotations = node.metadata.annotations or {}
        written = annotations[names.INVENTORY].replace('"driver":""', f'"driver":"{driver}"')
        metadata = msgspec.structs.replace(node.metadata, annotations={**annotations, names.INVENTORY: written})
        return msgspec.structs.replace(node, metadata=metadata)

    of = facts(with_driver("a", "550.1"), with_driver("b", "580.2"), with_driver("c", "580.2"))
    assert one("versions", of, Severity.OK).about == ("driver 550.1: 1 node", "driver 580.2: 2 nodes")


PASSED = wire_pod("passed", 3, node="a", scheduler="default-scheduler")
ALLOCATED: Mapping[str, str] = {names.MEM_IDX: "0"}


def test_pods_past_the_scheduler_and_pods_that_wait_for_another_are_found() -> None:
    others = [
        wire_pod("forgot", 3, scheduler="default-scheduler"),
        wire_pod("ours", 3),
        wire_pod("short", 3, scheduler="gpushare"),
        wire_pod("no-gpu", 0, scheduler="default-scheduler"),
        wire_pod("legacy", 3, node="a", scheduler="default-scheduler", annotations=ALLOCATED),
    ]
    past, forgotten = found("pods", facts(pods=[PASSED, *others]))
    assert past.about == ("pod/default/passed on node a",)
    assert forgotten.about == ("pod/default/forgot",)
    assert "waiting for default-scheduler, which assigns no cards" in forgotten.message
    assert "schedulerName: gpushare-scheduler" in forgotten.remedy


GATED = wire_pod("gated", 3, schedulingGates=[{"name": "g"}])
NOBODY: Mapping[str, object] = {"lease": Lease(LEASE.metadata, LeaseSpec()), "lease_is_renewed": False}


def decided(pod: objects.PodObject) -> objects.PodObject:
    condition = objects.PodCondition("PodScheduled", "False", "Unschedulable")
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=(condition,)))


@pytest.mark.parametrize(
    "lease",
    [
        pytest.param(NOBODY, id="given up"),
        pytest.param({"lease": LEASE, "lease_is_renewed": False}, id="not renewed"),
        pytest.param({"lease": None, "lease_is_renewed": False}, id="never started"),
    ],
)
def test_pods_of_ours_that_nobody_decides_about_are_found_while_no_scheduler_runs(lease: Mapping[str, Any]) -> None:
    pods = [wire_pod("new", 3), decided(wire_pod("old", 3)), wire_pod("short", 3, scheduler="gpushare"), GATED]
    told = one("pods", facts(pods=[*pods, wire_pod("runs", 3, node="a", annotations=ALLOCATED)], **lease))
    assert told.message == "3 pods with GPU memory are waiting, and no scheduler that handles them is running"
    assert told.about == ("pod/default/new", "pod/default/old", "pod/default/short")
    assert told.remedy == one("scheduler", facts(**lease)).remedy
    alone = one("pods", facts(pods=[wire_pod("new", 3)], **lease))
    assert alone.message == "1 pod with GPU memory is waiting, and no scheduler that handles it is running"


@pytest.mark.parametrize(
    ("pod", "age_s", "lease_name", "is_told"),
    [
        pytest.param(wire_pod("p", 3), 301.0, "kube-system/gpushare-scheduler", True, id="for 301 s"),
        pytest.param(wire_pod("p", 3), 299.0, "kube-system/gpushare-scheduler", False, id="for 299 s"),
        pytest.param(wire_pod("p", 3), 3600.0, "", True, id="nobody is elected"),
        pytest.param(decided(wire_pod("p", 3)), 3600.0, "kube-system/gpushare-scheduler", False, id="it was decided"),
        pytest.param(GATED, 3600.0, "kube-system/gpushare-scheduler", False, id="a gate holds it"),
        pytest.param(wire_pod("p", 3), None, "kube-system/gpushare-scheduler", False, id="nobody knows how long"),
    ],
)
def test_a_pod_without_a_decision_for_minutes_is_told_although_a_scheduler_runs(
    pod: objects.PodObject, age_s: float | None, lease_name: str, *, is_told: bool
) -> None:
    of = facts(pods=[pod], lease_name=lease_name, waiting_s={} if age_s is None else {pod.metadata.uid: age_s})
    told = found("pods", of, Severity.WARNING)
    assert [one.message for one in told] == (
        ["1 pod with GPU memory has been waiting for more than 5 minutes without a decision"] if is_told else []
    )
    assert bool(found("pods", of, Severity.OK)) is not is_told


def test_how_long_a_pod_waits_is_read_from_the_cluster() -> None:
    async def version() -> ServerVersion:
        return ServerVersion("v1.36.3")

    of = world(a=[16])
    waits(of, "p", 3)
    there(of, "runs", 3, "a", 0)
    now = datetime.fromtimestamp(NOW_S, UTC) + timedelta(seconds=90)
    read = asyncio.run(read_facts(MemoryCluster(of), SchedulerConfiguration(), version, now))
    assert read.waiting_s == {"uid-default-p": 90.0}


def test_what_may_not_be_read_is_a_finding() -> None:
    of = facts(lease=None, lease_age_s=None, unread={"leases": "leases is forbidden"})
    assert found("scheduler", of) == []
    assert one("unread", of, Severity.UNKNOWN).message == "leases cannot be read: leases is forbidden"


def test_what_was_not_read_is_not_judged() -> None:
    of = facts(unread={"nodes": "nodes is forbidden", "pods": "pods is forbidden"}, pods=[PASSED])
    assert {one.check for one in diagnosed(of).findings} == {"scheduler", "server", "policies", "unread"}


MIG = replace(card(0, 0), reason="mig")


def one_of(told: Sequence[ClusterFinding], words: str) -> ClusterFinding:
    (single,) = (each for each in told if words in each.message)
    return single


def finished(pod: objects.PodObject) -> objects.PodObject:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Failed"))


OF_THE_PLUGIN = "kubectl -n kube-system get pods -l app.kubernetes.io/name=gpushare-scheduler-device-plugin"
AWAY = wire_node("b", [16], labels=LABELS, gpu_mem=0)
FAILED_CARD = replace(card(0, 16, health=Health.UNHEALTHY), reason="xid-79")


@pytest.mark.parametrize(
    ("check", "nodes", "severity", "then"),
    [
        pytest.param("inventory", [wire_node("b", labels=LABELS)], Severity.FAILED, "logs POD", id="without inventory"),
        pytest.param(
            "inventory",
            [wire_node("b", labels=LABELS, annotations={names.INVENTORY: "{"})],
            Severity.FAILED,
            "logs POD",
            id="unreadable",
        ),
        pytest.param("plugin", [AWAY], Severity.FAILED, "logs POD", id="away"),
        pytest.param(
            "cards", [wire_node("b", [FAILED_CARD, 16], labels=LABELS)], Severity.WARNING, "plugin doctor", id="failed"
        ),
    ],
)
def test_a_remedy_names_the_pod_of_the_node_that_it_is_about(
    check: str, nodes: Sequence[objects.Node], severity: Severity, then: str
) -> None:
    told = one(check, facts(*nodes), severity)
    assert told.about[0].startswith("node/b")
    assert f"{OF_THE_PLUGIN} --field-selector spec.nodeName=b;" in told.remedy
    assert then in told.remedy
    assert "ds/" not in told.remedy


def test_a_labelled_node_without_inventory_is_found_and_the_reverse() -> None:
    of = facts(NODE, wire_node("new", labels=LABELS), wire_node("stray", [16]))
    without, stray = one("inventory", of), one("inventory", of, Severity.WARNING)
    assert (without.about, "1 node with the label" in without.message) == (("node/new",), True)
    assert (stray.about, "kubectl label node" in stray.remedy) == (("node/stray",), True)


PLUGIN = program("p", "image:1", PLUGIN_LABEL)
CHOSEN_OTHERWISE = wire_node("a", [16])


def test_the_device_plugin_may_choose_its_nodes_by_another_label() -> None:
    of = facts(CHOSEN_OTHERWISE, wire_node("cpu"), pods=[PLUGIN])
    assert diagnosed(of).clean
    assert found("inventory", of, Severity.WARNING) == []
    assert one("inventory", of, Severity.OK).message == "1 node announces its cards"


@pytest.mark.parametrize(
    ("pods", "unread", "strays"),
    [
        pytest.param([], {}, ("node/a",), id="no pod"),
        pytest.param([program("p", "image:1", PLUGIN_LABEL, node="b")], {}, ("node/a",), id="on another node"),
        pytest.param([program("s", "image:1", SCHEDULER_LABEL)], {}, ("node/a",), id="the scheduler's"),
        pytest.param([finished(PLUGIN)], {}, ("node/a",), id="one that has ended"),
        pytest.param([PLUGIN], {}, (), id="one of the plugin"),
        pytest.param([], {"pods": "pods is forbidden"}, (), id="nobody knows"),
    ],
)
def test_a_node_is_left_behind_where_no_pod_of_the_plugin_is(
    pods: Sequence[objects.PodObject], unread: Mapping[str, str], strays: tuple[str, ...]
) -> None:
    of = facts(NODE_B, CHOSEN_OTHERWISE, pods=pods, unread=unread)
    assert tuple(name for warned in found("inventory", of, Severity.WARNING) for name in warned.about) == strays
    assert one("inventory", of, Severity.OK).message == "2 nodes announce their cards"


def test_no_remedy_removes_an_inventory_that_pods_are_counted_by() -> None:
    stray = one("inventory", facts(CHOSEN_OTHERWISE), Severity.WARNING)
    assert (
        stray.message == "1 node with gpushare/inventory, without the label gpushare=true and without a device plugin"
    )
    assert f"{names.INVENTORY}-" not in stray.remedy
    assert "docs/runbooks/GpusharePluginAway.md" in stray.remedy


def test_a_cluster_without_gpu_nodes_says_which_label_is_missing() -> None:
    assert one("inventory", facts(wire_node("cpu"))).remedy == "kubectl label node NODE gpushare=true"


def test_a_node_that_cannot_bring_cards_into_containers_is_found() -> None:
    written = inventory.encode(inventory.Inventory(1024, "", (card(0, 16),), inventory.NO_INJECTION))
    missing = one("plugin", facts(NODE, wire_node("b", [16], labels=LABELS, annotations={names.INVENTORY: written})))
    assert missing.message == "cards cannot be injected into containers on 1 node: no GPU pod is placed there"
    assert (missing.about, "GPUNotReady" in missing.remedy) == (("node/b",), True)


def test_cards_that_are_out_of_use_are_no_sign_of_a_plugin_that_is_away() -> None:
    failed = replace(card(0, 16, health=Health.UNHEALTHY), reason="xid-79")
    of = facts(wire_node("a", [failed], labels=LABELS, gpu_mem=0))
    assert found("plugin", of) == []
    assert one("cards", of, Severity.WARNING).about == ("node/a card 0 (GPU-a-0): unhealthy xid-79",)


XID_79 = replace(card(1, 16, health=Health.UNHEALTHY), reason="xid-79")


@pytest.mark.parametrize(
    ("announced", "why"),
    [
        pytest.param([MIG], " (mig)", id="split"),
        pytest.param([replace(MIG, health=Health.SUSPECT)], " (mig)", id="split and suspect"),
        pytest.param([MIG, replace(MIG, index=1, uuid="GPU-a-1")], " (mig)", id="all split"),
        pytest.param([MIG, XID_79], " (mig)", id="the other is unhealthy"),
        pytest.param([card(0, 0), XID_79], "", id="used by processes outside the books"),
    ],
)
def test_cards_without_units_are_no_sign_of_a_plugin_that_is_away(announced: Sequence[Card], why: str) -> None:
    of = facts(wire_node("a", announced, labels=LABELS, gpu_mem=0), NODE_B)
    assert found("plugin", of) == []
    told = one_of(found("cards", of, Severity.WARNING), "no units")
    assert told.message == f"cards of 1 node have no units to share{why}"
    assert told.about == ("node/a",)
    assert diagnosed(of).clean


def test_a_card_with_units_beside_one_in_mig_mode_says_that_the_plugin_is_away() -> None:
    of = facts(wire_node("a", [MIG, card(1, 16)], labels=LABELS, gpu_mem=0))
    assert one("plugin", of).about == ("node/a",)
    assert found("cards", of, Severity.WARNING) == []
