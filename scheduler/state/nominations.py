"""Nominations of pods without a node: kube-scheduler's nominated pods.

    absent --nominate--> KEPT --remove--> absent         (placed, deleted, or its nomination cleared)
                          |  ^
                          seen_by: booked only for pods of its priority or a lower one

A pod with victims, or one that another scheduler nominated, counts on its node for pods of equal or lower priority. A
pod of higher priority, and the pod itself, see the node without it. The tables show one such view at a time. Pods are
decided by priority, so the view changes by few nominations from one pod to the next.
kube-scheduler filters twice, with and without the nominated pods of a node: otherwise a rule might accept a pod because
of a nominated one that has not arrived (`RunFilterPluginsWithNominatedPods`). Here such rules ignore nominated pods
(docs/develop/decisions/0034).
Owned by the event loop. No method awaits, so each one is atomic.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

import msgspec

from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare, chosen, is_exclusive, unknown, written_of
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

# A decision for a pod of another priority may have to change the view of all, which takes a millisecond.
MOST_NOMINATIONS: Final = 64
MOST_OF_A_NAMESPACE: Final = 32


class Nomination(msgspec.Struct, eq=False, kw_only=True):
    """Nomination of one pod. record: its booking. victims: UIDs of the pods that must leave first.

    waited_s: how long the pod had waited when it got a reservation (a nomination without victims); None if it has
    victims. until_s: when the reservation expires. decided: True if this scheduler decided it, so that the pod's status
    follows; False if it comes from the status. shown: whether it is booked now.
    """

    record: PodRecord
    victims: frozenset[str]
    waited_s: float | None = None
    until_s: float = inf
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


class Nominations:
    """Nominations by UID of the pod. version: changes when a nomination is added or removed.

    views: number of entries in the change log that come only from switching views; read-only. reserved: the one
    reservation at each priority; read-only.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.version = 0
        self.views = 0
        self.reserved: dict[int, Nomination] = {}
        self._kept: dict[str, Nomination] = {}
        self._waits_for: dict[str, set[str]] = {}  # UID of a victim -> UIDs of the pods for which it is evicted
        self._on: dict[str, dict[str, Nomination]] = {}
        # Priority of the pod whose view the tables show: nominations of at least this priority are booked.
        self._priority: float = -inf

    def __len__(self) -> int:
        return len(self._kept)

    def closed(self) -> dict[str, float]:
        """Highest priority that gets no nomination now, by namespace; under "" for namespaces that are not listed."""
        return {namespace: min(map(self._rank, its)) for namespace, its in self._full().items()}

    def full_for(self, pod: Pod) -> bool:
        """Whether no nomination can be added for the pod, even by dropping another one."""
        return bool(self._rivals(pod)) and self.gives_way_to(pod) is None

    def gives_way_to(self, pod: Pod) -> Nomination | None:
        """The nomination to drop for the pod if a limit is reached; None if there is none.

        It is one of lower priority, or one to a node that does not exist.
        """
        lowest = min(reversed(self._rivals(pod)), key=self._rank, default=None)
        return None if lowest is None or self._rank(lowest) >= pod.priority else lowest

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
        until_s: float = inf,
    ) -> Nomination | None:
        """Nominate the pod to a node, replacing its earlier nomination. None if there are too many nominations.

        shares: its cards, if we have decided; None if only its status names the node. victims: UIDs of pods to evict
        first. waited_s, until_s: see Nomination; this pod then has the only reservation at its priority.
        """
        self.remove(pod.key.uid)
        if self._rivals(pod):
            return None
        if shares is None:
            written = unknown(written_of(pod))
        else:
            there = node in self._tables.row_of
            written = chosen(pod, shares, self._tables.inventory(node).unit_mib if there else 0)
        record = PodRecord(
            pod=pod, node=node, written=written, exclusive=is_exclusive(pod), assumed=False, nominated=True
        )
        self.version += 1
        kept = self._kept[pod.key.uid] = Nomination(
            record=record,
            victims=frozenset(victims),
            waited_s=waited_s,
            until_s=until_s,
            decided=shares is not None,
        )
        if kept.reserved:
            self.reserved[pod.priority] = kept
        self._on.setdefault(node, {})[pod.key.uid] = kept
        for victim in victims:
            self._waits_for.setdefault(victim, set()).add(pod.key.uid)
            self._mark(victim)
        self._show(kept, shown=pod.priority >= self._priority)
        return kept

    def restore(self, lost: Nomination) -> None:
        """Nominate the pod of a reservation that was removed, if its node exists and its priority has no other."""
        if lost.node not in self._tables.row_of or lost.pod.priority in self.reserved:
            return
        written = lost.record.written
        shares = tuple(CardShare(card, written.uuids.get(card, ""), units) for card, units in written.per_card.items())
        self.nominate(lost.pod, lost.node, shares, waited_s=lost.waited_s, until_s=lost.until_s)

    def remove(self, uid: str) -> Nomination | None:
        """Remove the nomination and return it."""
        kept = self._kept.pop(uid, None)
        if kept is None:
            return None
        self.version += 1
        if kept.reserved:
            del self.reserved[kept.pod.priority]
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

    def waiting_on(self, node: str) -> tuple[list[Pod], list[Pod]]:
        """Return (pods without remaining victims, the others) among pods nominated to the node.

        The others may fit before their victims leave. Reservations are left out, because many pods may leave there.
        """
        free, others = list[Pod](), list[Pod]()
        for kept in self.on(node):
            if not kept.reserved:
                (free if self._is_free(kept) else others).append(kept.pod)
        return free, others

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

    def _full(self) -> dict[str, list[Nomination]]:
        """Nominations that use up the limit of a namespace, by namespace, and the limit of all, under ""."""
        if len(self._kept) < MOST_OF_A_NAMESPACE:
            return {}
        of: dict[str, list[Nomination]] = {}
        for kept in self._kept.values():
            of.setdefault(kept.pod.key.namespace, []).append(kept)
        full = {namespace: its for namespace, its in of.items() if len(its) >= MOST_OF_A_NAMESPACE}
        return full if len(self._kept) < MOST_NOMINATIONS else full | {"": [*self._kept.values()]}

    def _rivals(self, pod: Pod) -> list[Nomination]:
        full = self._full()
        return full.get(pod.key.namespace, full.get("", []))

    def _rank(self, kept: Nomination) -> float:
        """Priority; lower than any for a node that does not exist."""
        return kept.pod.priority if kept.node in self._tables.row_of else -inf

    def _mark(self, victim: str) -> None:
        record = self._tables.record(victim)
        if record is not None:
            record.going = self.goes(victim)

    def _is_free(self, kept: Nomination) -> bool:
        return all(self._tables.record(victim) is None for victim in kept.victims)

    def _see(self, pod: Pod) -> None:
        self._priority = pod.priority
        for kept in self._kept.values():
            self._show(kept, shown=kept.pod.priority >= pod.priority)

    def _show(self, kept: Nomination, *, shown: bool) -> None:
        if kept.shown is shown:
            return
        kept.shown, before = shown, self._tables.changes.version
        if shown:
            self._tables.show(kept.record)
        else:
            self._tables.hide(kept.record, for_good=False)
        self.views += self._tables.changes.version - before
