"""Outcome of a replay, complete and on one screen. Pure. `docs/simulate.md` describes its JSON."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.state.cards.booking import CardShare
from scheduler.tools.simulate.usage import CardUse, NodeUse

FINISHED: Final = "finished"
LOST: Final = "lost with its node"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A placed pod. pod: `namespace/name`. cards: units on each; empty if it requests no GPU memory.

    bound_s: seconds from the start. wait_s: from its creation until then. attempts: number of decisions. ended_s,
    ended: time and reason of its end; None and "" if it still exists at the end.
    """

    pod: str
    node: str
    cards: tuple[CardShare, ...]
    bound_s: float
    wait_s: float
    attempts: int
    ended_s: float | None = None
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Waits:
    """A pod that is not placed, at the end or when it was rejected.

    since_s: its creation. attempts: number of decisions about it. reason: why.
    """

    pod: str
    since_s: float
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a simulation.

    placed, rejected: in the order of the decisions. waiting: in the order of creation. end_s: end of the simulation,
    seconds from the start. by_others: pods that already had a node. decisions: attempts, successful or not. problems:
    problems of objects. ignored: manifests that the simulation does not read. free, fragmented: units when the last pod
    had arrived and was tried, see `scheduler.plugins.fragmentation.measure`.
    """

    placed: tuple[PlacedPod, ...]
    waiting: tuple[Waits, ...]
    nodes: tuple[NodeUse, ...]
    cards: tuple[CardUse, ...]
    end_s: float
    by_others: int
    decisions: int
    problems: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    rejected: tuple[Waits, ...] = ()
    free: int = 0
    fragmented: float = 0.0


# Fits a terminal without scrolling.
_MOST_REASONS: Final = 8


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """Waiting pods with one reason. pods: number of pods with this exact message."""

    pods: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUse:
    """Use of all cards of one model.

    used, average: units of all of them together, at the end and over the whole time.
    """

    model: str
    cards: int
    never_used: int
    units: int
    used: int
    average: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of one report.

    placed: placed pods; `ended` of them have left. median_wait_s, longest_wait_s: from creation to placement, over
    placed pods; 0.0 if there are none. reasons: why pods wait or were rejected, most frequent first. other_reasons:
    number of further ones. free, fragmented: as in Report.
    """

    placed: int
    ended: int
    median_wait_s: float
    longest_wait_s: float
    waiting: int
    rejected: int
    reasons: tuple[WaitingFor, ...]
    other_reasons: int
    models: tuple[ModelUse, ...]
    free: int
    fragmented: float


def summary(report: Report) -> Summary:
    """Summarize the report."""
    waited_s = [placed.wait_s for placed in report.placed] or [0.0]
    reasons = Counter(waits.reason for waits in (*report.waiting, *report.rejected)).most_common()
    return Summary(
        placed=len(report.placed),
        ended=sum(1 for placed in report.placed if placed.ended),
        median_wait_s=statistics.median(waited_s),
        longest_wait_s=max(waited_s),
        waiting=len(report.waiting),
        rejected=len(report.rejected),
        reasons=tuple(WaitingFor(pods, reason) for reason, pods in reasons[:_MOST_REASONS]),
        other_reasons=len(reasons[_MOST_REASONS:]),
        models=_models(report.cards),
        free=report.free,
        fragmented=report.fragmented,
    )


def _models(cards: Sequence[CardUse]) -> tuple[ModelUse, ...]:
    by_model: defaultdict[str, list[CardUse]] = defaultdict(list)
    for card in cards:
        by_model[card.model].append(card)
    return tuple(
        ModelUse(
            model=model,
            cards=len(alike),
            never_used=sum(1 for card in alike if not card.peak),
            units=sum(card.units for card in alike),
            used=sum(card.used for card in alike),
            average=sum(card.average for card in alike),
        )
        for model, alike in sorted(by_model.items())
    )
