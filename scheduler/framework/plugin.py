"""Extension points: when a plugin is called, and which answers it may give.

    PreEnqueue → PreFilter → Filter → Score → Reserve → Permit → PreBind → Bind
                               │└─ cards: CardFilter → CardScore, applied by GpuShare
                               └─ fits nowhere: PostFilter

Plugins evaluate rows of the tables, not single nodes. Each extension point has its own answer type, so that an illegal
outcome cannot be written. A plugin inherits one class for each extension point that it implements. It keeps no state of
pods and nodes itself: counts are Facts (`scheduler.state.facts.fact`), and computed values go into the CycleState.
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
from scheduler.state.columns.arrays import BoolArray, Int64Array, Rows
from scheduler.state.volumes.plan import VolumePlan

if TYPE_CHECKING:
    from scheduler.state.tables import Tables

# kube-scheduler's 100 points in thousandths, so that one unit of a 640-unit node still counts. The rules taken from
# kube-scheduler give whole points, rounded as there, so that their sums compare as they do there:
# docs/develop/decisions/0033.
POINT: Final = 1_000
MAX_SCORE: Final = 100 * POINT
_NOTHING: Final = Change(0)


class Detail(ABC):
    """Addition to a reason; it differs between nodes. Its length is bounded, whatever the nodes hold."""

    @abstractmethod
    def worded(self, reason: str) -> str:
        """Return the reason with this detail, such as `Insufficient cpu: wants 12, most free 8 (of 16)`."""

    @abstractmethod
    def joined(self, other: Any) -> "Detail":  # noqa: ANN401 - another of its own class
        """Merge with the detail of other nodes."""


@dataclass(frozen=True, slots=True)
class Numbers(Detail):
    """Best numbers over the nodes with one reason: `wants 12, most free 8 (of 16)`.

    of: the total, None if it has no meaning. note: memory that is not free, such as `16 held by 1 terminating pod`.
    """

    wants: int
    most_free: int
    of: int | None = None
    note: str = ""

    def __str__(self) -> str:
        """Return the text after the reason. An over-committed node has 0 free."""
        total = "" if self.of is None else f" (of {self.of})"
        note = f", {self.note}" if self.note else ""
        return f"wants {self.wants}, most free {max(0, self.most_free)}{total}{note}"

    def worded(self, reason: str) -> str:
        """Return text such as `Insufficient cpu: wants 12, most free 8 (of 16)`."""
        return f"{reason}: {self}"

    def joined(self, other: "Numbers") -> "Numbers":
        """Return the better of the two."""
        better = other if other.most_free > self.most_free else self
        return replace(better, note=self.note or other.note)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Rejection of some of the evaluated rows.

    rejected: bool[rows evaluated]. reason: constant text; kube-scheduler's, if kube-scheduler has the rule. numbers:
    called only when a message is written, with the mask (same shape) of the rows that the message counts under this
    reason. unresolvable: bool[rows evaluated], or one bool for all rows: evictions cannot remove the reason. Always
    true for a rule that does not depend on bookings. Source: kube-scheduler, UnschedulableAndUnresolvable.
    """

    rejected: BoolArray
    reason: str
    numbers: Callable[[BoolArray], Detail] | None = None
    unresolvable: BoolArray | bool = False


@dataclass(frozen=True, slots=True)
class CardRejection:
    """Rejection of some cards of the evaluated rows. rejected: bool[cards, rows evaluated].

    reason: constant text for nodes on which too few cards remain.
    """

    rejected: BoolArray
    reason: str


