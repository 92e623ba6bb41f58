"""A cluster that lives: the real engine, the objects that it was shown, and what it has decided for them."""

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
    """The engine wakes pods and finds no place for them, again and again."""


@dataclass(slots=True)
class LivePod:
    """A pod as the API server has it. node: "" while it waits. written: annotations of its binding."""

    plan: PodPlan
    name: str
    uid: str
    node: str = ""
    written: Texts = field(default_factory=dict)


class TrialWorld:
    """Every object by name. happened: what the engine did since the last step, for people."""

    def __init__(self, profile: Profile) -> None:
        """An empty cluster."""
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

    # What a history does

    def set_node(self, name: str, plan: NodePlan) -> None:
        """The node comes, or is another."""
        self.nodes[name] = plan
        self.engine.node_changed(self.node(name))

    def remove_node(self, name: str) -> None:
        """The node goes; its pods stay."""
        del self.nodes[name]
        self.engine.node_gone(name)

    def set_pod(self, name: str, plan: PodPlan) -> None:
        """The pod comes, or is another."""
        live = self.pods.get(name)
        if live is None:
            self._made += 1
            live = self.pods[name] = LivePod(plan, name, f"uid-{name}-{self._made}")
        live.plan = plan
        self._show(live)

    def bind(self, name: str, node: str, written: Texts) -> None:
        """Somebody else binds the pod."""
        live = self.pods[name]
        live.node, live.written = node, written
        self._show(live)

    def remove_pod(self, name: str) -> None:
        """The pod goes."""
        self.refused.discard(name)
        self.engine.pod_gone(self.pods.pop(name).uid)

    def set_namespace(self, name: str, labels: dict[str, str]) -> None:
        """The namespace comes, or has other labels."""
        self.namespaces[name] = labels
        self.engine.namespace_changed(name, labels)

    # What the engine does

    def settle(self) -> None:
        """Let the engine decide until it has nothing more to do. Raises Restless."""
        self.happened.clear()
        for _ in range(_MOST_ATTEMPTS):
            decision = self.engine.decide(self.now_s, 1)
            if decision is None:
                return
            if isinstance(decision.outcome, Placement):
                self._binding_ends(decision.outcome)
        message = f"the engine is not at rest after {_MOST_ATTEMPTS} attempts"
        raise Restless(message)

    def pass_time(self, *, always: bool = False) -> None:
        """Back-offs after refused binds end, if there are any. always: time passes although there are none."""
        if self.refused or always:
            self.refused.clear()
            self.now_s += 2 * _BACKOFF_S

    # What there is

    def pod(self, live: LivePod, *, waiting: bool = False) -> Pod:
        """As the scheduler thinks of it. waiting: as if it had no node."""
        if waiting:
            return self.reader.read(live.plan.wire(live.name, live.uid))
        return self.reader.read(live.plan.wire(live.name, live.uid, live.node, live.written))

    def node(self, name: str) -> Node:
        """As the API server has it."""
        return self.nodes[name].wire(name)

    def wire_nodes(self) -> Iterator[Node]:
        """Every node, by name."""
        return (self.node(name) for name in sorted(self.nodes))

    def bound_pods(self) -> Iterator[Pod]:
        """Every pod with a node, by name."""
        return (self.pod(self.pods[name]) for name in sorted(self.pods) if self.pods[name].node)

    def waiting_pods(self) -> Iterator[LivePod]:
        """Every pod that waits for the engine, and that neither a gate holds nor the back-off after an error."""
        waiting = (live for live in self.pods.values() if self.engine.queue.state(live.uid) in _WAITING)
        return (live for live in waiting if live.name not in self.refused)

    def fresh(self) -> Runtime:
        """The same objects, in tables that know no other; with nothing kept."""
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
            self.happened.append(f"{live.name} is to go to {placement.node}, and its bind is refused")
            self.engine.bind_failed(placement, self.now_s)
            return
        cards = ",".join(str(card.index) for card in placement.cards)
        self.happened.append(f"{live.name} goes to {placement.node}{f', card {cards}' if cards else ''}")
        live.node, live.written = placement.node, placement.annotations
        self.engine.pod_assigned(self.pod(live))
        self.engine.bound(placement)

    def _show(self, live: LivePod) -> None:
        if live.node:
            self.engine.pod_assigned(self.pod(live))
        else:
            # Its owner takes time: one that changes again and again backs off, and is woken by nothing meanwhile.
            self.pass_time(always=True)
            self.engine.pod_waiting(self.pod(live), self.now_s)
