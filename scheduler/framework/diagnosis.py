"""Rejections -> the message that a user reads on a pod that fits nowhere. Pure.

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
# In the place of a rule.
_EVERY_NODE: Final = "EveryNode"
_NO_NODES: Final = "NoNodes"


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """nodes: how many nodes have the reason first. numbers: over those nodes. examples: some of them, by name.

    rule: whose reason it is, "" where that was not asked.
    """

    reason: str
    nodes: int
    numbers: Detail | None = None
    examples: tuple[str, ...] = field(default=(), compare=False)
    rule: str = field(default="", compare=False)

    def __str__(self) -> str:
        """`3 Insufficient GPU memory on one card: wants 12, most free 8 (of 16)`."""
        return f"{self.nodes} {self.reason if self.numbers is None else self.numbers.worded(self.reason)}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a pod fits nowhere. nodes: how many there are. rejected: a reason that holds for every node, or "".

    reserved: the place that is kept for the pod, or for one that has waited longer and keeps it away; "" for none.
    tail: why PostFilter does not help either, or ""; tail_reasons: what of it tells it from others.
    """

    nodes: int
    reasons: tuple[ReasonCount, ...] = ()
    rejected: str = ""
    reserved: str = ""
    tail: str = ""
    tail_reasons: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """For the event and the PodScheduled condition."""
        if self.nodes == 0 and not self.rejected:
            return "no nodes available to schedule pods"
        text = self.rejected or ", ".join(sorted(str(reason) for reason in self.reasons))
        reserved = f" {self.reserved}." if self.reserved else ""
        tail = f" {self.tail}" if self.tail else ""
        return f"0/{self.nodes} nodes are available: {text}.{reserved}{tail}"

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of those that object, without a word of theirs, which may quote the pod."""
        if self.rejected:
            return (_EVERY_NODE,)
        return tuple(sorted({counted.rule for counted in self.reasons})) if self.nodes else (_NO_NODES,)

    @property
    def by_node(self) -> dict[str, list[str]]:
        """The reasons of some of the nodes, a few for each reason."""
        found: dict[str, list[str]] = {}
        for counted in self.reasons:
            for node in counted.examples:
                found.setdefault(node, []).append(counted.reason)
        return found

    @property
    def constant_text(self) -> tuple[str, ...]:
        """The message without its numbers: while this stays, the condition need not be patched often."""
        reasons = sorted(reason.reason for reason in self.reasons)
        return (self.rejected, *reasons, self.reserved, *self.tail_reasons)


class Resolvable(NamedTuple):
    """Where pods that leave may make room. rows: intp[…], where the first rule that objects may change its mind.

    ruled_out: intp[…], those of them that the node's own fields rule out besides.
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
    """Counts each node under every reason of the first rule that objects to it.

    valid: bool[nodes]. rejections: one group per rule, in the order of the rules, over all rows. names: of the rows,
    for examples. rules: the name of each.
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
    """bool[nodes]: where pods that leave may make room: the first rule that objects there may change its mind.

    valid: bool[nodes]. rejections: as `count_reasons`; with each group, whether its rule looks at bookings at all.
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