class Relevance(Enum):
    """PreFilter's answer if it does not reject the pod."""

    EVALUATE = auto()
    SKIP = auto()  # not called: the plugin rejects no node for this class of pods


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rejection of the pod on every node, however the nodes change. reason: shown to the user.

    wakes_on: changes that can help, besides changes of the pod and its claims.
    """

    reason: str
    wakes_on: Change = _NOTHING


PreFilterResult: TypeAlias = Relevance | Rejected


class Normalization(Enum):
    """Conversion of raw scores to 0..MAX_SCORE over the feasible rows, at the pick.

    NONE: raw scores are in this range already. BY_MAX: score · 100 / max, in whole points rounded down; unchanged if
    max is 0. BY_MAX_REVERSED: 100 points minus that; 100 points for all if max is 0.
    Source: kube-scheduler, plugins/helper/normalize_score.go, DefaultNormalizeScore.
    """

    NONE = auto()
    BY_MAX = auto()
    BY_MAX_REVERSED = auto()


class Reservation(msgspec.Struct, frozen=True):
    """Cards, annotations and volumes that a Reserve plugin assigns to a pod on a node.

    cards: units of the whole pod on each card. annotations: added to the Binding. volumes: for the pod's claims;
    requested from the API server before the Binding.
    """

    cards: tuple[CardShare, ...] = ()
    annotations: Mapping[str, str] | None = None
    volumes: VolumePlan | None = None


class Allow(Enum):
    """Permit's answer if the pod may bind now."""

    ALLOW = auto()


@dataclass(frozen=True, slots=True)
class Wait:
    """Permit's answer if the pod has to wait for an approval, at most `timeout_s` > 0 seconds."""

    timeout_s: float


PermitResult: TypeAlias = Allow | Wait | Rejected


class PluginArgs(PluginSection):
    """Arguments of a plugin in `pluginConfig`: one field each, with type, bounds, default and description."""


class Plugin(ABC):
    """One rule. The docstring of the class is its section of the plugin reference.

    name: as in the configuration; kube-scheduler's, if kube-scheduler has the rule. Args: its arguments. on_by_default:
    whether the default profile has it; a plugin of another package is always enabled by name. indispensable: whether
    every profile must have it.
    depends: changes that can alter its answer for a row, and so make room for a pod that it rejected. Bookings do not
    rerun a rule that depends only on the node. DOMAINS: the answer for a row also depends on other rows; the rule then
    runs on all rows for every decision, and its answers are not kept.
    Source: kube-scheduler's EventsToRegister, framework/interface.go.
    """

    name: ClassVar[str]
    Args: ClassVar[type[PluginArgs]] = PluginArgs
    on_by_default: ClassVar[bool] = False
    indispensable: ClassVar[bool] = False
    depends: ClassVar[Change] = Change(0)

    def __init__(self, args: Any = None, resources: ResourceNames = ResourceNames()) -> None:  # noqa: ANN401, B008 - a subclass names its own Args; both are immutable
        """args: an instance of Args; None for the defaults.

        resources: the configured names of resources and labels.
        """
        self.args: Any = self.Args() if args is None else args
        self.resource_names = resources

    def start(self, tables: "Tables") -> None:  # noqa: B027 - most rules count nothing
        """Make the facts that must count from the first pod on: a later first count reads all pods at once."""

    def signature(self, pod: Pod, tables: "Tables") -> Hashable:  # noqa: ARG002 - most rules read the Template only
        """Return the fields of a waiting pod that this rule reads, beyond its Template.

        Pods with equal signatures share the answers of the rule. A pod whose signature changes is retried at once.
        """
        return None

    def cache_key(self, pod: Pod, tables: "Tables") -> Hashable:  # noqa: ARG002 - most rules depend on rows alone
        """Return the inputs of the rule's answers other than the pod's class and rows; it must be cheap.

        If they change, the cached answers of the class are discarded; of a rule that only scores, by fields of nodes
        and without normalization, only the scores.
        """
        return None


class PreEnqueuePlugin(Plugin):
    """Keeps a pod out of the active queue."""

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> str | None:
        """Return why the pod may not be queued; None if it may. Called again when the pod changes."""


class PreFilterPlugin(Plugin):
    """Prepares a class of pods before any node is evaluated."""

    @abstractmethod
    def pre_filter(self, pod: Pod, tables: "Tables", state: CycleState) -> PreFilterResult:
        """Compute into `state` the values that Filter and Score read. May reject the pod or skip the rule.

        The answer may depend only on the Template and `signature`, never on nodes.
        """


