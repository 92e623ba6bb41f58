"""Whose reason is looked at next: of the pods that fit nowhere, who was judged longest ago.

The namespaces take turns, so that ten thousand pods of one hold up those of another by as many turns as there are
namespaces. Owned by the pods that wait. No method awaits, so each one is atomic. now_s: monotonic seconds.
"""

from collections import OrderedDict
from typing import Final

from scheduler.queue.entry import Entry
from scheduler.queue.heap import Heap

EVERY_S: Final = 10.0


class EvaluatedLongestAgo:
    """A pod is next at the earliest `EVERY_S` after it was judged."""

    def __init__(self) -> None:
        """No pods."""
        # By namespace: its pods, the one that was judged longest ago first.
        self._pods: dict[str, OrderedDict[Entry, None]] = {}
        # The namespaces whose first pod may be due, the next one first; and the others, by when it will be.
        self._turns: OrderedDict[str, None] = OrderedDict()
        self._resting: Heap[float, str] = Heap()

    def __len__(self) -> int:
        """How many pods."""
        return sum(len(pods) for pods in self._pods.values())

    def add(self, entry: Entry, now_s: float) -> None:
        """An attempt has just judged the pod."""
        entry.evaluated_s, entry.evaluated_at = now_s, None
        namespace = entry.pod.key.namespace
        pods = self._pods.get(namespace)
        if pods is None:
            pods = self._pods[namespace] = OrderedDict()
            self._resting.push(namespace, now_s + EVERY_S)
        pods[entry] = None

    def discard(self, entry: Entry) -> None:
        """The pod waits no longer; nothing when it is none of them."""
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
        """(the next pod, which is judged now, how many seconds ago it was judged last); None when none is due."""
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
