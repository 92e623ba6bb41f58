"""Judges a cluster as a whole: `kubectl gpushare doctor`, in the order in which a new one fails. Pure.

One node is looked at from inside by `gpushare-device-plugin doctor`.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from config.protocol import inventory, names
from config.protocol.quantity import QuantityError
from scheduler.explain.facts import ClusterFacts
from scheduler.explain.findings import Findings, Found, Severity
from scheduler.kube import objects, versions
from scheduler.state.cards.node_inventory import GpuState, NodeInventory, read_inventory

OK, WARNING, FAILED, UNKNOWN = Severity.OK, Severity.WARNING, Severity.FAILED, Severity.UNKNOWN

PLUGIN_LABEL: Final = ("app.kubernetes.io/name", "gpushare-scheduler-device-plugin")
SCHEDULER_LABEL: Final = ("app.kubernetes.io/name", "gpushare-scheduler")
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_OUT: Final = frozenset({inventory.Health.UNHEALTHY, inventory.Health.SUSPECT})
_DECIDING: Final = (names.ALLOCATION, names.MEM_IDX)
_LONGEST: Final = 64
_PLUGIN_LOG: Final = "kubectl -n kube-system logs ds/gpushare-scheduler-device-plugin"


def diagnosed(facts: ClusterFacts) -> Findings:
    """Every check."""
    found = [one for check, needs in _CHECKS if needs not in facts.unread for one in check(facts)]
    found += [
        Found(
            check="unread", severity=UNKNOWN, message=f"{what} cannot be read: {why}", remedy="docs/explain.md, Rights"
        )
        for what, why in facts.unread.items()
    ]
    return Findings(looked_at=f"Nodes: {len(facts.nodes)}, pods: {len(facts.pods)}", findings=tuple(found))


def _scheduler(facts: ClusterFacts) -> Iterator[Found]:
    def found(severity: Severity, message: str, remedy: str = "") -> Found:
        return Found(check="scheduler", severity=severity, message=message, remedy=remedy)

    if not facts.lease_name:
        yield found(UNKNOWN, "no leader is elected (leaderElection.leaderElect: false): no Lease says who schedules")
        return
    lease, name = facts.lease, facts.lease_name
    start = "kubectl -n kube-system get deploy,pods -l app.kubernetes.io/name=gpushare-scheduler"
    if lease is None:
        yield found(FAILED, f"there is no Lease {name}: no scheduler has run here", "kubectl apply -k deploy/manifests")
    elif not lease.spec.holder_identity:
        yield found(FAILED, f"nobody holds the Lease {name}: no scheduler is running", start)
    elif not facts.lease_is_renewed:
        since = f", for {facts.lease_age_s:.0f} s" if facts.lease_age_s is not None else ""
        message = f"{lease.spec.holder_identity} holds the Lease {name} and does not renew it{since}"
        yield found(FAILED, message, start)
    else:
        yield found(OK, f"{lease.spec.holder_identity} holds the Lease {name}")


def _server(facts: ClusterFacts) -> Iterator[Found]:
    if facts.version is None:
        return
    behaves_as = facts.version.emulated or facts.version.version
    lacking = versions.off(behaves_as, versions.OF_THE_SCHEDULER)
    for feature in lacking:
        message = f"{behaves_as}: {feature.name} is off by default before {feature.since}: {feature.without}"
        yield Found(check="server", severity=WARNING, message=message, remedy="docs/compatibility.md")
    if not lacking:
        yield Found(check="server", severity=OK, message=facts.version.version)


def _policies(facts: ClusterFacts) -> Iterator[Found]:
    """Whether others can forge what the scheduler decided."""
    remedy = "kubectl apply -k deploy/manifests; docs/security.md, What the policies refuse"
    if facts.policies is None:
        message = "this API server knows no ValidatingAdmissionPolicy: who may write pods can take cards of others"
        yield Found(check="policies", severity=WARNING, message=message, remedy="Kubernetes 1.30 or newer")
        return
    missing = [name for name in names.POLICIES if name not in facts.policies]
    idle = [name for name in names.POLICIES if facts.policies.get(name) is False]
    for found, words in (
        (missing, "not there"),
        (idle, "not enforced: no binding refuses everywhere what they do not allow"),
    ):
        if found:
            message = f"admission policies are {words}: others can change what the scheduler relies on"
            about = tuple(f"validatingadmissionpolicy/{name}" for name in found)
            yield Found(check="policies", severity=WARNING, message=message, about=about, remedy=remedy)
    if not missing and not idle:
        yield Found(check="policies", severity=OK, message=f"{len(names.POLICIES)} admission policies are enforced")


def _inventories(facts: ClusterFacts) -> Iterator[Found]:
    """Nodes with the label and without cards, and the reverse."""
    key, value = names.NODE_LABEL
    labelled = [node for node in facts.nodes if (node.metadata.labels or {}).get(key) == value]
    without = [node for node in labelled if names.INVENTORY not in (node.metadata.annotations or {})]
    if without:
        message = f"{_count(without, 'node')} with the label {key}={value} and without {names.INVENTORY}"
        yield _of_nodes("inventory", FAILED, message, without, f"{_PLUGIN_LOG}; does its pod run there?")
    stray = [
        node for node in facts.nodes if names.INVENTORY in (node.metadata.annotations or {}) and node not in labelled
    ]
    if stray:
        message = f"{_count(stray, 'node')} with {names.INVENTORY} and without the label {key}={value}"
        remedy = f"kubectl label node NODE {key}={value}, or kubectl annotate node NODE {names.INVENTORY}-"
        yield _of_nodes("inventory", WARNING, message, stray, remedy)
    if not labelled and not stray:
        message = f"no node has the label {key}={value}"
        yield Found(
            check="inventory", severity=FAILED, message=message, remedy=f"kubectl label node NODE {key}={value}"
        )
    elif not without:
        words = "announces its cards" if len(labelled) == 1 else "announce their cards"
        yield Found(check="inventory", severity=OK, message=f"{_count(labelled, 'node')} {words}")


def _states(facts: ClusterFacts) -> Iterator[Found]:
    """Nodes whose inventory says nothing that the scheduler can use now."""
    away, held, broken = list[objects.Node](), list[objects.Node](), dict[str, list[objects.Node]]()
    for node, announced in _announced(facts):
        if announced.problem:
            broken.setdefault(announced.problem, []).append(node)
        elif announced.state is GpuState.NOT_ALLOCATABLE and not all(card.health in _OUT for card in announced.cards):
            away.append(node)
        elif announced.state is GpuState.NOT_REGISTERED:
            held.append(node)
    for problem, nodes in broken.items():
        yield _of_nodes("inventory", FAILED, f"{_count(nodes, 'node')}: {problem}", nodes, _PLUGIN_LOG)
    if away:
        message = f"the device plugin is away on {_count(away, 'node')}: nothing is allocatable there"
        about = tuple(
            f"node/{name} since {facts.away_since[name]}"
            if (name := node.metadata.name) in facts.away_since
            else f"node/{name}"
            for node in away
        )
        yield Found(check="plugin", severity=FAILED, message=message, about=about, remedy=_PLUGIN_LOG)
    if held:
        message = f"the device plugin is not registered with the kubelet of {_count(held, 'node')} yet"
        yield _of_nodes("plugin", WARNING, message, held, f"wait for a minute; then {_PLUGIN_LOG}")


def _announced(facts: ClusterFacts) -> Iterator[tuple[objects.Node, NodeInventory]]:
    """The nodes with an inventory. An amount that is none is the node's own mistake: the scheduler tells it."""
    for node in facts.nodes:
        if names.INVENTORY in (node.metadata.annotations or {}):
            with contextlib.suppress(QuantityError):
                yield node, read_inventory(node, facts.resources, facts.unit_mib)


