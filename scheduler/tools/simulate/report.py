"""The outcome of a replay. Pure data; `docs/simulate.md` describes it as JSON."""

from dataclasses import dataclass
from typing import Final

from scheduler.state.cards.booking import CardShare
from scheduler.tools.simulate.usage import CardUse, NodeUse

FINISHED: Final = "finished"
LOST: Final = "lost with its node"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod that got a place. pod: `namespace/name`. cards: units on each; none when it requests no GPU memory.

    bound_s: seconds from the start. wait_s: from its creation until then. attempts: decisions that it took.
    ended_s, ended: when and how it went; None and "" when it was still there at the end.
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
    """A pod without a place, at the end or when it was rejected.

    since_s: its creation. attempts: decisions about it. reason: why.
    """

    pod: str
    since_s: float
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything.

    placed, rejected: in the order of the decisions. waiting: in the order of creation. end_s: when nothing could happen
    any more, seconds from the start. by_others: pods that came with a node. decisions: attempts, successful or not.
    problems: what was wrong with objects. ignored: manifests that the simulation does not read. free, fragmented: units
    when the last pod had come and was tried, see `scheduler.state.packing.fragmentation`.
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
