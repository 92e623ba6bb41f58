"""A cluster in order but for what a test says, and its findings."""

from collections.abc import Sequence

import msgspec

from config.protocol import names
from scheduler.kube import objects
from scheduler.kube.leases import Lease, LeaseSpec
from scheduler.kube.versions import ServerVersion
from scheduler.pods.gpu_request import ResourceNames
from scheduler.tools.doctor.cluster_checks import diagnosed
from scheduler.tools.doctor.facts import ClusterFacts
from scheduler.tools.explain.findings import ClusterFinding, Severity
from tests.support.builders import wire_node, wire_pod

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