def _cards(facts: ClusterFacts) -> Iterator[Found]:
    out = list[str]()
    for node, announced in _announced(facts):
        out += [
            f"node/{node.metadata.name} card {card.index} ({card.uuid}): {card.health} {card.reason}".rstrip()
            for card in announced.cards
            if card.health in _OUT and card.reason != "mig"
        ]
    if out:
        message = f"{len(out)} {'card is' if len(out) == 1 else 'cards are'} unhealthy or suspect"
        remedy = "gpushare-device-plugin doctor on the node says what helps"
        yield Found(check="cards", severity=WARNING, message=message, about=tuple(out), remedy=remedy)


def _versions(facts: ClusterFacts) -> Iterator[Found]:
    old: dict[str, list[objects.Node]] = {}
    for node in facts.nodes:
        said = node.status.node_info.kubelet_version[:_LONGEST] if node.status.node_info else ""
        if names.INVENTORY in (node.metadata.annotations or {}):
            for feature in versions.off(said, versions.OF_THE_KUBELET):
                old.setdefault(f"kubelet {said}: {feature.name} is off by default: {feature.without}", []).append(node)
    for message, nodes in old.items():
        yield _of_nodes("versions", WARNING, message, nodes, "docs/compatibility.md")
    images = _images(facts.pods)
    if len(images) > 1:
        message = f"the programs run from {len(images)} images"
        about = tuple(f"{image[:200]}: {listed}" for image, listed in sorted(images.items()))
        remedy = "kubectl apply -k deploy/manifests with one image for both"
        yield Found(check="versions", severity=WARNING, message=message, about=about, remedy=remedy)
    drivers = _drivers(facts.nodes)
    if len(drivers) > 1:
        about = tuple(
            f"driver {driver[:_LONGEST]}: {_count(nodes, 'node')}" for driver, nodes in sorted(drivers.items())
        )
        yield Found(check="versions", severity=OK, message=f"there are {len(drivers)} drivers", about=about)


