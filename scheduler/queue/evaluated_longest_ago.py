"""Order of re-evaluation: the unschedulable pod whose last evaluation is longest ago comes next.

Namespaces take turns: ten thousand pods of one namespace delay those of another by one turn per namespace. Owned by the
unschedulable pods. No method awaits, so each one is atomic. now_s: monotonic seconds.
"""

from collections import OrderedDict
from typing import Final

from scheduler.queue.entry import Entry
from scheduler.queue.heap import Heap

EVERY_S: Final = 10.0


class EvaluatedLongestAgo:
    """A pod rests for at least `EVERY_S` between two evaluations."""

    def __init__(self) -> None:
        # By namespace: its pods, longest ago first.
        self._pods: dict[str, OrderedDict[Entry, None]] = {}
        # Namespaces whose first pod may be due, in turn; and the others, by due time.
        self._turns: OrderedDict[str, None] = OrderedDict()
        self._resting: Heap[float, str] = Heap()

    def __len__(self) -> int:
        return sum(len(pods) for pods in self._pods.values())

    def add(self, entry: Entry, now_s: float) -> None:
        """An attempt just evaluated the pod."""
        entry.evaluated_s, entry.evaluated_at = now_s, None
        namespace = entry.pod.key.namespace
        pods = self._pods.get(namespace)
        if pods is None:
            pods = self._pods[namespace] = OrderedDict()
            self._resting.push(namespace, now_s + EVERY_S)
        pods[entry] = None

    def discard(self, entry: Entry) -> None:
        """Remove a pod that no longer waits; no effect if it is absent."""
        namespace = entry.pod.key.namespace
        pods = self._pods.get(namespace)
        if pods is None or entry not in pods:
            return
        del pods[entry]
        if not pods:
            del self._pods[namespace]
            self._turns.pop(namespace, None)
            self._resting.discard(namespace)

    def take(self, now_s: float) -> tuple[Entry, float] | None:
        """(next pod, seconds since its last evaluation); its evaluation is now. None if none is due."""
        for namespace in self._resting.pop_until(now_s):
            self._turns[namespace] = None
        while self._turns:
            namespace, _ = self._turns.popitem(last=False)
            pods = self._pods[namespace]
            entry = next(iter(pods))
            evaluated_s = entry.evaluated_s
            if evaluated_s + EVERY_S > now_s:
                self._resting.push(namespace, evaluated_s + EVERY_S)
                continue
            entry.evaluated_s = now_s
            pods.move_to_end(entry)
            self._turns[namespace] = None
            return entry, now_s - evaluated_s
        return None
