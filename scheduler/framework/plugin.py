"""The extension points: what a plugin is called for, and what it may answer.

    PreEnqueue → PreFilter → Filter → Score → Reserve → Permit → PreBind → Bind

Plugins judge rows of the tables, not nodes one by one. Each extension point has its own answer type, so that
an illegal outcome cannot be written. A plugin inherits one class per extension point that it has.
Source of the vocabulary: kube-scheduler, pkg/scheduler/framework/interface.go.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from scheduler.framework.cycle_state import CycleState
from scheduler.pods.pod import Pod
from scheduler.state.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.booking import CardShare

if TYPE_CHECKING:
    from scheduler.state.tables import Tables

# kube-scheduler's 100 points in thousandths: one unit of a 640-unit node must still count.
MAX_SCORE: Final = 100_000


@dataclass(frozen=True, slots=True)
class Numbers:
    """The best numbers over the nodes of one reason: `wants 12, most free 8 (of 16)`.

    of: None where a total says nothing.
    """

    wants: int
    most_free: int
    of: int | None = None

    def __str__(self) -> str:
        """The words that follow the reason's text."""
        total = "" if self.of is None else f" (of {self.of})"
        return f"wants {self.wants}, most free {self.most_free}{total}"


@dataclass(frozen=True, slots=True)
class Objection:
    """A reason against some of the rows judged.

    rejected: bool[rows judged]. reason: constant text, as kube-scheduler words it where it has the rule.
    numbers: asked only when a message is written, with the mask (same shape) of the rows that the message
    counts under this reason.
    """

    rejected: BoolArray
    reason: str
    numbers: Callable[[BoolArray], Numbers] | None = None


class Relevance(Enum):
    """PreFilter's answer when it does not reject."""

    JUDGE = auto()
    SKIP = auto()  # the plugin has no objection to this class of pods on any node: Filter is not called


@dataclass(frozen=True, slots=True)
class Rejected:
    """The pod fits no node whatever the nodes look like; `reason` is what its user reads."""

    reason: str


PreFilterResult: TypeAlias = Relevance | Rejected


class Normalization(Enum):
    """How raw scores become 0..MAX_SCORE over the feasible rows, at the pick.

    NONE: they are already. BY_MAX: score · MAX_SCORE / max, unchanged when max is 0.
    BY_MAX_REVERSED: MAX_SCORE minus that; all MAX_SCORE when max is 0.
    Source: kube-scheduler, plugins/helper/normalize_score.go, DefaultNormalizeScore.
    """

    NONE = auto()
    BY_MAX = auto()
    BY_MAX_REVERSED = auto()


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a Reserve plugin takes for a pod on a node.

    cards: whole-pod units per card. annotations: become part of the Binding.
    """

    cards: tuple[CardShare, ...] = ()
    annotations: Mapping[str, str] | None = None


class Allow(Enum):
    """Permit's answer when the pod may bind now."""

    ALLOW = auto()


@dataclass(frozen=True, slots=True)
class Wait:
    """Permit's answer when the pod waits, at most `timeout_s` > 0 seconds, for somebody to allow it."""

    timeout_s: float


PermitResult: TypeAlias = Allow | Wait | Rejected


class Plugin(ABC):
    """One rule. name: as in the configuration, kube-scheduler's where it has the rule."""

    name: ClassVar[str]


class PreEnqueuePlugin(Plugin):
    """Keeps a pod out of the active queue."""

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> str | None:
        """None: may be queued. Otherwise the words for why not; asked again when the pod changes."""


class PreFilterPlugin(Plugin):
    """Looks at a class of pods before any node."""

    @abstractmethod
    def pre_filter(self, pod: Pod, tables: "Tables", state: CycleState) -> PreFilterResult:
        """Work out what Filter and Score read, into `state`; reject the pod, or say that Filter need not run."""


class FilterPlugin(Plugin):
    """Objects to nodes."""

    @abstractmethod
    def filter(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[Objection]:
        """Objections against some of `rows`, most telling first; empty when there are none.

        The answer for a row may depend on that row's columns and on what `epoch` and `signature` cover only.
        """

    def room(self, pod: Pod, tables: "Tables", rows: RowArray) -> Int64Array | None:  # noqa: ARG002 - as below
        """int64[rows]: how many pods of this class each row could take more, at most; None: no limit of mine.

        Asked for rows without objection, to wake as many waiting pods as freed place can hold.
        """
        return None

    def epoch(self, tables: "Tables") -> int:  # noqa: ARG002 - most rules look at one row only
        """A number that moves when the answer for a row may have changed although that row did not."""
        return 0

    def signature(self, pod: Pod, tables: "Tables") -> Hashable:  # noqa: ARG002 - as above
        """What this rule reads of the pod beyond its Template."""
        return None


class ScorePlugin(Plugin):
    """Prefers nodes."""

    normalization: ClassVar[Normalization] = Normalization.NONE

    @abstractmethod
    def scores(self, pod: Pod) -> bool:
        """Whether this class of pods is scored at all; False leaves the rule out, as PreScore's Skip does."""

    @abstractmethod
    def score(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Int64Array:
        """int64[rows]: raw scores, 0..MAX_SCORE unless `normalization` makes them so. Infeasible rows: any."""


class ReservePlugin(Plugin):
    """Takes something of the chosen node for the pod."""

    @abstractmethod
    def reserve(self, pod: Pod, tables: "Tables", state: CycleState, row: int, now_ns: int) -> Reservation:
        """What the pod takes of `row`; the caller books it. now_ns: Unix nanoseconds."""

    def unreserve(self, pod: Pod) -> None:
        """Give back what the plugin itself keeps for the pod."""


class PermitPlugin(Plugin):
    """May hold a pod that has a place."""

    @abstractmethod
    def permit(self, pod: Pod, node: str) -> PermitResult:
        """Whether the pod may bind to `node` now."""


class PreBindPlugin(Plugin):
    """Prepares the world before the Binding (volumes)."""

    @abstractmethod
    async def pre_bind(self, pod: Pod, node: str) -> None:
        """Return when the Binding may be sent; raise a port's ApiError to undo the placement."""
