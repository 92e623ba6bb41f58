"""Changes of the cards that nodes announce, reported once or kept for a message. Owned by the tables."""

from collections.abc import Iterable

from scheduler.pods.pod import Pod
from scheduler.state.cards.card_columns import Held
from scheduler.state.cards.node_inventory import GpuState, NodeInventory, newly_unhealthy


class CardChanges:
    """legacy_nodes: nodes that announce totals, and no inventory.

    away_since: nodes with cards but no allocatable gpu-mem -> the kubelet's last report when that was first seen, RFC
    3339, "" unknown.
    """

    def __init__(self) -> None:
        self.legacy_nodes: set[str] = set()
        self.away_since: dict[str, str] = {}
        self._failures: list[tuple[Pod, str]] = []

    def changed(
        self,
        node: str,
        before: NodeInventory | None,
        now: NodeInventory,
        reported_at: str,
        pods: Iterable[tuple[Pod, Held | None]],
    ) -> None:
        """Note that a node announces other cards. pods: its pods, booked on the new cards."""
        (self.legacy_nodes.discard if now.has_uuids else self.legacy_nodes.add)(node)
        if now.state is not GpuState.NOT_ALLOCATABLE:
            self.away_since.pop(node, None)
        else:
            self.away_since.setdefault(node, reported_at)
        failed = newly_unhealthy(before, now)
        for pod, held in pods if failed else ():
            if held is not None and not held.unknown:
                self._failures += [(pod, failed[slot]) for slot in held.slots if slot in failed]

    def gone(self, node: str) -> None:
        """Forget a deleted node."""
        self.legacy_nodes.discard(node)
        self.away_since.pop(node, None)

    def take_failures(self) -> list[tuple[Pod, str]]:
        """Pods whose card became unhealthy since the last call, with the card: once for each failure."""
        found, self._failures = self._failures, []
        return found
