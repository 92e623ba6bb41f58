"""Nodes whose kubelet has rejected a pod at admission; similar pods avoid them for a while.

A controller replaces the pod at once, and a deterministic scheduler would send each replacement to the same node. So a
node is left out for 10 s, and twice as long after each further rejection, up to 5 minutes, until a new pod of this kind
runs there. Other nodes that would reject these pods are discovered one at a time, each by a rejection.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from cachetools import LRUCache

from scheduler.pods.pod import Pod, Template

FIRST_S: Final = 10.0
LONGEST_S: Final = 300.0
# Nodes left out at a time, over all pods, about 5 MB. Beyond this, the nodes due first are used again early.
MOST: Final = 16_384

_MOST_REASONS: Final = 32
_OTHER: Final = "other"

# Namespace, because a pod's author can name any owner; controller; name if it has no controller; requests.
Likeness: TypeAlias = tuple[str, str, str, Template]


class _Seen(NamedTuple):
    """The last rejection by a node. lasts_s: how long the node is left out after it. until_s: when that ends."""

    lasts_s: float
    until_s: float


def likeness(pod: Pod) -> Likeness:
    """Key that is equal for pods that a kubelet would treat alike."""
    return pod.key.namespace, pod.owner_uid, "" if pod.owner_uid else pod.key.name, pod.template


class RejectionLog:
    """Rejections by kubelets. counted: number of rejections by reason; read-only.

    Owned by the event loop. Times are monotonic seconds.
    """

    def __init__(self, changed: Callable[[str], None], opened: Callable[[str], None]) -> None:
        """changed: called with a node that is now left out for some pods. opened: called when it no longer is."""
        self._changed = changed
        self._opened = opened
        # By likeness and node: the kubelet's reason.
        self._reasons: dict[Likeness, dict[str, str]] = {}
        # Every `_Seen.until_s` of these nodes, including stale ones.
        self._ends: list[tuple[float, int, Likeness, str]] = []
        self._seen: LRUCache[tuple[Likeness, str], _Seen] = LRUCache(MOST)
        self._noted = 0
        self.counted: Counter[str] = Counter()

    def reasons(self, pod: Pod) -> Mapping[str, str]:
        """Map each node that is left out for the pod to its kubelet's reason."""
        return self._reasons.get(likeness(pod), _NONE) if self._reasons else _NONE

    def note(self, pod: Pod, reason: str, now_s: float) -> float:
        """Record that the node's kubelet has rejected the pod. Returns how many seconds similar pods avoid the node."""
        like, node = likeness(pod), pod.node_name
        self._noted += 1
        known = reason in self.counted or len(self.counted) < _MOST_REASONS
        self.counted[reason if known else _OTHER] += 1
        before = self._seen.get((like, node))
        if before is not None and node in self._reasons.get(like, _NONE):
            # This pod was already on its way there: it is the same failure.
            return max(0.0, before.until_s - now_s)
        again = before is not None and now_s < before.until_s + LONGEST_S
        lasts_s = min(2 * before.lasts_s, LONGEST_S) if before is not None and again else FIRST_S
        self._seen[like, node] = _Seen(lasts_s, now_s + lasts_s)
        self._reasons.setdefault(like, {})[node] = reason
        heappush(self._ends, (now_s + lasts_s, self._noted, like, node))
        while len(self._ends) > MOST:
            self._end()
        self._changed(node)
        return lasts_s

    def started(self, pod: Pod) -> None:
        """Record that the pod has started on its node, so similar pods can start there too."""
        if not self._seen:
            return
        like, node = likeness(pod), pod.node_name
        if self._seen.pop((like, node), None) is not None:
            self._use_again(like, node)

    def expire(self, now_s: float) -> None:
        """Use nodes again that have been left out for long enough."""
        while self._ends and self._ends[0][0] <= now_s:
            self._end()

    def next_s(self) -> float | None:
        """Time of the next `expire`, which may find nothing to do; None if never."""
        return self._ends[0][0] if self._ends else None

    def _end(self) -> None:
        until_s, _, like, node = heappop(self._ends)
        seen = self._seen.get((like, node))
        # Otherwise another pod has been rejected since.
        if seen is None or seen.until_s <= until_s:
            self._use_again(like, node)

    def _use_again(self, like: Likeness, node: str) -> None:
        nodes = self._reasons.get(like, {})
        if nodes.pop(node, None) is None:
            return
        if not nodes:
            del self._reasons[like]
        self._opened(node)


_NONE: Final[Mapping[str, str]] = {}
