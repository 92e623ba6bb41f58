"""The extension points: when a plugin is called, and which answers it may give.

    PreEnqueue → PreFilter → Filter → Score → Reserve → Permit → PreBind → Bind
                               │└─ cards: CardFilter → CardScore → CardSet, applied by GpuShare
                               └─ fits nowhere: PostFilter

Plugins evaluate rows of the tables, not single nodes. Each extension point has its own answer type, so that an illegal
outcome cannot be written. A plugin inherits one class per extension point that it has. It keeps no state of pods and
nodes itself: counts are Facts (`scheduler.state.facts.fact`), and computed values go into the CycleState.
Source of the vocabulary: kube-scheduler, pkg/scheduler/framework/interface.go.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import msgspec
import numpy as np

from config.settings.scheduler import PluginSection
from scheduler.framework.cycle_state import CycleState
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.amounts import Amount
from scheduler.state.cards.booking import CardShare
from scheduler.state.changes import ANY_DOMAIN, Change
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.volumes.plan import VolumePlan

if TYPE_CHECKING:
    from scheduler.state.facts.fact import Fact
    from scheduler.state.tables import Tables

# kube-scheduler's 100 points in thousandths: one unit of a 640-unit node must still count. Its own rules give whole
# points, rounded as there, so that sums of theirs compare as they do there: docs/develop/decisions/0033.
POINT: Final = 1_000
MAX_SCORE: Final = 100 * POINT
_NOTHING: Final = Change(0)


class Detail(ABC):
    """Addition to a reason: it differs from node to node and is bounded, whatever the nodes hold."""

    @abstractmethod
    def worded(self, reason: str) -> str:
        """The reason with this detail, such as `Insufficient cpu: wants 12, most free 8 (of 16)`."""

    @abstractmethod
    def joined(self, other: Any) -> "Detail":  # noqa: ANN401 - another of its own class
        """Detail of the nodes of both."""


@dataclass(frozen=True, slots=True)
class Numbers(Detail):
    """The best numbers over the nodes of one reason: `wants 12, most free 8 (of 16)`.

    of: None where a total has no meaning. note: memory that is not free, such as `16 held by 1 terminating pod`.
    """

    wants: int
    most_free: int
    of: int | None = None
    note: str = ""

    def __str__(self) -> str:
        """Text after the reason. An over-committed node has 0 free."""
        total = "" if self.of is None else f" (of {self.of})"
        note = f", {self.note}" if self.note else ""
        return f"wants {self.wants}, most free {max(0, self.most_free)}{total}{note}"

    def worded(self, reason: str) -> str:
        """`Insufficient cpu: wants 12, most free 8 (of 16)`."""
        return f"{reason}: {self}"

    def joined(self, other: "Numbers") -> "Numbers":
        """The better of both."""
        better = other if other.most_free > self.most_free else self
        return replace(better, note=self.note or other.note)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A reason against some of the rows evaluated.

    rejected: bool[rows evaluated]. reason: constant text, kube-scheduler's if it has the rule. numbers: called only
    when a message is written, with the mask (same shape) of the rows that the message counts under this reason.
    unresolvable: bool[rows evaluated], or for all of them: evictions cannot remove the reason. Always so for a rule
    that does not depend on bookings. Source: kube-scheduler, UnschedulableAndUnresolvable.
    """

    rejected: BoolArray
    reason: str
    numbers: Callable[[BoolArray], Detail] | None = None
    unresolvable: BoolArray | bool = False


@dataclass(frozen=True, slots=True)
class CardRejection:
    """A reason against some cards of the rows evaluated. rejected: bool[cards, rows evaluated].

    reason: constant text for nodes on which it leaves too few cards.
    """

    rejected: BoolArray
    reason: str


@dataclass(frozen=True, slots=True)
class CardVerdict:
    """State of one card for a pod. why: why the pod cannot use it, or "".

    free: units, >= 0; short: missing units, 0 where it has enough or cannot be allocated anyway. health: the health
    with its reason, such as `unhealthy (xid-79)`, and anything else that takes the card out of use.
    """

    slot: int
    free: int
    short: int
    health: str
    why: str


class Relevance(Enum):
    """PreFilter's answer when it does not reject."""

    EVALUATE = auto()
    SKIP = auto()  # the plugin rejects no node for this class of pods: it is not called