class FilterPlugin(Plugin):
    """Rejects nodes."""

    @abstractmethod
    def filter(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[Rejection]:
        """Return the rejections of some of `rows`, most significant first; empty if there are none.

        The answer for a row may depend only on fields that `depends` and `signature` cover.
        """

    def diagnose(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[Rejection]:
        """Return rejections for the message of an unschedulable pod: those of `filter`, with more reasons if useful.

        Override this only if the reasons cost more than the answer of `filter`, which is called far more often.
        """
        return self.filter(pod, tables, state, rows)

    def opened_by(self, pod: Pod, tables: "Tables", state: CycleState) -> int:  # noqa: ARG002 - a rule may know more
        """Return the changes that may open a domain for the pod.

        Called for a rule that depends on DOMAINS and has rejected rows for this pod. Its facts assign a bit to each
        thing that they count, see `domain_bit`. The default is all domains.
        """
        return ANY_DOMAIN

    def minimum_request(self, pod: Pod) -> Mapping[Amount, int]:  # noqa: ARG002 - most rules have no such amount
        """Return the available amounts below which `filter` always rejects a node; amounts left out have no minimum.

        Makes many waiting pods cheaper to evaluate, because nodes below the minimum are skipped.
        """
        return {}


class ScorePlugin(Plugin):
    """Prefers nodes. default_weight: the weight unless the profile sets another."""

    normalization: ClassVar[Normalization] = Normalization.NONE
    default_weight: ClassVar[int] = 1

    @abstractmethod
    def scores(self, pod: Pod) -> bool:
        """Return whether the rule scores this class of pods. False leaves the rule out, like PreScore's Skip."""

    @abstractmethod
    def score(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Int64Array:
        """Return int64[rows]: raw scores, in 0..MAX_SCORE without `normalization`. Infeasible rows: any value."""


class DomainScorePlugin(ScorePlugin):
    """Prefers nodes by the pods on other nodes. Called at each pick, on all feasible rows at once.

    Declares DOMAINS in `depends`.
    """

    @abstractmethod
    def score_domains(self, pod: Pod, tables: "Tables", state: CycleState, feasible: BoolArray) -> Int64Array | None:
        """Return int64[nodes]: 0..MAX_SCORE, normalized over the feasible rows; other rows: any value.

        None if the rule prefers no node.
        """

    def score(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Int64Array:
        """Score as if every node were feasible."""
        scores = self.score_domains(pod, tables, state, tables.valid)
        return np.zeros(tables.capacity, dtype=np.int64)[rows] if scores is None else scores[rows]


class CardFilterPlugin(Plugin):
    """Rejects cards for pods that request GPU memory. GpuShare applies it wherever it evaluates cards."""

    @abstractmethod
    def filter_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[CardRejection]:
        """Return the rejections of some cards of `rows`. Slots without a card, or with too little memory: any value."""


class CardScorePlugin(Plugin):
    """Prefers some cards of a node over others. Takes precedence over the card policy, in the order of the profile."""

    @abstractmethod
    def score_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Int64Array:
        """Return int64[cards, rows]: higher is better. Cards that do not fit: any value."""


class ReservePlugin(Plugin):
    """Reserves resources of the chosen node for the pod."""

    @abstractmethod
    def reserve(self, pod: Pod, tables: "Tables", state: CycleState, row: int, now_ns: int) -> Reservation:
        """Return the resources of `row` for the pod; the caller books them. now_ns: Unix nanoseconds."""

    def unreserve(self, pod: Pod) -> None:
        """Release everything that the plugin itself keeps for the pod. No effect if `reserve` was not reached."""


class PermitPlugin(Plugin):
    """May delay the Binding of a pod that has a node."""

    @abstractmethod
    def permit(self, pod: Pod, node: str) -> PermitResult:
        """Decide whether the pod may bind to `node` now."""


class PreBindPlugin(Plugin):
    """Makes preparations (volumes) before the Binding."""

    @abstractmethod
    async def pre_bind(self, pod: Pod, node: str) -> None:
        """Prepare the Binding; return when it may be sent. To undo the placement, raise an ApiError of a port."""
