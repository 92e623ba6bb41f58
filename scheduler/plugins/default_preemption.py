"""DefaultPreemption: which pods of lower priority go, so that one fits that fits nowhere.

The arithmetic is in `scheduler.plugins.victims`.
Source: kube-scheduler, framework/preemption/preemption.go and plugins/defaultpreemption/default_preemption.go.
"""

from collections import Counter
from collections.abc import Generator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import Field

from scheduler.framework.plugin import NotHelped, PluginArgs, PostFilterPlugin, PostFilterResult, Preemption
from scheduler.plugins.victims import Candidate, agreed, shares_of, without_all
from scheduler.plugins.victims_by_amounts import by_amounts, say_all
from scheduler.pods.pod import Pod

if TYPE_CHECKING:
    from scheduler.framework.what_if import WhatIf

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
NOT_LISTED: Final = "not eligible before the PodDisruptionBudgets are known."
TOO_MANY: Final = "not eligible while so many pods wait for the place that is kept for them."
_RULED_OUT: Final = (NOT_HELPFUL,)
_CHANGED: Final = NotHelped("preemption: the victims are others by now.", ("changed",), again=True, keeps=True)
# A few milliseconds.
_PODS_PER_STEP: Final = 256


class DefaultPreemptionArgs(PluginArgs):
    """How many nodes are compared."""

    min_candidate_nodes_percentage: int = Field(
        default=10, ge=0, le=100, description="Of the nodes that may be helped, so many percent are compared at least."
    )
    min_candidate_nodes_absolute: int = Field(
        default=100, ge=0, le=10_000, description="So many nodes are compared at least, as far as there are."
    )


class DefaultPreemption(PostFilterPlugin):
    """Chooses pods of lower priority that go, for a pod that fits nowhere, and the node that is then kept for it.

    Of each node that could be helped, all pods of lower priority are taken away, in thought; where the pod fits then,
    they come back one after the other, as long as it still fits: first those that a disruption budget protects, then
    the others, the highest priority and the longest running first. Those that cannot come back are the victims. Of a
    pod that asks for GPU memory, this is done for each card, or for each of the cheapest sets of as many cards as it
    asks, since memory that is freed on several cards is no help. The node is chosen by its victims: those with the
    fewest that budgets protect, then the lowest highest priority, the lowest sum of priorities, the fewest, and those
    of which the most important one has started last; then by name.

    A pod with `preemptionPolicy: Never`, or one whose victims are still going, takes nobody away.

    - `preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful
      for scheduling.`

    Source: kube-scheduler, framework/preemption/preemption.go, plugins/defaultpreemption/default_preemption.go.
    """

    name: ClassVar[str] = "DefaultPreemption"
    on_by_default: ClassVar[bool] = True
    Args = DefaultPreemptionArgs
    args: DefaultPreemptionArgs

    def post_filter(self, pod: Pod, what_if: "WhatIf") -> Generator[None, None, PostFilterResult]:
        """As PostFilterPlugin; a step is one try on one node."""
        if reason := _not_eligible(pod, what_if):
            return NotHelped(f"preemption: {reason}", (reason,), keeps=True)
        cheapest, reasons = yield from self._by_amounts(pod, what_if)
        waiting = [(found[0].key, place, 0) for place, found in enumerate(cheapest)]
        heapify(waiting)
        best: Candidate | None = None
        version = -1
        while waiting and (best is None or waiting[0][0] < best.key):
            _, place, number = heappop(waiting)
            if number + 1 < len(cheapest[place]):
                heappush(waiting, (cheapest[place][number + 1].key, place, number + 1))
            found, why = agreed(pod, what_if, cheapest[place][number])
            if found is not None and (best is None or found.key < best.key):
                best, version = found, what_if.tables.changes.version
            reasons.update(why)
            if best is None or (waiting and waiting[0][0] < best.key):
                yield
        if best is None:
            reasons[NO_VICTIMS] += what_if.resolvable - len(what_if.rows)
            return _not_helped(len(what_if.tables.row_of), what_if.resolvable, reasons)
        if version != what_if.tables.changes.version:
            best, _ = agreed(pod, what_if, best)
        return _CHANGED if best is None else _preemption(pod, what_if, best)

    def _by_amounts(
        self, pod: Pod, what_if: "WhatIf"
    ) -> Generator[None, None, tuple[list[list[Candidate]], Counter[str]]]:
        """Of the first nodes by name, as many as are compared, what plain amounts say; why others have no victims."""
        found: list[list[Candidate]] = []
        reasons: Counter[str] = Counter()
        clean, most = False, max(len(what_if.rows) * self.args.min_candidate_nodes_percentage // 100, self._least())
        looked_at, asked, vague = 0, 0, not say_all(pod)
        kept = what_if.memo()
        for row in what_if.rows:
            if looked_at > _PODS_PER_STEP:
                yield
                looked_at, kept = 0, what_if.memo()
            ruled_out = row in what_if.ruled_out
            if row not in kept and not ruled_out:
                looked_at += what_if.tables.pods_on(row)
                kept[row] = by_amounts(pod, what_if.least, what_if.tables, row, self.resource_names.gpu_mem)
            here, why = ([], _RULED_OUT) if ruled_out else kept[row]
            if here:
                found.append(here)
                clean |= not here[0].violations
                if clean and len(found) >= most:
                    break
            elif (vague or ruled_out) and asked < most:
                looked_at += what_if.tables.pods_on(row)
                why, asked = without_all(pod, what_if, row), asked + 1
            reasons.update(why)
        return found, reasons

    def _least(self) -> int:
        return max(1, self.args.min_candidate_nodes_absolute)


def _not_eligible(pod: Pod, what_if: "WhatIf") -> str:
    if not pod.preempts:
        return NEVER
    if not what_if.tables.budgets.listed:
        return NOT_LISTED
    kept = what_if.nominations.of(pod.key.uid)
    if kept is None:
        return TOO_MANY if what_if.nominations.full else ""
    if not what_if.may_help_on(kept.node):
        return ""
    for record in what_if.tables.records_on(kept.node):
        other = record.pod
        going = other.key.uid in kept.victims or (other.terminating and other.preempted)
        if going and other.priority < pod.priority and not record.nominated:
            return TERMINATING
    return ""


def _preemption(pod: Pod, what_if: "WhatIf", chosen: Candidate) -> Preemption:
    return Preemption(
        pod=pod,
        node=what_if.tables.names[chosen.row],
        cards=shares_of(pod, what_if.tables, chosen),
        victims=tuple(record.pod for record in chosen.victims),
        violations=chosen.violations,
    )


def _not_helped(nodes: int, tried: int, reasons: Counter[str]) -> NotHelped:
    if nodes > tried:
        reasons[NOT_HELPFUL] += nodes - tried
    reasons = +reasons
    text = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return NotHelped(f"preemption: 0/{nodes} nodes are available: {text}.", tuple(sorted(reasons)))
