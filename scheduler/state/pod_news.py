"""What the owner of a pod that runs should be told, noted by the tables until somebody takes it."""

from collections.abc import Iterable

from scheduler.pods.pod import Pod
from scheduler.state.cards.node_inventory import NodeInventory, newly_unhealthy
from scheduler.state.pod_record import PodRecord


class PodNews:
    """Owned by the tables."""

    def __init__(self) -> None:
        """Nothing."""
        self._problems: dict[str, tuple[Pod, str]] = {}
        self._failures: list[tuple[Pod, str]] = []

    def take_problems(self) -> list[tuple[Pod, str]]:
        """Pods whose allocation cannot be followed on their node, and why: those noticed since the last call."""
        found, self._problems = list(self._problems.values()), {}
        return found

    def take_card_failures(self) -> list[tuple[Pod, str]]:
        """Pods whose card has become unhealthy since the last call, and which it is: once for each failure."""
        found, self._failures = self._failures, []
        return found

    def note_booked(self, record: PodRecord) -> None:
        """The pod was booked on the cards of its node again."""
        if record.held is not None and record.held.booked.problem:
            self._problems[record.pod.key.uid] = (record.pod, record.held.booked.problem)

    def note_cards(self, records: Iterable[PodRecord], before: NodeInventory | None, now: NodeInventory) -> None:
        """The cards of a node, with these pods, are others; those of a new node have not failed."""
        failed = newly_unhealthy(before, now)
        for record in records if failed else ():
            if record.held is not None and not record.held.unknown:
                self._failures += [(record.pod, failed[slot]) for slot in record.held.slots if slot in failed]
