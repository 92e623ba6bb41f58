"""A live cluster: the real engine, its objects, and its decisions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement, SchedulingCycle
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.kube.objects import Node
from scheduler.plugins.pod.priority_sort import sort_key
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod, PodReader
from scheduler.queue.entry import PodState
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.tables import Tables
from scheduler.testing.rules.plans import UNIT_MIB, NodePlan, PodPlan, Texts

RESOURCES: Final = ResourceNames()
_MOST_ATTEMPTS: Final = 500
_BACKOFF_S: Final = 1.0
_WAITING: Final = frozenset({PodState.ACTIVE, PodState.UNSCHEDULABLE, PodState.BACKING_OFF})


class Restless(Exception):
    """The engine wakes pods endlessly without placing them."""


@dataclass(slots=True)
class LivePod:
    """A pod as on the API server. node: "" while it waits. written: annotations of its binding."""

    plan: PodPlan
    name: str
    uid: str
    node: str = ""
    written: Texts = field(default_factory=dict)


class TrialWorld:
    """A live cluster, with every object by name. happened: the engine's actions since the last step, as text."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.tables = Tables(RESOURCES, UNIT_MIB)
        self.runtime = Runtime(profile, self.tables)
        queue = SchedulingQueue(
            initial_backoff_s=_BACKOFF_S,
            max_backoff_s=_BACKOFF_S,
            pre_enqueue={names.SCHEDULER_NAME: profile.pre_enqueue},
            queue_sort=sort_key,
        )
        self.engine = Engine(self.tables, queue, {names.SCHEDULER_NAME: SchedulingCycle(self.runtime)})
        self.reader = PodReader(RESOURCES)
        self.nodes: dict[str, NodePlan] = {}
        self.pods: dict[str, LivePod] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.happened: list[str] = []
        self.refuse_next = False
        self.refused: set[str] = set()
        self.now_s = 0.0
        self._made = 0

    # Actions of a history

    def set_node(self, name: str, plan: NodePlan) -> None:
        self.nodes[name] = plan
        self.engine.node_changed(self.node(name))

    def remove_node(self, name: str) -> None:
        """Remove the node; its pods stay."""
        del self.nodes[name]
        self.engine.node_gone(name)

    def set_pod(self, name: str, plan: PodPlan) -> None:
        live = self.pods.get(name)
        if live is None:
            self._made += 1
            live = self.pods[name] = LivePod(plan, name, f"uid-{name}-{self._made}")
        live.plan = plan
        self._show(live)

    def bind(self, name: str, node: str, written: Texts) -> None:
        """Bind the pod as another scheduler does."""
        live = self.pods[name]
        live.node, live.written = node, written
        self._show(live)

    def remove_pod(self, name: str) -> None:
        self.refused.discard(name)
        self.engine.pod_gone(self.pods.pop(name).uid)

    def set_namespace(self, name: str, labels: dict[str, str]) -> None:
        """Create the namespace, or change its labels."""
        self.namespaces[name] = labels
        self.engine.tables.set_namespace(name, labels)

    # Actions of the engine

    def settle(self) -> None:
        """Let the engine decide until it is idle. Raises Restless."""
        self.happened.clear()
        for _ in range(_MOST_ATTEMPTS):
            decision = self.engine.decide(self.now_s, 1)
            if decision is None:
                return
            if isinstance(decision.outcome, Placement):
                self._binding_ends(decision.outcome)
        raise Restless(f"the engine has not settled after {_MOST_ATTEMPTS} attempts")

    def pass_time(self, *, always: bool = False) -> None:
        """End back-offs after rejected binds. always: let time pass even if there are none."""
        if self.refused or always:
            self.refused.clear()
            self.now_s += 2 * _BACKOFF_S

    # State

    def pod(self, live: LivePod, *, waiting: bool = False) -> Pod:
        """Return the scheduler's view of the pod. waiting: as if it had no node."""
        if waiting:
            return self.reader.read(live.plan.wire(live.name, live.uid))
        return self.reader.read(live.plan.wire(live.name, live.uid, live.node, live.written))

    def node(self, name: str) -> Node:
        """Return the API server's state of the node."""
        return self.nodes[name].wire(name)

    def wire_nodes(self) -> Iterator[Node]:
        return (self.node(name) for name in sorted(self.nodes))

    def bound_pods(self) -> Iterator[Pod]:
        """Yield every pod with a node, by name."""
        return (self.pod(self.pods[name]) for name in sorted(self.pods) if self.pods[name].node)

    def waiting_pods(self) -> Iterator[LivePod]:
        """Yield pods that wait for the engine, without a gate or a back-off after an error."""
        waiting = (live for live in self.pods.values() if self.engine.queue.state(live.uid) in _WAITING)
        return (live for live in waiting if live.name not in self.refused)

    def fresh(self) -> Runtime:
        """Return a runtime over fresh tables with the same objects; its cache is empty."""
        tables = Tables(RESOURCES, UNIT_MIB)
        for name, labels in self.namespaces.items():
            tables.set_namespace(name, labels)
        for node in self.wire_nodes():
            tables.upsert_node(node)
        for pod in self.bound_pods():
            tables.add(pod)
        return Runtime(self.profile, tables)

    def _binding_ends(self, placement: Placement) -> None:
        live = self.pods[placement.pod.key.name]
        if self.refuse_next:
            self.refuse_next = False
            self.refused.add(live.name)
            self.happened.append(f"{live.name} is placed on {placement.node}, but its bind is rejected")
            self.engine.bind_failed(placement, self.now_s)
            return
        cards = ",".join(str(card.index) for card in placement.cards)
        self.happened.append(f"{live.name} is bound to {placement.node}{f', card {cards}' if cards else ''}")
        live.node, live.written = placement.node, placement.annotations
        self.engine.pod_assigned(self.pod(live))
        self.engine.bound(placement)

    def _show(self, live: LivePod) -> None:
        if live.node:
            self.engine.pod_assigned(self.pod(live))
        else:
            # Its owner takes time: a pod that changes repeatedly backs off, and is not woken until then.
            self.pass_time(always=True)
            self.engine.pod_waiting(self.pod(live), self.now_s)