@dataclass(frozen=True, slots=True)
class Rejected:
    """The pod fits no node, however the nodes change; `reason` is shown to its user.

    wakes_on: changes that can help, other than of the pod or its claims.
    """

    reason: str
    wakes_on: Change = _NOTHING


PreFilterResult: TypeAlias = Relevance | Rejected


class Normalization(Enum):
    """How raw scores become 0..MAX_SCORE over the feasible rows, at the pick.

    NONE: they are already. BY_MAX: score · 100 / max, in whole points rounded down; unchanged when max is 0.
    BY_MAX_REVERSED: 100 points minus that; all 100 points when max is 0.
    Source: kube-scheduler, plugins/helper/normalize_score.go, DefaultNormalizeScore.
    """

    NONE = auto()
    BY_MAX = auto()
    BY_MAX_REVERSED = auto()


class Reservation(msgspec.Struct, frozen=True):
    """Cards, annotations and volumes that a Reserve plugin assigns to a pod on a node.

    cards: whole-pod units per card. annotations: become part of the Binding. volumes: of its claims; requested from the
    API server before the Binding.
    """

    cards: tuple[CardShare, ...] = ()
    annotations: Mapping[str, str] | None = None
    volumes: VolumePlan | None = None


class Allow(Enum):
    """Permit's answer when the pod may bind now."""

    ALLOW = auto()


@dataclass(frozen=True, slots=True)
class Wait:
    """Permit's answer when the pod waits, at most `timeout_s` > 0 seconds, for an approval."""

    timeout_s: float


PermitResult: TypeAlias = Allow | Wait | Rejected


class PluginArgs(PluginSection):
    """The arguments of a plugin in `pluginConfig`: a field each, with type, bounds, default and description."""


class Plugin(ABC):
    """One rule. The class's docstring is its section of the plugin reference.

    name: as in the configuration, kube-scheduler's if it has the rule. Args: its arguments.
    on_by_default: whether the default profile has it; a plugin of another package is always enabled by name.
    indispensable: whether every profile must have it.
    depends: changes that can alter its answer for a row, and so make room for a pod that it rejected. Bookings do not
    rerun a rule that depends on the node alone. DOMAINS: the answer for a row depends on other rows too; the rule then
    runs on all rows for every decision, and its answers are not kept.
    facts: facts without arguments to keep from the start, because their first count would read all pods.
    Source: kube-scheduler's EventsToRegister, framework/interface.go.
    """

    name: ClassVar[str]
    Args: ClassVar[type[PluginArgs]] = PluginArgs
    on_by_default: ClassVar[bool] = False
    indispensable: ClassVar[bool] = False
    depends: ClassVar[Change] = Change(0)
    facts: ClassVar["tuple[type[Fact[Any]], ...]"] = ()

    def __init__(self, args: Any = None, resources: ResourceNames = ResourceNames()) -> None:  # noqa: ANN401, B008 - a subclass names its own Args; both are immutable
        """args: an instance of Args, its defaults when None.

        resources: the configured names of resources and labels.
        """
        self.args: Any = self.Args() if args is None else args
        self.resource_names = resources

    def signature(self, pod: Pod, tables: "Tables") -> Hashable:  # noqa: ARG002 - most rules read the Template only
        """Fields of a waiting pod that this rule reads, beyond its Template. Equal signatures share their answers.

        A pod whose signature changes is decided again at once.
        """
        return None

    def cache_key(self, pod: Pod, tables: "Tables") -> Hashable:  # noqa: ARG002 - most rules depend on rows alone
        """Inputs of its answers other than the pod's class and rows.

        A change discards the cached answers of the class.
        """
        return None


class PreEnqueuePlugin(Plugin):
    """Keeps a pod out of the active queue."""

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> str | None:
        """None: may be queued. Otherwise the message for why not; asked again when the pod changes."""


class PreFilterPlugin(Plugin):
    """Prepares a class of pods, before any node."""

    @abstractmethod
    def pre_filter(self, pod: Pod, tables: "Tables", state: CycleState) -> PreFilterResult:
        """Compute into `state` the values that Filter and Score read; reject the pod, or skip the rule.

        The answer may depend only on the Template and `signature`, never on nodes.
        """


