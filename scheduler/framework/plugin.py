"""The extension points: what a plugin is called for, and what it may answer.

    PreEnqueue → PreFilter → Filter → Score → Reserve → Permit → PreBind → Bind
                               │└─ cards: CardFilter → CardScore → CardSet, applied by GpuShare
                               └─ fits nowhere: PostFilter

Plugins judge rows of the tables, not nodes one by one. Each extension point has its own answer type, so that
an illegal outcome cannot be written. A plugin inherits one class per extension point that it has; it keeps nothing of
pods and nodes itself: what it counts is a Fact (`scheduler.state.facts.fact`), and what it works out goes into the
CycleState.
Source of the vocabulary: kube-scheduler, pkg/scheduler/framework/interface.go.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import msgspec

from config.settings.scheduler import PluginSection
from scheduler.framework.cycle_state import CycleState
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.amounts import Amount
from scheduler.state.cards.booking import CardShare
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows

if TYPE_CHECKING:
    from scheduler.framework.what_if import WhatIf
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
        """What follows the reason's text."""
        total = "" if self.of is None else f" (of {self.of})"
        return f"wants {self.wants}, most free {self.most_free}{total}"


@dataclass(frozen=True, slots=True)
class Objection:
    """A reason against some of the rows judged.

    rejected: bool[rows judged]. reason: constant text, as kube-scheduler words it where it has the rule.
    numbers: asked only when a message is written, with the mask (same shape) of the rows that the message
    counts under this reason. unresolvable: bool[rows judged], or for all of them: it stays, whatever pods leave the
    node; of a rule that depends on no bookings it always does. Source: kube-scheduler, UnschedulableAndUnresolvable.
    """

    rejected: BoolArray
    reason: str
    numbers: Callable[[BoolArray], Numbers] | None = None
    unresolvable: BoolArray | bool = False


@dataclass(frozen=True, slots=True)
class CardObjection:
    """A reason against some cards of the rows judged. rejected: bool[cards, rows judged].

    reason: constant text for the nodes that have too few cards left because of it.
    """

    rejected: BoolArray
    reason: str


class Relevance(Enum):
    """PreFilter's answer when it does not reject."""

    JUDGE = auto()
    SKIP = auto()  # the plugin has no objection to this class of pods on any node: it is not called


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


class Reservation(msgspec.Struct, frozen=True):
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


class PluginArgs(PluginSection):
    """The arguments of a plugin in `pluginConfig`: a field each, with type, bounds, default and description."""


class Plugin(ABC):
    """One rule. The class's docstring is its section of the plugin reference.

    name: as in the configuration, kube-scheduler's where it has the rule. Args: its arguments.
    on_by_default: whether the default profile has it; a plugin of another package is enabled by name, whatever it says.
    indispensable: whether every profile must have it.
    depends: what can alter its answer for a row, and so what can make room for a pod that it rejected; a rule that
    depends on the node alone is not asked again by bookings. DOMAINS: the answer for a row depends on other rows too;
    the rule is then asked about all rows whenever a pod is decided, and nothing that it says is kept.
    Source: kube-scheduler's EventsToRegister, framework/interface.go.
    """

    name: ClassVar[str]
    Args: ClassVar[type[PluginArgs]] = PluginArgs
    on_by_default: ClassVar[bool] = False
    indispensable: ClassVar[bool] = False
    depends: ClassVar[Change] = Change(0)

    def __init__(self, args: Any = None, resources: ResourceNames = ResourceNames()) -> None:  # noqa: ANN401, B008 - a subclass names its own Args; both are immutable
        """args: an instance of Args, its defaults when None. resources: the configured names of what pods ask."""
        self.args: Any = self.Args() if args is None else args
        self.resource_names = resources

    def signature(self, pod: Pod, tables: "Tables") -> Hashable:  # noqa: ARG002 - most rules read the Template only
        """What this rule reads of a pod that waits, beyond its Template. Equal signatures share their answers.

        A pod whose signature changes is decided again at once.
        """
        return None


