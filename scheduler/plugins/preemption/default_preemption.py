"""DefaultPreemption: chooses pods of lower priority to evict so that an unschedulable pod fits.

The arithmetic is in `victims_by_amounts`, card by card; in `victims`, the rules confirm or replace its choice. Source:
kube-scheduler, framework/preemption/preemption.go and plugins/defaultpreemption/default_preemption.go.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from pydantic import Field

from scheduler.framework.plugin import PluginArgs
from scheduler.framework.post_filter import PostFilterPlugin
from scheduler.framework.preemption import NoPreemption, PostFilterResult, Preemption
from scheduler.plugins.preemption.victims import (
    PODS_PER_STEP,
    Candidate,
    agreed,
    by_rules,
    lower,
    shares_of,
    without_all,
)
from scheduler.plugins.preemption.victims_by_amounts import by_amounts, kept_place, promising, say_all
from scheduler.pods.pod import Pod
from scheduler.state.columns.arrays import RowArray
from scheduler.state.nominations import MOST_NOMINATIONS, MOST_OF_A_NAMESPACE
from scheduler.state.pod_record import PodRecord

if TYPE_CHECKING:
    from scheduler.framework.what_if import WhatIf

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
REJECTED: Final = "not eligible due to a kubelet that has just rejected such a pod."
NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
NOT_LISTED: Final = "not eligible before the PodDisruptionBudgets are known."
TOO_MANY: Final = (
    f"not eligible while {MOST_NOMINATIONS} other pods, or {MOST_OF_A_NAMESPACE} of its namespace, are nominated to "
    "nodes and not bound yet."
)
_CHANGED: Final = NoPreemption(
    "preemption: the pods on the chosen node have changed, trying again.",
    ("changed",),
    retry=True,
    keep_nomination=True,
)
# Comparing a node costs about as much as this many of its pods.
_PODS_OF_A_NODE: Final = 16


class DefaultPreemptionArgs(PluginArgs):
    """Minimum number of candidate nodes to compare. The larger of the two values applies."""

    min_candidate_nodes_percentage: int = Field(default=10, ge=0, le=100, description="Percentage of candidate nodes.")
    min_candidate_nodes_absolute: int = Field(default=100, ge=0, le=10_000, description="Number of candidate nodes.")


class DefaultPreemption(PostFilterPlugin):
    """Chooses victims of lower priority for an unschedulable pod, and the node to nominate for it.

    On each candidate node, a trial removes all pods of lower priority. If the pod then fits, they are put back one at a
    time as long as it still fits: first those that a disruption budget protects, then the others, the highest priority
    and the longest running first. Pods that cannot be put back are the victims. For a pod with GPU memory, the trial
    runs for each card, or for each of the cheapest sets of the requested number of cards, because memory freed on other
    cards does not help. The node is chosen by its victims: fewest protected by budgets, lowest highest priority, lowest
    sum of priorities, fewest victims, latest start of the most important victim; then by fewest nominations of other
    pods, and by name.

    A pod with `preemptionPolicy: Never`, or whose victims are still terminating, does not preempt.

    - `preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful
      for scheduling.`

    Source: kube-scheduler, framework/preemption/preemption.go, plugins/defaultpreemption/default_preemption.go.
    """

    name: ClassVar[str] = "DefaultPreemption"
    on_by_default: ClassVar[bool] = True
    Args = DefaultPreemptionArgs
    args: DefaultPreemptionArgs

    def post_filter(self, pod: Pod, what_if: "WhatIf") -> Generator[None, None, PostFilterResult]:
        """Preempt in steps; a step is one trial on one node."""
        going = _going(pod, what_if)
        if going and (resumed := kept_place(pod, what_if, going, self.resource_names.gpu_mem)) is not None:
            return _preemption(pod, what_if, resumed)
        if reason := _not_eligible(pod, what_if, going):
            return NoPreemption(f"preemption: {reason}", (reason,), keep_nomination=True)
        while not what_if.count(PODS_PER_STEP):
            yield
        hopeful, lacking = self._hopeful(pod, what_if)
        since = what_if.tables.changes.version
        cheapest, reasons = yield from self._by_amounts(pod, what_if, hopeful)
        waiting = [(found[0].key, place, 0) for place, found in enumerate(cheapest)]
        heapify(waiting)
        best: Candidate | None = None
        version = -1
        while waiting and (best is None or waiting[0][0] < best.key):
            _, place, number = heappop(waiting)
            if number + 1 < len(cheapest[place]):
                heappush(waiting, (cheapest[place][number + 1].key, place, number + 1))
            found, why = yield from agreed(pod, what_if, cheapest[place][number], since)
            if found is not None and (best is None or found.key < best.key):
                best, version = found, what_if.tables.changes.version
            reasons.update(why)
            if best is None or (waiting and waiting[0][0] < best.key):
                yield
        if best is None:
            reasons += yield from self._without_hope(pod, what_if, lacking)
            reasons[NO_VICTIMS] += what_if.resolvable - len(what_if.rows)
            return _no_preemption(len(what_if.tables.row_of), what_if.resolvable, reasons)
        if version != what_if.tables.changes.version:
            best, _ = by_rules(what_if, best, lower(pod, what_if.tables, best.row), version)
        return _CHANGED if best is None else _preemption(pod, what_if, best)

    def _by_amounts(
        self, pod: Pod, what_if: "WhatIf", rows: RowArray
    ) -> Generator[None, None, tuple[list[list[Candidate]], Counter[str]]]:
        """Return (candidates by plain amounts for each compared row with some; why the other rows have none)."""
        found: list[list[Candidate]] = []
        reasons: Counter[str] = Counter()
        clean, most, looked_at = False, self._compared(what_if), 0
        kept = what_if.memo()
        for row in what_if.in_order(rows):
            if row not in kept:
                looked_at += _PODS_OF_A_NODE + what_if.tables.pods_on(row)
                if looked_at > PODS_PER_STEP:
                    yield
                    looked_at, kept = 0, what_if.memo()
                if not what_if.is_there(row):
                    continue
                kept[row] = by_amounts(pod, what_if.minimum, what_if.tables, row, gpu_mem=self.resource_names.gpu_mem)
            here, why = kept[row]
            reasons.update(why)
            if here:
                found.append(here)
                clean |= not here[0].violations
                if clean and len(found) >= most:
                    break
        return found, reasons

    def _hopeful(self, pod: Pod, what_if: "WhatIf") -> tuple[RowArray, RowArray]:
        """Return (rows where amounts and node fields would suffice without lower-priority pods, the other rows)."""
        rows = np.setdiff1d(what_if.rows, what_if.ruled_out, assume_unique=True)
        enough, _ = promising(pod, what_if.minimum, what_if.after_preemption, rows, self.resource_names.gpu_mem)
        return rows[enough], rows[~enough]

    def _without_hope(self, pod: Pod, what_if: "WhatIf", lacking: RowArray) -> Generator[None, None, Counter[str]]:
        """Return why the other rows have no victims. If amounts do not explain it, the rules run on a few of them."""
        told = what_if.ruled_out if say_all(pod) else np.concatenate((what_if.ruled_out, lacking))
        asked = what_if.in_order(told)[: self._compared(what_if)]
        lacking = np.setdiff1d(lacking, asked, assume_unique=True)
        reasons = promising(pod, what_if.minimum, what_if.after_preemption, lacking, self.resource_names.gpu_mem)[1]
        reasons[NOT_HELPFUL] += len(what_if.ruled_out) - len(np.intersect1d(what_if.ruled_out, asked))
        looked_at = 0
        for row in asked:
            looked_at += _PODS_OF_A_NODE + what_if.tables.pods_on(row)
            if looked_at > PODS_PER_STEP:
                yield
                looked_at = 0
            if what_if.is_there(row):
                reasons.update(without_all(pod, what_if, row))
        return reasons

    def _compared(self, what_if: "WhatIf") -> int:
        """Return the number of nodes to compare."""
        by_share = len(what_if.rows) * self.args.min_candidate_nodes_percentage // 100
        return max(1, self.args.min_candidate_nodes_absolute, by_share)


def _not_eligible(pod: Pod, what_if: "WhatIf", going: Sequence[PodRecord]) -> str:
    if not pod.preempts:
        return NEVER
    if not what_if.tables.budgets.listed:
        return NOT_LISTED
    kept = what_if.nominations.of(pod.key.uid)
    if kept is None:
        if what_if.tables.rejections.reasons(pod):
            # Otherwise pods that every kubelet rejects would empty one node after another.
            return REJECTED
        return TOO_MANY if what_if.nominations.full_for(pod) else ""
    if not (what_if.may_help_on(kept.node) and what_if.nominations.cards_serve(kept)):
        # Evictions there no longer help: the node may have been cordoned, or its card may have failed.
        return ""
    return TERMINATING if going and not kept.lacks_cards else ""


def _going(pod: Pod, what_if: "WhatIf") -> list[PodRecord]:
    """Return the terminating victims of lower priority on the pod's nominated node."""
    kept = what_if.nominations.of(pod.key.uid)
    records = () if kept is None else what_if.tables.records_on(kept.node)
    return [record for record in records if record.pod.priority < pod.priority and _goes(record, what_if)]


def _goes(record: PodRecord, what_if: "WhatIf") -> bool:
    pod = record.pod
    told = what_if.nominations.goes(pod.key.uid) or (pod.terminating and pod.preempted)
    return told and not record.nominated


def _preemption(pod: Pod, what_if: "WhatIf", chosen: Candidate) -> Preemption:
    removed = [record for record in chosen.victims if not (record.going or record.pod.terminating)]
    protected, _ = what_if.tables.budgets.split(lower(pod, what_if.tables, chosen.row), with_refused=False)
    return Preemption(
        pod=pod,
        node=what_if.tables.names[chosen.row],
        cards=shares_of(pod, what_if.tables, chosen),
        victims=tuple(record.pod for record in chosen.victims),
        removed=tuple(record.pod for record in removed),
        violations=chosen.violations,
        protected=sum(record in protected for record in removed),
    )


def _no_preemption(nodes: int, tried: int, reasons: Counter[str]) -> NoPreemption:
    # Nodes may have been deleted since the start.
    reasons[NOT_HELPFUL] += max(0, nodes - tried)
    reasons = +reasons
    text = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return NoPreemption(f"preemption: 0/{nodes} nodes are available: {text}.", tuple(sorted(reasons)))
