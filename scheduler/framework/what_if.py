"""What the rules would say of one node without some of its pods. For PostFilter.

The pods are lifted from the tables themselves, the rules are asked about that one row, and the pods are put back before
anybody else looks: whatever rules count is counted by the same code, and no copy of a node is ever made.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from cachetools import LRUCache

from scheduler.framework.card_rules import CARD_RULES
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import Resolvable
from scheduler.framework.evaluation_cache import ClassRules, Evaluation
from scheduler.framework.plugin import CardFilterPlugin, CardRejection
from scheduler.framework.runtime import Runtime
from scheduler.pods.pod import Pod
from scheduler.state.available_after_preemption import AvailableAfterPreemption
from scheduler.state.columns.arrays import RowArray, Rows
from scheduler.state.facts.priorities import Priorities
from scheduler.state.nominations import Nominations
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

_MOST_TEMPLATES: Final = 16
# Of all templates together; some two kilobytes each.
_MOST_ROWS_KEPT: Final = 4096
_FEW_ROWS: Final = 64
# To gather more of them takes longer than a step may.
_MOST_CHANGES: Final = 4096


class OnlyCards(CardFilterPlugin):
    """Objects to every card but these, of whatever row."""

    name = "OnlyCards"

    def __init__(self, slots: frozenset[int]) -> None:
        """slots: of `tables.cards`."""
        super().__init__()
        self._slots = slots

    def filter_cards(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[CardRejection]:  # noqa: ARG002 - as asked
        """As CardFilterPlugin."""
        rejected = np.ones(tables.cards.units[:, rows].shape, dtype=np.bool_)
        rejected[[slot for slot in self._slots if slot < len(rejected)]] = False
        return (CardRejection(rejected, "Insufficient GPU memory on one card"),)


@dataclass(slots=True)
class Trial:
    """One node, and pods that are lifted from it; all are back when the `with` ends that gave it.

    wakes_on: bits of Change that can alter what was rejected.
    """

    runtime: Runtime
    pod: Pod
    row: int
    state: CycleState
    rules: ClassRules
    lifted: dict[str, PodRecord]
    wakes_on: int = 0

    def lift(self, record: PodRecord) -> None:
        """Ask without this pod."""
        self.runtime.tables.lift(record)
        self.lifted[record.pod.key.uid] = record

    def put_back(self, record: PodRecord) -> None:
        """Ask with it again."""
        del self.lifted[record.pod.key.uid]
        self.runtime.tables.put_back(record)

    def lift_all(self, records: Iterable[PodRecord]) -> None:
        """Ask without these pods."""
        for record in records:
            self.lift(record)

    def put_back_all(self, records: Iterable[PodRecord]) -> None:
        """Ask with them again."""
        for record in records:
            self.put_back(record)

    def fits(self) -> bool:
        """Whether the node takes the pod as it is now. That its own fields allow it is known."""
        self.state.drop_row_cache()
        judged, rows = Evaluation(state=self.state, rules=self.rules), slice(self.row, self.row + 1)
        left = self.runtime.tables.valid[rows]
        for filters in (self.rules.booking_filters, self.rules.domain_filters):
            left = self.runtime.left(self.pod, judged, filters, rows, left)
            if not left[0]:
                self.wakes_on |= judged.wakes_on
                return False
        return True

    def reasons(self) -> tuple[str, ...]:
        """Why it does not take the pod: what the first rule that objects says, each once."""
        self.state.drop_row_cache()
        rows = slice(self.row, self.row + 1)
        for plugin in self.rules.filters:
            found = plugin.diagnose(self.pod, self.runtime.tables, self.state, rows)
            if reasons := tuple(rejection.reason for rejection in found if rejection.rejected[0]):
                return reasons
        return ()


class RowMemo:
    """What was worked out of rows by template, until the row changes."""

    def __init__(self, tables: Tables) -> None:
        """Nothing."""
        self._tables = tables
        self._kept: LRUCache[Hashable, tuple[int, dict[int, Any]]] = LRUCache(maxsize=_MOST_TEMPLATES)

    def of(self, key: Hashable) -> dict[int, Any]:
        """By row; the caller adds to it."""
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
    """Questions for one pod.

    rows: intp[…], of the nodes where pods of lower priority may make room by leaving. resolvable: how many there are
    where any pods could. ruled_out: intp[…], those of `rows` that the node's own fields rule out besides. All as of the
    start.
    minimum: int64[amounts], the minimum that the pod needs. after_preemption: what rows have without pods of lower
    priority, see `count`. wakes_on: bits of Change that can alter what rules said of trials.
    nominations: the tables show them as the pod sees them.
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
        """found: where the first rule that objects may change its mind as pods leave."""
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
        """Whether a row of `rows` is still the same node's: between two steps nodes come and go."""
        return self.tables.row_of.get(self._names[row]) == row

    def count(self, most_pods: int) -> bool:
        """Count what `rows` have left, or about so many pods of that; whether all is counted."""
        if len(self.rows) > _FEW_ROWS:
            return self.after_preemption.follow(most_pods)
        self.after_preemption.amounts(self.rows)
        return True

    def in_order(self, rows: RowArray) -> list[int]:
        """First where the fewest places are kept for others, then by the nodes' names.

        While victims of others go there, they and what is kept for those others both count.
        """
        kept = np.zeros(self.tables.capacity, dtype=np.int64)
        for node, places in self.nominations.by_node(without=self.pod.key.uid):
            if (row := self.tables.row_of.get(node)) is not None:
                kept[row] = places
        found: list[int] = rows[np.lexsort((self.tables.rank[rows], kept[rows]))].tolist()
        return found

    def memo(self) -> dict[int, Any]:
        """What was worked out of rows for pods of this template and priority, as far as it is true.

        To be asked for again after each `yield`.
        """
        return self._memo.of((self.pod.template, self.pod.priority, self.tables.budgets.version))

    def is_as_it_was(self, row: int, since: int) -> bool:
        """Whether nothing on the row has changed after that version of the tables."""
        changed = self.tables.changes.since(since)
        return changed is not None and row not in changed.rows

    def may_help_on(self, node: str) -> bool:
        """Whether pods that leave the node may make room there, or the pod fits there as it is."""
        row = self.tables.row_of.get(node)
        return row is not None and bool((self._found.rows == row).any())

    @contextmanager
    def without_nominated(self, row: int) -> Iterator[None]:
        """One node without the nominated pods that have to give way, as far as the tables show them."""
        lifted = self._lower_nominated(row)
        try:
            for record in lifted:
                self.tables.lift(record)
            yield
        finally:
            for record in lifted:
                if record.lifted:
                    self.tables.put_back(record)

    def _lower_nominated(self, row: int) -> list[PodRecord]:
        return [record for record in self.tables.nominated_on(row) if record.pod.priority < self.pod.priority]

    @contextmanager
    def trial(self, row: int, only: Collection[int] | None = None) -> Iterator[Trial]:
        """One node. only: slots of its cards, when no other will do."""
        state, runtime = CycleState(), self._runtime
        skipped, _ = runtime.pre_filter(self.pod, state)
        rules = runtime.profile.card_rules(skipped)
        if only is not None:
            rules = replace(rules, filters=(*rules.filters, OnlyCards(frozenset(only))))
        state.write(CARD_RULES, rules)
        trial = Trial(runtime, self.pod, row, state, runtime.profile.class_rules(self.pod, skipped), {})
        try:
            trial.lift_all(self._lower_nominated(row))
            yield trial
        finally:
            # Whatever a rule does: what pods hold is never free because somebody has asked a question.
            trial.put_back_all(list(trial.lifted.values()))
        self.wakes_on |= trial.wakes_on
