"""Checks a simulated cluster after every write, by the API server's state, not by the scheduler's.

Never reads the scheduler's tables: cards are counted from the annotations of the pods, from scratch each time.
"""

from collections.abc import Callable
from dataclasses import dataclass

from config.protocol import names
from config.protocol.inventory import Health
from scheduler.kube.objects import Node, PodObject
from scheduler.pods.gpu_request import ComputeMode, ResourceNames
from scheduler.pods.pod import Pod, PodReader
from scheduler.process.clock import Clock
from scheduler.state.cards.booking import CardShare, shares_of, written_of
from scheduler.state.cards.node_inventory import NodeInventory, read_inventory
from scheduler.state.ledger import NodeLedger, recompute
from scheduler.testing.cluster.pods import FINISHED
from scheduler.testing.cluster.store import Cursor
from scheduler.testing.cluster.world import World


@dataclass(frozen=True, slots=True)
class ObservedBinding:
    """A pod was bound to a node at `at_s`, by the checker's clock. pod: its name. shares: its cards."""

    pod: str
    node: str
    shares: tuple[CardShare, ...]
    at_s: float


@dataclass(slots=True)
class UnhealthySpell:
    """A card was unhealthy. until_s: None while it still is. Times by the checker's clock."""

    node: str
    index: int
    since_s: float
    until_s: float | None = None


class ClusterChecker:
    """Checker of a simulated cluster. Owned by the world's event loop. writes: number of writes checked.

    bound, ended, unhealthy_spells, writes: since the last `start_over`; violations: ever.
    """

    def __init__(
        self,
        world: World,
        resources: ResourceNames,
        unit_mib: int,
        *,
        clock: Clock,
        on_bound: Callable[[PodObject], None],
    ) -> None:
        """on_bound: called for each pod that was bound, after the checks."""
        self.bound: list[ObservedBinding] = []
        self.ended: list[tuple[str, float]] = []
        self.unhealthy_spells: list[UnhealthySpell] = []
        self.violations: list[str] = []
        self.writes = 0
        self._world = world
        self._resources = resources
        self._unit_mib = unit_mib
        self._clock = clock
        self._on_bound = on_bound
        self._reader = PodReader(resources)
        self._pods = Cursor(world.pods.collection)
        self._nodes = Cursor(world.nodes.collection)
        world.pods.collection.listeners.append(self._pods_written)
        world.nodes.collection.listeners.append(self._nodes_written)

    def start_over(self) -> None:
        """Clear all observations except violations."""
        self.bound.clear()
        self.ended.clear()
        self.unhealthy_spells = [spell for spell in self.unhealthy_spells if spell.until_s is None]
        self.writes = 0

    def bindings_of(self, pod: str) -> list[ObservedBinding]:
        """Return each binding of a pod with this name, the latest last."""
        return [bound for bound in self.bound if bound.pod == pod]

    def ledger(self) -> dict[str, NodeLedger]:
        """Return the bookings by node, recounted."""
        living = (self._reader.read(pod) for pod in self._world.pods if _occupies(pod))
        pods = ((pod, pod.node_name, None) for pod in living)
        return recompute(self._world.nodes, pods, self._resources, self._unit_mib)

    def _pods_written(self) -> None:
        for change in self._pods.take():
            before, after = change.before, change.after
            if after is not None and after.spec.node_name and not (before and before.spec.node_name):
                self._look_at_binding(before, after)
                self._count_cards()
                self._on_bound(after)
            elif before is not None and _occupies(before) and not (after and _occupies(after)):
                self.ended.append((before.metadata.name, self._clock.monotonic_s()))
                self._count_cards()

    def _nodes_written(self) -> None:
        for change in self._nodes.take():
            if change.after is not None:
                self._look_at_health(change.after)
            self._count_cards()

    def _look_at_health(self, node: Node) -> None:
        name = node.metadata.name
        unhealthy = _unhealthy_indexes(read_inventory(node, self._resources, self._unit_mib))
        known = {spell.index: spell for spell in self.unhealthy_spells if spell.node == name and spell.until_s is None}
        self.unhealthy_spells += [
            UnhealthySpell(name, index, self._clock.monotonic_s()) for index in sorted(unhealthy - known.keys())
        ]
        for index in known.keys() - unhealthy:
            known[index].until_s = self._clock.monotonic_s()

    def _look_at_binding(self, before: PodObject | None, after: PodObject) -> None:
        pod = self._reader.read(after)
        shares = shares_of(written_of(pod))
        self.bound.append(ObservedBinding(pod.key.name, pod.node_name, shares, self._clock.monotonic_s()))
        missing = set(names.ALLOCATION_KEYS) - set(pod.annotations)
        if before is not None and pod.template.gpu_units and missing:
            self.violations.append(f"pod {pod.key} was bound without {', '.join(sorted(missing))}")
        node = self._world.nodes.find(pod.node_name)
        if node is None:
            self.violations.append(f"pod {pod.key} was bound to {pod.node_name}, which does not exist")
            return
        inventory = read_inventory(node, self._resources, self._unit_mib)
        if before is not None:
            self._look_at_isolation(pod, inventory)
        unhealthy = _unhealthy_indexes(inventory)
        for share in shares:
            if share.index in unhealthy:
                self.violations.append(
                    f"pod {pod.key} was bound to card {share.index} of {pod.node_name}, which is unhealthy"
                )

    def _look_at_isolation(self, pod: Pod, node: NodeInventory) -> None:
        request, taken = pod.template.gpu_request, {share.index for share in shares_of(written_of(pod))}
        cards = [card for card in node.cards if card.index in taken]
        if request is not None and request.isolated and not all(card.isolation for card in cards):
            self.violations.append(f"pod {pod.key} requires isolation, but memory is not enforced on its card")
        if request is not None and request.compute_mode is not None:
            by_mps = request.compute_mode is ComputeMode.MPS
            if any((card.compute == ComputeMode.MPS) is not by_mps for card in cards):
                self.violations.append(f"pod {pod.key} requires compute mode {request.compute_mode}; its card has not")
        if len(cards) > 1 and any(card.parent for card in cards):
            self.violations.append(f"pod {pod.key} has {len(cards)} cards, and one of them is a MIG instance")

    def _count_cards(self) -> None:
        """Check that no card is overbooked, and that exclusive pods share no card."""
        self.writes += 1
        for node, entry in self.ledger().items():
            for uuid, units in entry.free.items():
                if units < 0:
                    self.violations.append(f"card {uuid} of node {node} is over-committed by {-units}")
                if entry.exclusive[uuid] and entry.holders[uuid] > 1:
                    self.violations.append(f"card {uuid} of node {node} is shared, though a pod holds it exclusively")


def _occupies(pod: PodObject) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in FINISHED


def _unhealthy_indexes(node: NodeInventory) -> set[int]:
    return {card.index for card in node.cards if card.health is Health.UNHEALTHY}
