"""Turns rejections into the message that users see on an unschedulable pod. Pure.

Source of the format: kube-scheduler, pkg/scheduler/framework/types.go, FitError.Error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np

from scheduler.framework.plugin import Detail, Rejection
from scheduler.state.columns.arrays import BoolArray, RowArray

_MOST_EXAMPLES: Final = 10
# Used in place of a rule name.
_EVERY_NODE: Final = "EveryNode"
_NO_NODES: Final = "NoNodes"


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Number of nodes with one reason.

    nodes: nodes for which this is the first reason. numbers: the best over those nodes. examples: some of their names.
    rule: the rule that gave the reason; "" if not requested.
    """

    reason: str
    nodes: int
    numbers: Detail | None = None
    examples: tuple[str, ...] = field(default=(), compare=False)
    rule: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Return text such as `3 Insufficient GPU memory on one card: wants 12, most free 8 (of 16)`."""
        return f"{self.nodes} {self.reason if self.numbers is None else self.numbers.worded(self.reason)}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a pod is unschedulable. nodes: number of nodes. rejected: a reason that holds for every node, or "".

    reserved: the reservation of the pod, or of the older pod that blocks it; "" without one.
    tail: why PostFilter does not help, or ""; tail_reasons: the part of `tail` by which two messages are compared.
    """

    nodes: int
    reasons: tuple[ReasonCount, ...] = ()
    rejected: str = ""
    reserved: str = ""
    tail: str = ""
    tail_reasons: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """Text of the Event and the PodScheduled condition."""
        if self.nodes == 0 and not self.rejected:
            return "no nodes available to schedule pods"
        text = self.rejected or ", ".join(sorted(str(reason) for reason in self.reasons))
        reserved = f" {self.reserved}." if self.reserved else ""
        tail = f" {self.tail}" if self.tail else ""
        return f"0/{self.nodes} nodes are available: {text}.{reserved}{tail}"

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the rejecting rules, without reasons, because a reason may quote the pod."""
        if self.rejected:
            return (_EVERY_NODE,)
        return tuple(sorted({counted.rule for counted in self.reasons})) if self.nodes else (_NO_NODES,)

    @property
    def by_node(self) -> dict[str, list[str]]:
        """Map some of the nodes to their reasons, a few nodes for each reason."""
        found: dict[str, list[str]] = {}
        for counted in self.reasons:
            for node in counted.examples:
                found.setdefault(node, []).append(counted.reason)
        return found

    @property
    def constant_text(self) -> tuple[str, ...]:
        """The message without its numbers. While this is unchanged, the condition is patched less often."""
        reasons = sorted(reason.reason for reason in self.reasons)
        return (self.rejected, *reasons, self.reserved, *self.tail_reasons)


class Resolvable(NamedTuple):
    """Rows where evictions may make room.

    rows: intp[…], rows where the first rejecting rule may change its answer. ruled_out: intp[…], the subset of `rows`
    that the node's own fields rule out as well.
    """

    rows: RowArray
    ruled_out: RowArray


NOT_RESOLVABLE: Final = Resolvable(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))


def count_reasons(
    valid: BoolArray,
    rejections: Iterable[Iterable[Rejection]],
    names: Sequence[str] = (),
    rules: Iterable[str] = repeat(""),
) -> tuple[ReasonCount, ...]:
    """Count the nodes for each reason, by the first rule that rejects a node.

    valid: bool[nodes]. rejections: one group for each rule, in the order of the rules, over all rows.
    names: node name of each row, for the examples. rules: rule name of each group.
    """
    left = valid
    counts = []
    for group, rule in zip(rejections, rules, strict=False):
        here = left
        for rejection in group:
            counted = rejection.rejected & here
            nodes = int(np.count_nonzero(counted))
            if nodes:
                numbers = rejection.numbers(counted) if rejection.numbers else None
                examples = tuple(names[row] for row in np.flatnonzero(counted)[:_MOST_EXAMPLES]) if names else ()
                counts.append(ReasonCount(rejection.reason, nodes, numbers, examples, rule))
                left = left & ~counted
    return tuple(counts)


def resolvable(valid: BoolArray, rejections: Iterable[tuple[bool, Iterable[Rejection]]]) -> BoolArray:
    """Return bool[nodes]: rows where evictions may make room because the first rejecting rule may change its answer.

    valid: bool[nodes]. rejections: as in `count_reasons`, each group with a flag: the rule reads bookings.
    """
    left, found = valid, np.zeros_like(valid)
    for looks_at_bookings, group in rejections:
        rejected, stays = np.zeros_like(valid), np.zeros_like(valid)
        for rejection in group:
            rejected |= rejection.rejected
            stays |= rejection.rejected & rejection.unresolvable
        found |= left & rejected & ~stays if looks_at_bookings else False
        left = left & ~rejected
    return found
