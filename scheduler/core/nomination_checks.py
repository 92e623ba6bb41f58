"""Checks of nominated pods after a change of their node. Pure.

    a node changed ──▶ in doubt ── step: it fits, or its node can no longer help it ──▶ to retry

Owned by the event loop; no method awaits.
"""

from typing import Final

import numpy as np

from scheduler.core.reservations import Reservations
from scheduler.core.shared import Shared
from scheduler.state.changes import Change, ClusterEvents

_NODE: Final = int(Change.NODE)


class NominationChecks:
    """Pods with a nomination or reservation to check after a change of their node."""

    def __init__(self, shared: Shared, reservations: Reservations) -> None:
        self._tables, self._nominations = shared.tables, shared.nominations
        self._cycles, self._retries = shared.cycles, shared.retries
        self._reservations = reservations
        # Uids of nominated pods whose nodes changed.
        self._in_doubt: dict[str, None] = {}

    def __bool__(self) -> bool:
        """Return whether there are pods to check."""
        return bool(self._in_doubt)

    def doubt(self, node: str) -> None:
        """Check the pods that are nominated to the node."""
        self._in_doubt |= dict.fromkeys(kept.pod.key.uid for kept in self._nominations.on(node))

    def note_events(self, events: ClusterEvents) -> None:
        """Mark the nominated pods of the changed rows for a check."""
        for row, kinds in events.rows.items() if len(self._nominations) else ():
            node = self._tables.names[row]
            # Other nominations on the node kept these pods out; another pod answers for their class.
            free, others = self._nominations.waiting_on(node)
            self._retries += free
            self._in_doubt |= dict.fromkeys(pod.key.uid for pod in others)
            if kinds & _NODE:
                self.doubt(node)
        for kept in self._nominations.reserved.values():
            if self._tables.row_of.get(kept.node) in events.rows:
                self._in_doubt[kept.pod.key.uid] = None

    def step(self) -> bool:
        """Check one pod. Returns False if none is left to check."""
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
            self._retries.append(kept.pod)
