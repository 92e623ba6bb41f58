"""Findings of `kubectl gpushare doctor` in a cluster, and what to do: scheduler, policies, versions, pods."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube import objects
from scheduler.kube.leases import Lease, LeaseSpec
from scheduler.kube.versions import ServerVersion
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.tools.doctor.cluster_checks import diagnosed
from scheduler.tools.doctor.facts import PLUGIN_LABEL, SCHEDULER_LABEL
from scheduler.tools.explain.findings import Severity, lines
from scheduler.tools.explain.tones import as_text
from scheduler.tools.kubectl.diagnosing import read_facts
from tests.scheduler.tools.doctor.checked import LABELS, LEASE, NODE, facts, found, one, program
from tests.support.builders import wire_node, wire_pod
from tests.support.explaining import NOW_S, there, waits, world
from tests.support.repository import ROOT


def kubelet(node: objects.Node, version: str) -> objects.Node:
    info = objects.NodeInfo(kubelet_version=version)
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, node_info=info))


def test_a_cluster_in_order_has_nothing_to_do() -> None:
    whole = diagnosed(facts(pods=[wire_pod("p", 3)]))
    assert {finding.severity for finding in whole.findings} == {Severity.OK}
    assert whole.clean
    assert "do: " not in as_text(lines(whole), colour=False)


def test_policies_without_which_allocations_can_be_forged_are_asked_for() -> None:
    enforced = dict.fromkeys(names.POLICIES, True)
    assert one("policies", facts(), Severity.OK).message == "4 admission policies are enforced"
    none = one("policies", facts(policies={"somebody-elses": True}), Severity.WARNING)
    assert none.about == tuple(f"validatingadmissionpolicy/{name}" for name in names.POLICIES)
    assert "others can change what the scheduler relies on" in none.message
    idle = one("policies", facts(policies=enforced | {"gpushare-allocation": False}), Severity.WARNING)
    assert (idle.about, "no binding" in idle.message) == (("validatingadmissionpolicy/gpushare-allocation",), True)
    assert "knows no ValidatingAdmissionPolicy" in one("policies", facts(policies=None), Severity.WARNING).message


@pytest.mark.parametrize(
    ("lease", "age_s", "words"),
    [
        pytest.param(None, None, "there is no Lease kube-system/gpushare-scheduler", id="none"),
        pytest.param(Lease(LEASE.metadata, LeaseSpec()), 3.0, "nobody holds the Lease", id="given up"),
        pytest.param(
            LEASE,
            300.0,
            "pod-1_x holds the Lease kube-system/gpushare-scheduler and does not renew it, for 300 s",
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


@pytest.mark.parametrize("age_s", [-30.0, 0.0, 74.0])
def test_clocks_may_differ_by_a_minute(age_s: float) -> None:
    assert one("scheduler", facts(lease_age_s=age_s), Severity.OK)


def test_no_remedy_puts_the_charts_defaults_in_the_place_of_what_is_installed() -> None:
    pods = [program("s", "image:2", SCHEDULER_LABEL), program("p", "image:1", PLUGIN_LABEL), PASSED]
    of = facts(wire_node("cpu"), NODE, pods=pods, lease=None, lease_age_s=None, policies={})
    remedies = {finding.check: finding.remedy for finding in diagnosed(of).findings}
    assert remedies["scheduler"].startswith("kubectl -n kube-system get deploy,pods")
    assert remedies["policies"].startswith("docs/operations.md, Install the same again")
    assert remedies["versions"] == "docs/operations.md, Upgrade: one image for both"
    assert "apply -k" not in "".join(remedies.values())


def test_the_parts_of_documents_that_remedies_name_are_there() -> None:
    operations = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert "\n## Install the same again\n" in operations
    assert "\n## Upgrade\n" in operations


def test_without_leader_election_nobody_can_say_who_schedules() -> None:
    assert one("scheduler", facts(lease_name=""), Severity.UNKNOWN)


def test_an_amount_that_is_none_stops_no_check() -> None:
    broken = wire_node("a", [16], labels=LABELS, more={names.GPU_MEM: "much"})
    assert one("scheduler", facts(broken), Severity.OK)


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
    assert "waiting for default-scheduler, which chooses no card" in forgotten.message
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
    assert told.message == "3 pods with GPU memory are waiting, and no scheduler is running that decides about them"
    assert told.about == ("pod/default/new", "pod/default/old", "pod/default/short")
    assert told.remedy == one("scheduler", facts(**lease)).remedy
    alone = one("pods", facts(pods=[wire_pod("new", 3)], **lease))
    assert alone.message == "1 pod with GPU memory is waiting, and no scheduler is running that decides about it"


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
