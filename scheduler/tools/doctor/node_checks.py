"""Checks of the cards that nodes announce, and of pods, for `kubectl gpushare doctor`. Pure."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from config.protocol import inventory, names
from config.protocol.quantity import QuantityError
from scheduler.kube import objects
from scheduler.process.terminal import typed
from scheduler.state.cards.node_inventory import GpuState, NodeInventory, read_inventory
from scheduler.tools.doctor.facts import FINISHED, PLUGIN_LABEL, SCHEDULER_LABEL, ClusterFacts
from scheduler.tools.explain.findings import ClusterFinding, Severity, count, of_nodes

OK, WARNING, FAILED = Severity.OK, Severity.WARNING, Severity.FAILED

_MIG: Final = "mig"
_LONGEST: Final = 64
_MOST_REASONS: Final = 5
_OUT: Final = frozenset({inventory.Health.UNHEALTHY, inventory.Health.SUSPECT})
_Nodes: TypeAlias = list[objects.Node]
_PLUGIN_PODS: Final = ("kubectl", "-n", "kube-system", "get", "pods", "-l", "=".join(PLUGIN_LABEL))
_LOG: Final = "then kubectl -n kube-system logs POD (no pod: docs/runbooks/GpusharePluginAway.md)"
_EXAMINE: Final = "then kubectl -n kube-system exec POD -- /opt/gpushare/bin/gpushare-device-plugin doctor"


def inventories(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Report nodes with the label but without cards, and nodes with cards that no device plugin manages."""
    key, value = names.NODE_LABEL
    label, remedy = f"the label {key}={value}", typed("kubectl", "label", "node", "NODE", f"{key}={value}")
    announcing = [node for node in facts.nodes if _announces(node)]
    without = [node for node in facts.nodes if _labelled(node) and not _announces(node)]
    if without:
        message = f"{count(without, 'node')} with {label} and without {names.INVENTORY}"
        yield of_nodes("inventory", FAILED, message, without, _on_the_pod(without, _LOG))
    if stray := _stray(facts, announcing):
        message = f"{count(stray, 'node')} with {names.INVENTORY}, without {label} and without a device plugin"
        chosen = f"{remedy}, or the label that devicePlugin.selectNodesBy requires"
        yield of_nodes("inventory", WARNING, message, stray, f"{chosen}; docs/runbooks/GpusharePluginAway.md")
    if not announcing and not without:
        yield ClusterFinding(check="inventory", severity=FAILED, message=f"no node has {label}", remedy=remedy)
    elif not without:
        words = "announces its cards" if len(announcing) == 1 else "announce their cards"
        yield ClusterFinding(check="inventory", severity=OK, message=f"{count(announcing, 'node')} {words}")


def _on_the_pod(nodes: Sequence[objects.Node], then: str) -> str:
    """Return a command that finds the plugin's pod on the first node, followed by `then`, which contains POD."""
    likewise = " (likewise on each node)" if len(nodes) > 1 else ""
    find = typed(*_PLUGIN_PODS, "--field-selector", f"spec.nodeName={nodes[0].metadata.name}")
    return f"{find}{likewise}; {then}"


def _labelled(node: objects.Node) -> bool:
    key, value = names.NODE_LABEL
    return (node.metadata.labels or {}).get(key) == value


def _announces(node: objects.Node) -> bool:
    return names.INVENTORY in (node.metadata.annotations or {})


def _stray(facts: ClusterFacts, announcing: Sequence[objects.Node]) -> list[objects.Node]:
    """Return nodes without a pod of the device plugin.

    The pods show where it runs, whatever label the chart selects by.
    """
    if "pods" in facts.unread:
        return []
    key, value = PLUGIN_LABEL
    has_plugin = {
        pod.spec.node_name
        for pod in facts.pods
        if (pod.metadata.labels or {}).get(key) == value and pod.status.phase not in FINISHED
    }
    return [node for node in announcing if not _labelled(node) and node.metadata.name not in has_plugin]


