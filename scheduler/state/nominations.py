"""Nominations of pods without a node: kube-scheduler's nominated pods.

    absent --nominate--> KEPT --remove--> absent         (placed, deleted, or its nomination cleared)
                          |  ^
                          seen_by: booked only for pods of its priority or a lower one

A pod with victims, or one that another scheduler nominated, counts on its node for pods of equal or lower priority. A
pod of higher priority, and the pod itself, see the node without it. The tables show one such view at a time. Pods are
decided by priority, so the view changes by few nominations from one pod to the next. If many would have to change for a
pod of higher priority, only the conflicting ones do. The others make no difference to the pod
(docs/develop/decisions/0034), and preemption excludes them row by row.
kube-scheduler filters twice, with and without the nominated pods of a node: otherwise a rule might accept a pod because
of a nominated one that has not arrived (`RunFilterPluginsWithNominatedPods`). Here such rules ignore nominated pods
(docs/develop/decisions/0034).
Owned by the event loop. No method awaits, so each one is atomic.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from itertools import chain
from math import inf
from typing import Final

import msgspec

from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare, chosen, is_exclusive, unknown, written_of
from scheduler.state.columns.arrays import Int64Array
from scheduler.state.conflicting_nominations import conflicting_nominations
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

# Further nominations are ignored: every decision for a pod of another priority may have to change the view of all.
MOST_NOMINATIONS: Final = 1024
_MOST_IN_TURN: Final = 16
# Takes a millisecond.
MOST_MOVED: Final = 64


def _nobody_knows(_pod: Pod) -> None:
    return None


class Nomination(msgspec.Struct, eq=False, kw_only=True):
    """Nomination of one pod. record: its booking. victims: UIDs of the pods that must leave first.

    waited_s: how long the pod had waited when it got a reservation (a nomination without victims); None if it has
    victims. decided: True if this scheduler decided it, so that the pod's status follows; False if it comes from the
    status. shown: whether it is booked now.
    """

    record: PodRecord
    victims: frozenset[str]
    waited_s: float | None = None
    decided: bool
    shown: bool = False

    @property
    def pod(self) -> Pod:
        return self.record.pod

    @property
    def node(self) -> str:
        return self.record.node

    @property
    def reserved(self) -> bool:
        """Whether it is a reservation: the pod waits for pods to leave, see `scheduler.core.reservations`."""
        return self.waited_s is not None

    @property
    def lacks_cards(self) -> bool:
        """Whether it counts against every card of its node, because its cards are unknown."""
        return bool(self.record.written.units) and not self.record.written.decided

    @property
    def order(self) -> tuple[int, str]:
        """Sort key: priority, then UID."""
        return self.pod.priority, self.pod.key.uid


class Nominations:
    """Nominations by UID of the pod. version: changes when a nomination is added or removed.

    views: number of entries in the change log that come only from switching views; read-only. reserved: the one
    reservation at each priority; read-only.
    """

    def __init__(
        self,
        tables: Tables,
        *,
        least_of_row: Callable[[Pod], Int64Array | None] = _nobody_knows,
        most_moved: int = MOST_MOVED,
    ) -> None:
        """No nominations.

        least_of_row: int64[amounts], a pod's minimum request; None if its rules read other rows, too. most_moved: for a
        pod of higher priority, up to this many nominations are hidden, whether they conflict or not; may be set.
        """
        self._tables = tables
        self._least_of_row = least_of_row
        self.most_moved = most_moved
        # The last view; used again if nothing has changed since and the pod requests the same.
        self._looked: Hashable = None
        self._hidden: dict[str, Nomination] = {}
        self.version = 0
        self.views = 0
        self.reserved: dict[int, Nomination] = {}
        self._kept: dict[str, Nomination] = {}
        self._waits_for: dict[str, set[str]] = {}  # UID of a victim -> UIDs of the pods for which it is evicted
        self._on: dict[str, dict[str, Nomination]] = {}
        self._order: list[tuple[int, str]] = []
        # UIDs of pods whose nominated node does not exist, or did not exist when the nomination came.
        self._nowhere: OrderedDict[str, None] = OrderedDict()
        # By priority and namespace: UIDs, latest last.
        self._of_priority: dict[int, dict[str, dict[str, None]]] = {}
        # Priority of the pod whose view the tables show: nominations of at least this priority are booked.
        self._priority: float = -inf

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def full(self) -> bool:
        """Whether a new nomination requires dropping another."""
        return len(self._kept) >= MOST_NOMINATIONS

    def full_for(self, pod: Pod) -> bool:
        """Whether no nomination can be added for the pod, even by dropping another one."""
        return self.full and self.gives_way_to(pod) is None

    def gives_way_to(self, pod: Pod) -> Nomination | None:
        """The nomination to drop for the pod if the limit is reached; None if there is none.

        First choice: a nomination to a node that does not exist. Otherwise, the latest
        nomination of the lowest priority in the namespace that has the most of them, but only for a pod of higher
        priority, or of the same priority if its namespace would still have fewer.
        """
        if (nowhere := self._first_nowhere()) is not None:
            return nowhere
        if not self._order or pod.priority < (lowest := self._order[0][0]):
            return None
        of_lowest = self._of_priority[lowest]
        most = max(of_lowest.values(), key=len)
        if pod.priority == lowest and len(of_lowest.get(pod.key.namespace, ())) + 1 >= len(most):
            return None
        return self._kept[next(reversed(most))]

    def of(self, uid: str) -> Nomination | None:
        """The nomination of a pod."""
        return self._kept.get(uid)

    def on(self, node: str) -> list[Nomination]:
        """Nominations to a node."""
        return list(self._on.get(node, {}).values())

    def by_node(self, *, without: str) -> Iterator[tuple[str, int]]:
        """Yield (node, number of its nominations). without: UID of a pod whose own nomination does not count."""
        return ((node, len(here) - (without in here)) for node, here in self._on.items())

    def goes(self, uid: str) -> bool:
        """Whether the pod is a victim of a nominated pod."""
        return bool(self._waits_for.get(uid))

    def shown(self, pod: Pod) -> None:
        """Record the nomination in a pod's status. Our own decisions win, because the status lags behind them."""
        kept, said = self.of(pod.key.uid), pod.nominated_node
        if kept is not None and (kept.decided or kept.node == said):
            return
        if said:
            self.nominate(pod, said, None)
        else:
            self.remove(pod.key.uid)

    def nominate(
        self,
        pod: Pod,
        node: str,
        shares: tuple[CardShare, ...] | None,
        victims: Collection[str] = (),
        *,
        waited_s: float | None = None,
    ) -> Nomination | None:
        """Nominate the pod to a node, replacing its earlier nomination. None if there are too many nominations.

        shares: its cards, if we have decided; None if only its status names the node. victims: UIDs of pods to evict
        first. waited_s: see Nomination; this pod then has the only reservation at its priority.
        """
        self.remove(pod.key.uid)
        if self.full:
            return None
        if shares is None:
            written = unknown(written_of(pod))
        else:
            there = node in self._tables.row_of
            written = chosen(pod, shares, self._tables.inventory(node).unit_mib if there else 0)
        self.version += 1
        record = PodRecord(
            pod=pod, node=node, written=written, exclusive=is_exclusive(pod), assumed=False, nominated=True
        )
        kept = self._kept[pod.key.uid] = Nomination(
            record=record, victims=frozenset(victims), waited_s=waited_s, decided=shares is not None
        )
        if kept.reserved:
            self.reserved[pod.priority] = kept
        self._on.setdefault(node, {})[pod.key.uid] = kept
        for victim in victims:
            self._waits_for.setdefault(victim, set()).add(pod.key.uid)
            self._mark(victim)
        if node not in self._tables.row_of:
            self._nowhere[pod.key.uid] = None
        insort(self._order, kept.order)
        of_priority = self._of_priority.setdefault(pod.priority, {})
        of_priority.setdefault(pod.key.namespace, {})[pod.key.uid] = None
        self._hidden[pod.key.uid] = kept
        self._show(kept, shown=pod.priority >= self._priority)
        return kept

    def remove(self, uid: str) -> Nomination | None:
        """Remove the nomination and return it."""
        kept = self._kept.pop(uid, None)
        if kept is None:
            return None
        self.version += 1
        if kept.reserved:
            del self.reserved[kept.pod.priority]
        del self._order[bisect_left(self._order, kept.order)]
        self._hidden.pop(uid, None)
        self._nowhere.pop(uid, None)
        self._leave_namespace(kept.pod)
        on_node = self._on[kept.node]
        del on_node[uid]
        if not on_node:
            del self._on[kept.node]
        for victim in kept.victims:
            waiting = self._waits_for.get(victim, set())
            waiting.discard(uid)
            if not waiting:
                self._waits_for.pop(victim, None)
            self._mark(victim)
        if kept.shown:
            self._tables.hide(kept.record, for_good=True)
        else:
            # It is not booked now, because the pod decided last did not see it; other pods did see it.
            self._tables.open_again(kept.record)
        return kept

    def pod_gone(self, uid: str) -> list[Pod]:
        """Record a deleted pod. Returns the pods for which it was the last victim."""
        waiting = [self._kept[other] for other in sorted(self._waits_for.pop(uid, ()))]
        return [kept.pod for kept in waiting if self._is_free(kept)]

    def in_turn(self, node: str) -> tuple[list[Pod], list[Pod]]:
        """Return (pods without remaining victims, the others) among pods nominated to the node: a few, round-robin.

        The others may fit before their victims leave. Reservations are left out, because many pods may leave there.
        """
        here, free, others = self._on.get(node, {}), list[Pod](), list[Pod]()
        for kept in here.values():
            if not kept.reserved:
                (free if self._is_free(kept) else others).append(kept.pod)
        found = free[:_MOST_IN_TURN], others[:_MOST_IN_TURN]
        for pod in chain(*found):
            here[pod.key.uid] = here.pop(pod.key.uid)
        return found

    def cards_serve(self, kept: Nomination) -> bool:
        """Whether the nominated cards can still be allocated to the pod, or are unknown."""
        row, written = self._tables.row_of.get(kept.node), kept.record.written
        if kept.lacks_cards or not written.units:
            return row is not None
        return row is not None and self._tables.cards.can_be_allocated(row, written)

    @contextmanager
    def seen_by(self, pod: Pod) -> Iterator[None]:
        """Show the tables as this pod sees them, for the `with` block."""
        self._see(pod)
        own = self._kept.get(pod.key.uid)
        if own is not None:
            self._show(own, shown=False)
        try:
            yield
        finally:
            if own is not None and self._kept.get(pod.key.uid) is own:
                self._show(own, shown=True)

    def _first_nowhere(self) -> Nomination | None:
        while self._nowhere:
            kept = self._kept.get(next(iter(self._nowhere)))
            if kept is not None and kept.node not in self._tables.row_of:
                return kept
            self._nowhere.popitem(last=False)
        return None

    def _leave_namespace(self, pod: Pod) -> None:
        of_priority = self._of_priority[pod.priority]
        own = of_priority[pod.key.namespace]
        del own[pod.key.uid]
        if not own:
            del of_priority[pod.key.namespace]
        if not of_priority:
            del self._of_priority[pod.priority]

    def _mark(self, victim: str) -> None:
        record = self._tables.record(victim)
        if record is not None:
            record.going = self.goes(victim)

    def _is_free(self, kept: Nomination) -> bool:
        return all(self._tables.record(victim) is None for victim in kept.victims)

    def _see(self, pod: Pod) -> None:
        self._priority = pod.priority
        for kept in [kept for kept in self._hidden.values() if kept.pod.priority >= pod.priority]:
            self._show(kept, shown=True)
        lower = bisect_left(self._order, (pod.priority, ""))
        looks = (pod.scheduler_name, pod.template, pod.priority, bool(pod.volumes.claims))
        if lower == len(self._hidden) or (self._tables.changes.version, *looks) == self._looked:
            return
        shown = [self._kept[uid] for _, uid in self._order[:lower] if uid not in self._hidden]
        minimum = None if len(shown) <= self.most_moved else self._least_of_row(pod)
        if minimum is not None:
            records = conflicting_nominations(self._tables, pod, minimum, [kept.record for kept in shown])
            shown = [self._kept[record.pod.key.uid] for record in records]
        for kept in shown:
            self._show(kept, shown=False)
        self._looked = (self._tables.changes.version, *looks)

    def _show(self, kept: Nomination, *, shown: bool) -> None:
        if kept.shown is shown:
            return
        kept.shown, before = shown, self._tables.changes.version
        if shown:
            del self._hidden[kept.pod.key.uid]
            self._tables.show(kept.record)
        else:
            self._hidden[kept.pod.key.uid] = kept
            self._tables.hide(kept.record, for_good=False)
        self.views += self._tables.changes.version - before
