"""Checks of a whole cluster for `kubectl gpushare doctor`, in the order in which a new cluster fails. Pure.

`gpushare-device-plugin doctor` checks one node from inside.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from config.protocol import inventory, names
from scheduler.kube import objects, versions
from scheduler.tools.doctor.facts import PLUGIN_LABEL, SCHEDULER_LABEL, ClusterFacts
from scheduler.tools.doctor.node_checks import START, cards, inventories, pods, states, with_memory, without_units
from scheduler.tools.explain.findings import ClusterFinding, Findings, Severity, count, of_nodes

OK, WARNING, FAILED, UNKNOWN = Severity.OK, Severity.WARNING, Severity.FAILED, Severity.UNKNOWN

_LONGEST: Final = 64


def diagnosed(facts: ClusterFacts) -> Findings:
    """Run every check."""
    found = [one for check, needs in _CHECKS if needs not in facts.unread for one in check(facts)]
    found += [
        ClusterFinding(
            check="unread", severity=UNKNOWN, message=f"{what} cannot be read: {why}", remedy="docs/explain.md, Rights"
        )
        for what, why in facts.unread.items()
    ]
    requesting = with_memory(facts)
    waiting = sum(not pod.spec.node_name for pod in requesting)
    counted = f"pods with GPU memory: {len(requesting) - waiting}, waiting: {waiting}"
    return Findings(looked_at=f"Nodes: {len(facts.nodes)}, {counted}", findings=tuple(found))


def _scheduler(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    def found(severity: Severity, message: str, remedy: str = "") -> ClusterFinding:
        return ClusterFinding(check="scheduler", severity=severity, message=message, remedy=remedy)

    if not facts.lease_name:
        yield found(UNKNOWN, "no leader is elected (leaderElection.leaderElect: false): no Lease names the leader")
        return
    lease, name = facts.lease, facts.lease_name
    if lease is None:
        yield found(FAILED, f"there is no Lease {name}: no scheduler has run here", START)
    elif not lease.spec.holder_identity:
        yield found(FAILED, f"no scheduler holds the Lease {name}: no scheduler is running", START)
    elif not facts.lease_is_renewed:
        since = f", for {facts.lease_age_s:.0f} s" if facts.lease_age_s is not None else ""
        message = f"{lease.spec.holder_identity} holds the Lease {name} but does not renew it{since}"
        yield found(FAILED, message, START)
    else:
        yield found(OK, f"{lease.spec.holder_identity} holds the Lease {name}")


def _server(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    if facts.version is None:
        return
    behaves_as = facts.version.emulated or facts.version.version
    lacking = versions.off(behaves_as, versions.OF_THE_SCHEDULER)
    for feature in lacking:
        message = f"{behaves_as}: {feature.name} is off by default before {feature.since}: {feature.without}"
        yield ClusterFinding(check="server", severity=WARNING, message=message, remedy="docs/compatibility.md")
    if not lacking:
        yield ClusterFinding(check="server", severity=OK, message=facts.version.version)


def _policies(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield findings about missing or unenforced policies: without them, other users can forge allocations."""
    remedy = "docs/operations.md, Reinstall the same version; docs/security.md, What the policies reject"
    if facts.policies is None:
        message = (
            "this API server has no ValidatingAdmissionPolicy: anyone who can write pods can take other pods' cards"
        )
        yield ClusterFinding(check="policies", severity=WARNING, message=message, remedy="Kubernetes 1.30 or newer")
        return
    missing = [name for name in names.POLICIES if name not in facts.policies]
    idle = [name for name in names.POLICIES if facts.policies.get(name) is False]
    for found, words in (
        (missing, "missing"),
        (idle, "not enforced: no binding denies violations in all namespaces"),
    ):
        if found:
            message = f"admission policies are {words}: others can change what the scheduler relies on"
            about = tuple(f"validatingadmissionpolicy/{name}" for name in found)
            yield ClusterFinding(check="policies", severity=WARNING, message=message, about=about, remedy=remedy)
    if not missing and not idle:
        yield ClusterFinding(
            check="policies", severity=OK, message=f"{len(names.POLICIES)} admission policies are enforced"
        )


def _versions(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    old: dict[str, list[objects.Node]] = {}
    for node in facts.nodes:
        said = node.status.node_info.kubelet_version[:_LONGEST] if node.status.node_info else ""
        if names.INVENTORY in (node.metadata.annotations or {}):
            for feature in versions.off(said, versions.OF_THE_KUBELET):
                old.setdefault(f"kubelet {said}: {feature.name} is off by default: {feature.without}", []).append(node)
    for message, nodes in old.items():
        yield of_nodes("versions", WARNING, message, nodes, "docs/compatibility.md")
    images = _images(facts.pods)
    if len(images) > 1:
        message = f"the programs run from {len(images)} images"
        about = tuple(f"{image[:200]}: {listed}" for image, listed in sorted(images.items()))
        remedy = "docs/operations.md, Upgrade: one image for both"
        yield ClusterFinding(check="versions", severity=WARNING, message=message, about=about, remedy=remedy)
    drivers = _drivers(facts.nodes)
    if len(drivers) > 1:
        about = tuple(
            f"driver {driver[:_LONGEST]}: {count(nodes, 'node')}" for driver, nodes in sorted(drivers.items())
        )
        yield ClusterFinding(
            check="versions", severity=OK, message=f"{len(drivers)} driver versions are in use", about=about
        )


def _images(of: Sequence[objects.PodObject]) -> Mapping[str, str]:
    """Map each image to the number of our pods that run it."""
    running: dict[str, int] = {}
    for pod in of:
        labels = pod.metadata.labels or {}
        if any(labels.get(key) == value for key, value in (PLUGIN_LABEL, SCHEDULER_LABEL)):
            for container in pod.spec.containers:
                running[container.image] = running.get(container.image, 0) + 1
    return {image: count(range(number), "pod") for image, number in running.items()}


def _drivers(nodes: Sequence[objects.Node]) -> Mapping[str, list[objects.Node]]:
    found: dict[str, list[objects.Node]] = {}
    for node in nodes:
        text = (node.metadata.annotations or {}).get(names.INVENTORY)
        if text is None:
            continue
        try:
            driver = inventory.decode(text).driver
        except inventory.InventoryError:
            continue
        found.setdefault(driver, []).append(node)
    return found


# Each check with the objects without which it reports nothing.
_CHECKS: Final[tuple[tuple[Callable[[ClusterFacts], Iterator[ClusterFinding]], str], ...]] = (
    (_scheduler, "leases"),
    (_server, "version"),
    (_policies, "policies"),
    (inventories, "nodes"),
    (states, "nodes"),
    (cards, "nodes"),
    (without_units, "nodes"),
    (_versions, "nodes"),
    (pods, "pods"),
)
