"""Retries pods with a nomination or reservation after a change of their node.

    a node changed ──▶ in doubt ── step: it fits, or its node can no longer help it ──▶ to retry

Pure. Owned by the event loop; no method awaits.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from scheduler.core.reservations import Reservations
from scheduler.core.scheduling_cycle import SchedulingCycle
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change, ClusterEvents
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables

_NODE: Final = int(Change.NODE)


class NominationChecks:
    """See the module."""

    def __init__(
        self,
        tables: Tables,
        cycles: Mapping[str, SchedulingCycle],
        nominations: Nominations,
        reservations: Reservations,
    ) -> None:
        """cycles: by scheduler name."""
        self._tables = tables
        self._cycles = cycles
        self._nominations = nominations
        self._reservations = reservations
        self._to_try: list[Pod] = []
        # Uids of nominated pods whose nodes changed.
        self._in_doubt: dict[str, None] = {}

    def __bool__(self) -> bool:
        """Whether there are pods to retry or to check."""
        return bool(self._to_try or self._in_doubt)

    def try_again(self, pods: Iterable[Pod]) -> None:
        """Retry these pods: their node has room, or their nomination is gone."""
        self._to_try += pods

    def take(self) -> list[Pod]:
        """Remove and return the pods to retry."""
        found, self._to_try = self._to_try, []
        return found

    def doubt(self, node: str) -> None:
        """Check the pods that are nominated to the node."""
        self._in_doubt |= dict.fromkeys(kept.pod.key.uid for kept in self._nominations.on(node))

    def note_events(self, events: ClusterEvents) -> None:
        """Check the nominated pods of the rows that changed."""
        for row, kinds in events.rows.items() if len(self._nominations) else ():
            node = self._tables.names[row]
            # Other nominations on the node kept them out; another pod answers for their class.
            free, others = self._nominations.in_turn(node)
            self._to_try += free
            self._in_doubt |= dict.fromkeys(pod.key.uid for pod in others)
            if kinds & _NODE:
                self.doubt(node)
        for kept in self._nominations.reserved.values():
            if self._tables.row_of.get(kept.node) in events.rows:
                self._in_doubt[kept.pod.key.uid] = None

    def step(self) -> bool:
        """Check one pod. Returns False if none is left."""
        if not self._in_doubt:
            return False
        self._check(self._in_doubt.popitem()[0])
        return True

    def _check(self, uid: str) -> None:
        """Retry the pod now if it fits, or if its nominated node can no longer help it."""
        kept = self._nominations.of(uid)
        row = None if kept is None else self._tables.row_of.get(kept.node)
        if kept is None or row is None or kept.pod.scheduler_name not in self._cycles:
            return
        cycle = self._cycles[kept.pod.scheduler_name]
        with self._nominations.seen_by(kept.pod):
            fits = cycle.fits_on(kept.pod, np.array([row], dtype=np.intp))[0]
            helps = fits or cycle.resolvable_on(kept.pod, row)
        if kept.reserved and not fits:
            if not (helps and self._nominations.cards_serve(kept)):
                self._reservations.lost(kept)
        elif fits or not (helps and self._nominations.cards_serve(kept)):
            self._to_try.append(kept.pod)