class FilterPlugin(Plugin):
    """Rejects nodes."""

    @abstractmethod
    def filter(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[Rejection]:
        """Rejections of some of `rows`, most significant first; empty when there are none.

        The answer for a row may depend only on fields that `depends` and `signature` cover.
        """

    def diagnose(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[Rejection]:
        """Reasons for the message of a pod that fits nowhere: same rows as `filter`, with more reasons if that helps.

        Only for a rule whose reasons cost more than its answer; rarely called.
        """
        return self.filter(pod, tables, state, rows)

    def opened_by(self, pod: Pod, tables: "Tables", state: CycleState) -> int:  # noqa: ARG002 - a rule may know more
        """Changes that may open a domain for the pod; called for a rule that depends on DOMAINS and rejected rows.

        Bits that its facts assign to the things they count, see `domain_bit`; all domains unless the rule knows better.
        """
        return ANY_DOMAIN

    def verdicts(self, pod: Pod, tables: "Tables", state: CycleState, row: int) -> Sequence[CardVerdict]:  # noqa: ARG002 - most rules judge no cards
        """State of each card of the node for the pod, for `explain`; empty for a rule that evaluates nodes only."""
        return ()

    def minimum_request(self, pod: Pod) -> Mapping[Amount, int]:  # noqa: ARG002 - most rules have no such amount
        """Minimum available amounts without which `filter` surely rejects a node; amounts left out have no minimum.

        Makes many waiting pods cheaper: nodes below the minimum are skipped.
        """
        return {}


class ScorePlugin(Plugin):
    """Prefers nodes. default_weight: the weight unless the profile sets another."""

    normalization: ClassVar[Normalization] = Normalization.NONE
    default_weight: ClassVar[int] = 1

    @abstractmethod
    def scores(self, pod: Pod) -> bool:
        """Whether this class of pods is scored at all; False leaves the rule out, as PreScore's Skip does."""

    def cluster_input(self, pod: Pod, tables: "Tables") -> Hashable:  # noqa: ARG002 - most rules look at the row alone
        """Cluster-wide input of the scores, beyond the row's own fields.

        If it changes, all rows are rescored. Must be cheap: called after every node change. For rules without
        normalization whose `depends` are fields of the node alone.
        """
        return None

    @abstractmethod
    def score(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Int64Array:
        """int64[rows]: raw scores, 0..MAX_SCORE unless `normalization` makes them so. Infeasible rows: any."""


class DomainScorePlugin(ScorePlugin):
    """Prefers nodes by the pods on other nodes: called at each pick, on all feasible rows at once.

    Declares DOMAINS in `depends`.
    """

    @abstractmethod
    def score_domains(self, pod: Pod, tables: "Tables", state: CycleState, feasible: BoolArray) -> Int64Array | None:
        """int64[nodes]: 0..MAX_SCORE, normalised over the feasible rows; others: any. None: it prefers none."""

    def score(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Int64Array:
        """Scores as if every node were feasible."""
        scores = self.score_domains(pod, tables, state, tables.valid)
        return np.zeros(tables.capacity, dtype=np.int64)[rows] if scores is None else scores[rows]


class CardFilterPlugin(Plugin):
    """Rejects cards, for pods that request GPU memory. GpuShare applies it wherever it evaluates cards."""

    @abstractmethod
    def filter_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[CardRejection]:
        """Rejections of some cards of `rows`; a slot without a card, or without the memory, may hold anything."""


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
        """Resources of `row` for the pod; the caller books them. now_ns: Unix nanoseconds."""

    def unreserve(self, pod: Pod) -> None:
        """Release anything that the plugin itself keeps for the pod; no effect if its `reserve` was not reached."""


class PermitPlugin(Plugin):
    """May delay the Binding of a pod that has a node."""

    @abstractmethod
    def permit(self, pod: Pod, node: str) -> PermitResult:
        """Whether the pod may bind to `node` now."""


class PreBindPlugin(Plugin):
    """Prepares the world before the Binding (volumes)."""

    @abstractmethod
    async def pre_bind(self, pod: Pod, node: str) -> None:
        """Return when the Binding may be sent; raise a port's ApiError to undo the placement."""
