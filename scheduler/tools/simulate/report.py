"""The outcome of a replay. Pure data; `docs/simulate.md` describes it as JSON."""

from dataclasses import dataclass
from typing import Final

from scheduler.state.cards.booking import CardShare
from scheduler.tools.simulate.usage import CardUse, NodeUse

FINISHED: Final = "finished"
LOST: Final = "lost with its node"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A placed pod. pod: `namespace/name`. cards: units on each; none without GPU memory.

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

    since_s: its creation. attempts: decisions about it. reason: why.
    """

    pod: str
    since_s: float
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a simulation.

    placed, rejected: in the order of the decisions. waiting: in the order of creation. end_s: end of the simulation,
    seconds from the start. by_others: pods that had a node. decisions: attempts, successful or not. problems: problems
    of objects. ignored: manifests that the simulation does not read. free, fragmented: units when the last pod had
    arrived and was tried, see `scheduler.state.packing.fragmentation`.
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