def states(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Report nodes whose inventory the scheduler cannot use now."""
    away, held, withheld, broken = _Nodes(), _Nodes(), _Nodes(), dict[str, _Nodes]()
    for node, announced in _announced(facts):
        if announced.problem:
            broken.setdefault(announced.problem, _Nodes()).append(node)
        elif announced.state is GpuState.NOT_ALLOCATABLE and any(map(_offered, announced.cards)):
            away.append(node)
        elif announced.state is GpuState.NOT_REGISTERED:
            held.append(node)
        elif announced.state is GpuState.WITHHELD:
            withheld.append(node)
    for problem, nodes in broken.items():
        remedy = _on_the_pod(nodes, _LOG)
        yield of_nodes("inventory", FAILED, f"{count(nodes, 'node')}: {problem}", nodes, remedy)
    if away:
        message = f"the device plugin is not running on {count(away, 'node')}: nothing is allocatable there"
        about = tuple(_since(facts, node.metadata.name) for node in away)
        yield ClusterFinding(
            check="plugin", severity=FAILED, message=message, about=about, remedy=_on_the_pod(away, _LOG)
        )
    if held:
        message = f"the device plugin is not registered with the kubelet of {count(held, 'node')} yet"
        yield of_nodes("plugin", WARNING, message, held, f"wait for a minute; then {_on_the_pod(held, _LOG)}")
    if withheld:
        message = f"cards cannot be injected into containers on {count(withheld, 'node')}: no GPU pod is placed there"
        yield of_nodes("plugin", FAILED, message, withheld, "the node's Event GPUNotReady names the cause")


def _offered(card: inventory.Card) -> bool:
    """Return whether a running device plugin offers units of the card to the kubelet."""
    return card.health not in _OUT and card.units > 0


def _since(facts: ClusterFacts, node: str) -> str:
    return f"node/{node} since {facts.away_since[node]}" if node in facts.away_since else f"node/{node}"


def without_units(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Report healthy nodes that offer nothing, because their cards are split or others use all of their memory."""
    found, reasons = list[objects.Node](), dict[str, None]()
    for node, announced in _announced(facts):
        empty = [
            card for card in announced.cards if not card.units and (card.health not in _OUT or card.reason == _MIG)
        ]
        if announced.state is GpuState.NOT_ALLOCATABLE and empty and not any(map(_offered, announced.cards)):
            found.append(node)
            reasons.update(dict.fromkeys(card.reason[:_LONGEST] for card in empty if card.reason))
    if found:
        why = f" ({', '.join(sorted(reasons)[:_MOST_REASONS])})" if reasons else ""
        message = f"cards of {count(found, 'node')} have no units to share{why}"
        yield of_nodes(
            "cards", WARNING, message, found, "docs/nodes-and-cards.md, Reset a card, or change its MIG mode"
        )


def _announced(facts: ClusterFacts) -> Iterator[tuple[objects.Node, NodeInventory]]:
    """Yield nodes with an inventory. Invalid amounts are left to the scheduler's report."""
    for node in facts.nodes:
        if _announces(node):
            with contextlib.suppress(QuantityError):
                yield node, read_inventory(node, facts.resources, facts.unit_mib)


def cards(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Report cards that are out of use without a cordon."""
    out, nodes = list[str](), list[objects.Node]()
    for node, announced in _announced(facts):
        lost = [card for card in announced.cards if card.health in _OUT and card.reason != _MIG]
        out += [
            f"node/{node.metadata.name} card {card.index} ({card.uuid}): {card.health} {card.reason}".rstrip()
            for card in lost
        ]
        nodes += [node] if lost else []
    if out:
        message = f"{len(out)} {'card is' if len(out) == 1 else 'cards are'} unhealthy or suspect"
        remedy = _on_the_pod(nodes, _EXAMINE)
        yield ClusterFinding(check="cards", severity=WARNING, message=message, about=tuple(out), remedy=remedy)


_SCHEDULER: Final = "=".join(SCHEDULER_LABEL)
START: Final = typed("kubectl", "-n", "kube-system", "get", "deploy,pods", "-l", _SCHEDULER)

_LOGS: Final = typed("kubectl", "-n", "kube-system", "logs", "-l", _SCHEDULER, "--prefix", "--tail=100")
_DECIDING: Final = (names.ALLOCATION, names.MEM_IDX)
_DECIDED: Final = "PodScheduled"
# The scheduler writes why a pod does not fit within seconds, or within minutes while it binds a backlog of thousands.
_DECIDED_WITHIN_S: Final = 300


def with_memory(facts: ClusterFacts) -> list[objects.PodObject]:
    """Return the pods that request GPU memory and have not ended."""
    return [pod for pod in facts.pods if pod.status.phase not in FINISHED and _asks(pod, facts.resources.gpu_mem)]


def pods(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Report pods that bypass the scheduler, and pods that wait although the scheduler makes no decision about them."""
    asking = with_memory(facts)
    found = [*_strangers(facts, asking), *_for_others(facts, asking), *_undecided(facts, asking)]
    yield from found
    if not found:
        yield ClusterFinding(
            check="pods",
            severity=Severity.OK,
            message=f"{count(asking, 'pod')} with GPU memory, all handled by this scheduler",
        )


def _strangers(facts: ClusterFacts, asking: Sequence[objects.PodObject]) -> Iterator[ClusterFinding]:
    strangers = [
        f"{_name(pod)} on node {pod.spec.node_name}"
        for pod in asking
        if pod.spec.node_name and not any(key in (pod.metadata.annotations or {}) for key in _DECIDING)
    ]
    if strangers:
        message = "pods bypassed the scheduler and count against every card of their nodes"
        remedy = f"{_create_again(facts)}; deploy/manifests/scheduler-name-policy.yaml rejects such pods"
        yield ClusterFinding(
            check="pods", severity=Severity.FAILED, message=message, about=tuple(sorted(strangers)), remedy=remedy
        )


def _for_others(facts: ClusterFacts, asking: Sequence[objects.PodObject]) -> Iterator[ClusterFinding]:
    waiting: dict[str, list[str]] = {}
    for pod in asking:
        if not pod.spec.node_name and pod.spec.scheduler_name not in facts.scheduler_names:
            waiting.setdefault(pod.spec.scheduler_name, []).append(_name(pod))
    for scheduler, others in sorted(waiting.items()):
        message = f"{count(others, 'pod')} with GPU memory waiting for {scheduler[:_LONGEST]}, which assigns no cards"
        about, remedy = tuple(sorted(others)), _create_again(facts)
        yield ClusterFinding(check="pods", severity=Severity.FAILED, message=message, about=about, remedy=remedy)


def _undecided(facts: ClusterFacts, asking: Sequence[objects.PodObject]) -> Iterator[ClusterFinding]:
    """Report our pods that wait without a decision, whether or not a scheduler runs. Leaves out gated pods."""
    waiting = [
        pod
        for pod in asking
        if not pod.spec.node_name
        and pod.spec.scheduler_name in facts.scheduler_names
        and not pod.spec.scheduling_gates
        and not pod.metadata.deletion_timestamp
    ]
    severity, remedy = Severity.FAILED, START
    if facts.nobody_schedules:
        verb, them = ("is", "it") if len(waiting) == 1 else ("are", "them")
        why = f"{verb} waiting, and no scheduler that handles {them} is running"
    else:
        waiting = [pod for pod in waiting if _is_overdue(pod, facts)]
        verb = "has" if len(waiting) == 1 else "have"
        why = f"{verb} been waiting for more than {_DECIDED_WITHIN_S // 60} minutes without a decision"
        severity, remedy = Severity.WARNING, _LOGS
    if waiting:
        message, about = f"{count(waiting, 'pod')} with GPU memory {why}", tuple(sorted(map(_name, waiting)))
        yield ClusterFinding(check="pods", severity=severity, message=message, about=about, remedy=remedy)


def _is_overdue(pod: objects.PodObject, facts: ClusterFacts) -> bool:
    """Return whether the scheduler should have decided by now. False if the pod's age is unknown."""
    is_decided = any(condition.type == _DECIDED for condition in pod.status.conditions)
    return not is_decided and facts.waiting_s.get(pod.metadata.uid, 0.0) > _DECIDED_WITHIN_S


def _create_again(facts: ClusterFacts) -> str:
    ours = min(facts.scheduler_names, key=lambda name: (name != names.SCHEDULER_NAME, name))
    return f"create them again with schedulerName: {ours}"


def _name(pod: objects.PodObject) -> str:
    return f"pod/{pod.metadata.namespace}/{pod.metadata.name}"


def _asks(pod: objects.PodObject, gpu_mem: str) -> bool:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        asked = container.resources
        for amounts in (asked.limits, asked.requests) if asked else ():
            if str((amounts or {}).get(gpu_mem, 0)) != "0":
                return True
    return False
