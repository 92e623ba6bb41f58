"""The rules' answers for one node without some of its pods, for PostFilter.

The pods are lifted from the tables themselves, the rules run on that row, and the pods are put back before anything
else reads the tables. So the rules need no second code path for such queries, and no node is ever copied.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from cachetools import LRUCache

from scheduler.framework.diagnosis import Resolvable
from scheduler.framework.evaluation_cache import Evaluation
from scheduler.framework.runtime import Runtime
from scheduler.pods.pod import Pod
from scheduler.state.available_after_preemption import AvailableAfterPreemption
from scheduler.state.columns.arrays import RowArray
from scheduler.state.facts.namespace_memory import Priorities
from scheduler.state.nominations import Nominations
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

_MOST_TEMPLATES: Final = 16
# Over all templates; about 2 KB each.
_MOST_ROWS_KEPT: Final = 4096
_FEW_ROWS: Final = 64
# Beyond this many changes, collecting them takes longer than a step may.
_MOST_CHANGES: Final = 4096


@dataclass(slots=True)
class Trial:
    """One node without its lifted pods; they are put back when the `with` block ends."""

    runtime: Runtime
    pod: Pod
    row: int
    judged: Evaluation
    lifted: dict[str, PodRecord] = field(default_factory=dict)

    def lift(self, record: PodRecord) -> None:
        """Lift the pod off the node."""
        self.runtime.tables.lift(record)
        self.lifted[record.pod.key.uid] = record

    def put_back(self, record: PodRecord) -> None:
        """Put a lifted pod back."""
        del self.lifted[record.pod.key.uid]
        self.runtime.tables.put_back(record)

    def lift_all(self, records: Iterable[PodRecord]) -> None:
        """Lift these pods off the node."""
        for record in records:
            self.lift(record)

    def put_back_all(self, records: Iterable[PodRecord]) -> None:
        """Put these lifted pods back."""
        for record in records:
            self.put_back(record)

    def fits(self) -> bool:
        """Return whether the node takes the pod now. Runs no node filters, because they accept the node."""
        judged, rules, rows = self.judged, self.judged.rules, slice(self.row, self.row + 1)
        judged.state.drop_row_cache()
        left = self.runtime.tables.valid[rows]
        for filters in (rules.booking_filters, rules.domain_filters):
            left = self.runtime.left(self.pod, judged, filters, rows, left)
            if not left[0]:
                return False
        return not judged.unschedulable

    def reasons(self) -> tuple[str, ...]:
        """Return why the node does not take the pod: the reasons of the first rule that rejects it, no duplicates."""
        self.judged.state.drop_row_cache()
        rows = slice(self.row, self.row + 1)
        for plugin in self.judged.rules.filters:
            found = plugin.diagnose(self.pod, self.runtime.tables, self.judged.state, rows)
            if reasons := tuple(rejection.reason for rejection in found if rejection.rejected[0]):
                return reasons
        return ()


class RowMemo:
    """Results per row and template, kept until the row changes."""

    def __init__(self, tables: Tables) -> None:
        """Create an empty memo."""
        self._tables = tables
        self._kept: LRUCache[Hashable, tuple[int, dict[int, Any]]] = LRUCache(maxsize=_MOST_TEMPLATES)

    def of(self, key: Hashable) -> dict[int, Any]:
        """Return the results for a key, by row; the caller adds to them."""
        while sum(len(rows) for _, rows in self._kept.values()) > _MOST_ROWS_KEPT:
            self._kept.popitem()
        version = self._tables.changes.version
        since, rows = self._kept.get(key, (version, {}))
        changed = self._tables.changes.since(since) if version - since <= _MOST_CHANGES else None
        if changed is None:
            rows = {}
        else:
            for row in changed.rows:
                rows.pop(row, None)
        self._kept[key] = (version, rows)
        return rows


class WhatIf:
    """What-if queries for one pod.

    rows: intp[…], nodes where evicting pods of lower priority may make room. resolvable: number of nodes where evicting
    any pods could. ruled_out: intp[…], the subset of `rows` that the node's own fields rule out as well. All three are
    as of the start.
    minimum: int64[amounts], the pod's minimum request. after_preemption: available amounts without pods of lower
    priority, see `count`. wakes_on: bits of Change that can alter the answers of trials.
    nominations: as the pod sees them, also in the tables.
    """

    def __init__(
        self,
        runtime: Runtime,
        pod: Pod,
        found: Resolvable,
        *,
        nominations: Nominations,
        after_preemption: AvailableAfterPreemption,
        memo: "RowMemo",
    ) -> None:
        """found: rows where the first rejecting rule may change its answer after evictions."""
        self.tables = runtime.tables
        self.nominations = nominations
        self.after_preemption = after_preemption
        self.resolvable = len(found.rows)
        self._found = found
        self.minimum = runtime.profile.minimum_request(pod)
        lower = self.tables.fact(Priorities).lowest < pod.priority
        self.rows = found.rows[lower[found.rows]]
        self.ruled_out = found.ruled_out[lower[found.ruled_out]]
        self.wakes_on = 0
        self._names = list(self.tables.names)
        self._runtime = runtime
        self.pod = pod
        self._memo = memo

    def is_there(self, row: int) -> bool:
        """Return whether a row of `rows` still belongs to the same node; nodes may change between two steps."""
        return self.tables.row_of.get(self._names[row]) == row

    def count(self, most_pods: int) -> bool:
        """Count the amounts available on `rows`, reading at most about `most_pods` pods.

        Returns whether the count is complete.
        """
        if len(self.rows) > _FEW_ROWS:
            return self.after_preemption.follow(most_pods)
        self.after_preemption.amounts(self.rows)
        return True

    def in_order(self, rows: RowArray) -> list[int]:
        """Return the rows sorted by the number of nominations of other pods, fewest first, then by node name.

        While another pod's victims terminate on a row, both they and the nominated pods count there.
        """
        kept = np.zeros(self.tables.capacity, dtype=np.int64)
        for node, places in self.nominations.by_node(without=self.pod.key.uid):
            if (row := self.tables.row_of.get(node)) is not None:
                kept[row] = places
        found: list[int] = rows[np.lexsort((self.tables.rank[rows], kept[rows]))].tolist()
        return found

    def memo(self) -> dict[int, Any]:
        """Return the results per row for pods of this template and priority that are still valid.

        Call this again after each `yield`.
        """
        return self._memo.of((self.pod.template, self.pod.priority, self.tables.budgets.version))

    def is_as_it_was(self, row: int, since: int) -> bool:
        """Return whether nothing on the row has changed after this version of the tables."""
        changed = self.tables.changes.since(since)
        return changed is not None and row not in changed.rows

    def may_help_on(self, node: str) -> bool:
        """Return whether pods that leave the node may make room there, or the pod already fits there."""
        row = self.tables.row_of.get(node)
        return row is not None and bool((self._found.rows == row).any())

    @contextmanager
    def trial(self, row: int, only: Collection[int] | None = None) -> Iterator[Trial]:
        """Start a trial on one node. only: the only card slots that the pod may use; None for all cards."""
        judged = self._runtime.begin(self.pod, None if only is None else frozenset(only))
        trial = Trial(self._runtime, self.pod, row, judged)
        try:
            yield trial
        finally:
            # Whatever a rule raises: a query must never free the resources of pods.
            trial.put_back_all(list(trial.lifted.values()))
        self.wakes_on |= trial.judged.wakes_on