def _images(pods: Sequence[objects.Pod]) -> Mapping[str, str]:
    """Image -> how many pods of ours run from it."""
    running: dict[str, int] = {}
    for pod in pods:
        labels = pod.metadata.labels or {}
        if any(labels.get(key) == value for key, value in (PLUGIN_LABEL, SCHEDULER_LABEL)):
            for container in pod.spec.containers:
                running[container.image] = running.get(container.image, 0) + 1
    return {image: f"{count} pods" if count > 1 else "1 pod" for image, count in running.items()}


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


def _pods(facts: ClusterFacts) -> Iterator[Found]:
    """Pods that request GPU memory past the scheduler."""
    ours = min(facts.scheduler_names, key=lambda name: (name != names.SCHEDULER_NAME, name))
    strangers, waiting, asking = list[str](), dict[str, list[str]](), 0
    for pod in facts.pods:
        if pod.status.phase in _FINISHED or not _asks(pod, facts.resources.gpu_mem):
            continue
        asking += 1
        name = f"pod/{pod.metadata.namespace}/{pod.metadata.name}"
        if pod.spec.node_name:
            if not any(key in (pod.metadata.annotations or {}) for key in _DECIDING):
                strangers.append(f"{name} on node {pod.spec.node_name}")
        elif pod.spec.scheduler_name not in facts.scheduler_names:
            waiting.setdefault(pod.spec.scheduler_name, []).append(name)
    if strangers:
        message = "pods came past the scheduler and count on every card of their nodes"
        remedy = (
            f"create them again with schedulerName: {ours}; deploy/manifests/scheduler-name-policy.yaml refuses such"
        )
        yield Found(check="pods", severity=FAILED, message=message, about=tuple(sorted(strangers)), remedy=remedy)
    for scheduler, pods in sorted(waiting.items()):
        message = f"{_count(pods, 'pod')} with GPU memory waiting for {scheduler[:_LONGEST]}, which chooses no card"
        remedy = f"create them again with schedulerName: {ours}"
        yield Found(check="pods", severity=FAILED, message=message, about=tuple(sorted(pods)), remedy=remedy)
    if not strangers and not waiting:
        yield Found(check="pods", severity=OK, message=f"{_count(range(asking), 'pod')} with GPU memory, all of ours")


def _asks(pod: objects.Pod, gpu_mem: str) -> bool:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        asked = container.resources
        for amounts in (asked.limits, asked.requests) if asked else ():
            if str((amounts or {}).get(gpu_mem, 0)) != "0":
                return True
    return False


def _of_nodes(check: str, severity: Severity, message: str, nodes: Sequence[objects.Node], remedy: str) -> Found:
    about = tuple(f"node/{node.metadata.name}" for node in nodes)
    return Found(check=check, severity=severity, message=message, about=about, remedy=remedy)


def _count(found: Sequence[object], what: str) -> str:
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}"


# Each with what says nothing where it cannot be read.
_CHECKS: Final[tuple[tuple[Callable[[ClusterFacts], Iterator[Found]], str], ...]] = (
    (_scheduler, "leases"),
    (_server, "version"),
    (_policies, "policies"),
    (_inventories, "nodes"),
    (_states, "nodes"),
    (_cards, "nodes"),
    (_versions, "nodes"),
    (_pods, "pods"),
)