class PreEnqueuePlugin(Plugin):
    """Keeps a pod out of the active queue."""

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> str | None:
        """None: may be queued. Otherwise the message for why not; asked again when the pod changes."""


class PreFilterPlugin(Plugin):
    """Looks at a class of pods before any node."""

    @abstractmethod
    def pre_filter(self, pod: Pod, tables: "Tables", state: CycleState) -> PreFilterResult:
        """Work out what Filter and Score read, into `state`; reject the pod, or say that the rule need not run.

        The answer may depend on what the Template and `signature` hold only, never on nodes.
        """


class FilterPlugin(Plugin):
    """Objects to nodes."""

    @abstractmethod
    def filter(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[Objection]:
        """Objections against some of `rows`, most telling first; empty when there are none.

        The answer for a row may depend on what `depends` and `signature` cover only.
        """

    def diagnose(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[Objection]:
        """As `filter`, for the message of a pod that fits nowhere: rejects the same rows, by as many reasons as help.

        Only for a rule whose reasons cost more than its answer; asked rarely.
        """
        return self.filter(pod, tables, state, rows)

    def least(self, pod: Pod) -> Mapping[Amount, int]:  # noqa: ARG002 - most rules have no such amount
        """Of which amounts a node needs at least so much left, or `filter` surely rejects it; of the others, any.

        Only makes the waiting of many pods cheaper: nodes that have less are not asked about.
        """
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Pods that have to go, so that one of higher priority fits on a node.

    cards: those that it is to get there. victims: of `node`, the most important one first. violations: how many of them
    a disruption budget protects.
    """

    pod: Pod
    node: str
    cards: tuple[CardShare, ...]
    victims: tuple[Pod, ...]
    violations: int


@dataclass(frozen=True, slots=True)
class NotHelped:
    """Nothing can be done for the pod. message: for its user; reasons: what of it tells it from others.

    again: it is worth another try by and by, whatever happens. keeps: the place that is kept for it stays so.
    """

    message: str
    reasons: tuple[str, ...] = ()
    again: bool = False
    keeps: bool = False


PostFilterResult: TypeAlias = Preemption | NotHelped


class PostFilterPlugin(Plugin):
    """Does something for a pod that fits nowhere."""

    @abstractmethod
    def post_filter(self, pod: Pod, what_if: "WhatIf") -> Generator[None, None, PostFilterResult]:
        """What to do. At each `yield` others have their turn, and the cluster may change; a step takes milliseconds."""


class ScorePlugin(Plugin):
    """Prefers nodes. default_weight: what the score counts where no profile says otherwise."""

    normalization: ClassVar[Normalization] = Normalization.NONE
    default_weight: ClassVar[int] = 1

    @abstractmethod
    def scores(self, pod: Pod) -> bool:
        """Whether this class of pods is scored at all; False leaves the rule out, as PreScore's Skip does."""

    @abstractmethod
    def score(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Int64Array:
        """int64[rows]: raw scores, 0..MAX_SCORE unless `normalization` makes them so. Infeasible rows: any."""


class CardFilterPlugin(Plugin):
    """Objects to cards, for pods that ask GPU memory. GpuShare applies it wherever it judges cards."""

    @abstractmethod
    def filter_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[CardObjection]:
        """Objections against some cards of `rows`; a slot without a card, or without the memory, may hold anything."""


class CardScorePlugin(Plugin):
    """Prefers cards of a node over each other: ahead of the card policy, in the order of the profile."""

    @abstractmethod
    def score_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Int64Array:
        """int64[cards, rows]: higher is better. Cards that do not fit: any."""


class CardSetPlugin(Plugin):
    """Chooses the cards of a pod that asks several, instead of the card policy. At most one in a profile."""

    @abstractmethod
    def choose_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows, fits: BoolArray) -> RowArray:
        """intp[k, rows]: the slots taken on each row, k being the number of cards that the pod asks.

        fits: bool[cards, rows], what memory and card filters allow; a row with fewer than k gets any slots.
        """


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
