"""DefaultPreemption: which pods of lower priority go, so that one fits that fits nowhere.

The arithmetic is in `scheduler.plugins.victims`.
Source: kube-scheduler, framework/preemption/preemption.go and plugins/defaultpreemption/default_preemption.go.
"""

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import Field

from scheduler.framework.plugin import NotHelped, PluginArgs, PostFilterPlugin, PostFilterResult, Preemption
from scheduler.plugins.victims import Candidate, card_sets, lower, selected, shares_of
from scheduler.pods.pod import Pod

if TYPE_CHECKING:
    from scheduler.framework.what_if import WhatIf

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
NOT_LISTED: Final = "not eligible before the PodDisruptionBudgets are known."
TOO_MANY: Final = "not eligible while so many pods wait for the place that is kept for them."
_NEEDLESS: Final = "not needed any more."


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
        if why := _not_eligible(pod, what_if):
            return NotHelped(f"preemption: {why}", (why,))
        found: list[Candidate] = []
        reasons: Counter[str] = Counter()
        most = max(len(what_if.rows) * self.args.min_candidate_nodes_percentage // 100, self._least())
        for row in what_if.rows:
            candidate, why_not = yield from _candidate(pod, what_if, row)
            if candidate is not None:
                found.append(candidate)
                if len(found) >= most and not all(one.violations for one in found):
                    break
            else:
                reasons.update(why_not)
        for candidate in sorted(found, key=lambda one: one.key):
            # What was found some steps ago may have changed since.
            again = selected(pod, what_if, candidate.row, candidate.slots)[0]
            if again is not None:
                return _preemption(pod, what_if, again)
        if found:
            return NotHelped(f"preemption: {_NEEDLESS}", (_NEEDLESS,))
        reasons[NO_VICTIMS] += what_if.resolvable - len(what_if.rows)
        return _not_helped(len(what_if.tables.row_of), what_if.resolvable, reasons)

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
    for record in what_if.tables.records_on(kept.node):
        other = record.pod
        going = other.key.uid in kept.victims or (other.terminating and other.preempted)
        if going and other.priority < pod.priority and not record.nominated:
            return TERMINATING
    return ""


def _candidate(
    pod: Pod, what_if: "WhatIf", row: int
) -> Generator[None, None, tuple[Candidate | None, tuple[str, ...]]]:
    """The cheapest victims on one node; or None, and why there are none."""
    if not lower(pod, what_if.tables, row):
        return None, (NO_VICTIMS,)
    best: Candidate | None = None
    reasons: tuple[str, ...] = ()
    for slots in card_sets(pod, what_if.tables, row):
        found, reasons = selected(pod, what_if, row, slots)
        if found is not None and (best is None or found.key < best.key):
            best = found
        yield
    return best, reasons


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
