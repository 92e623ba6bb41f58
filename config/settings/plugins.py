"""The plugins that there are, and which of them a profile switches on at which extension point. Pure.

Names, nesting and merging are KubeSchedulerConfiguration's (`profiles[].plugins`); each order below is the order in
which the default profile asks them. PreFilter, Reserve and NormalizeScore are not points of their own: they belong to
a plugin's Filter or Score and are on when that is. There is no plugin for PostFilter, Permit, PreBind and PostBind.
Source: pkg/scheduler/apis/config/v1/default_plugins.go (mergePluginSet) and framework/runtime/framework.go
(expandMultiPointPlugins) of Kubernetes 1.36.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Generic, Literal, Self, TypeAlias, TypeVar, get_args

from pydantic import Field, field_validator, model_validator

from config.settings.schema import Section

PluginName: TypeAlias = Literal[
    "UnsupportedRules",
    "SchedulingGates",
    "PrioritySort",
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "GpuShare",
    "InterPodAffinity",
    "DefaultBinder",
]
PreEnqueueName: TypeAlias = Literal["SchedulingGates"]
QueueSortName: TypeAlias = Literal["PrioritySort"]
FilterName: TypeAlias = Literal[
    "UnsupportedRules",
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "GpuShare",
    "InterPodAffinity",
]
ScoreName: TypeAlias = Literal["GpuShare", "TaintToleration", "NodeAffinity", "NodeResourcesFit"]
BindName: TypeAlias = Literal["DefaultBinder"]

DEFAULT_ORDER: Final[tuple[str, ...]] = get_args(PluginName)
DEFAULT_WEIGHTS: Final[dict[str, int]] = {
    "GpuShare": 10,
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
}
# Without these a pod is bound as if it had not asked: with a rule that nobody checks, or without its card.
INDISPENSABLE_FILTERS: Final = ("UnsupportedRules", "GpuShare")
ALL: Final = "*"
MAX_WEIGHT: Final = 100

Weight: TypeAlias = Annotated[int, Field(ge=1, le=MAX_WEIGHT)]
NameT_co = TypeVar("NameT_co", bound=str, covariant=True)
OffT_co = TypeVar("OffT_co", bound=str, covariant=True)


class PluginRef(Section, Generic[NameT_co]):
    """A plugin, by name."""

    name: NameT_co


class WeightedPluginRef(PluginRef[NameT_co], Generic[NameT_co]):
    """A plugin, and what its score counts; without a weight, what it counts by default."""

    weight: Weight | None = None


class PluginSet(Section, Generic[NameT_co, OffT_co]):
    """What is on and what is off at one extension point; `*` switches everything off that is not enabled here."""

    enabled: tuple[PluginRef[NameT_co], ...] = ()
    disabled: tuple[PluginRef[OffT_co], ...] = ()

    @field_validator("enabled", "disabled")
    @classmethod
    def _named_once(cls, refs: tuple[PluginRef[str], ...]) -> tuple[PluginRef[str], ...]:
        twice = [name for name, count in Counter(ref.name for ref in refs).items() if count > 1]
        if twice:
            message = f"expected each plugin once, found more than once: {', '.join(twice)}"
            raise ValueError(message)
        return refs


class WeightedPluginSet(PluginSet[NameT_co, OffT_co], Generic[NameT_co, OffT_co]):
    """A PluginSet at a point where weights count."""

    enabled: tuple[WeightedPluginRef[NameT_co], ...] = ()


MultiPointSet: TypeAlias = WeightedPluginSet[PluginName, Literal[PluginName, "*"]]
PreEnqueueSet: TypeAlias = PluginSet[PreEnqueueName, Literal[PreEnqueueName, "*"]]
QueueSortSet: TypeAlias = PluginSet[QueueSortName, Literal[QueueSortName, "*"]]
FilterSet: TypeAlias = PluginSet[FilterName, Literal[FilterName, "*"]]
ScoreSet: TypeAlias = WeightedPluginSet[ScoreName, Literal[ScoreName, "*"]]
BindSet: TypeAlias = PluginSet[BindName, Literal[BindName, "*"]]


class Plugins(Section):
    """What a profile changes in the default plugins: `multiPoint` at every extension point, the others at theirs."""

    multi_point: MultiPointSet = MultiPointSet()
    pre_enqueue: PreEnqueueSet = PreEnqueueSet()
    queue_sort: QueueSortSet = QueueSortSet()
    filter: FilterSet = FilterSet()
    score: ScoreSet = ScoreSet()
    bind: BindSet = BindSet()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        chosen = choose(self)
        missing = [f"filter {name}" for name in INDISPENSABLE_FILTERS if name not in chosen.filter]
        missing += [] if chosen.queue_sort else ["queueSort PrioritySort"]
        missing += [] if chosen.bind else ["bind DefaultBinder"]
        if missing:
            message = f"switches off what no profile can do without: {', '.join(missing)}"
            raise ValueError(message)
        return self


@dataclass(frozen=True, slots=True)
class ChosenPlugins:
    """The plugins of a profile at each extension point, in the order in which they are asked.

    weights: of each plugin in `score`, 1 to 100.
    """

    pre_enqueue: tuple[str, ...]
    queue_sort: tuple[str, ...]
    filter: tuple[str, ...]
    score: tuple[str, ...]
    bind: tuple[str, ...]
    weights: dict[str, int]


def choose(plugins: Plugins) -> ChosenPlugins:
    """The default plugins with the changes of `plugins`."""
    multi = plugins.multi_point
    names = _merged(DEFAULT_ORDER, [ref.name for ref in multi.enabled], {ref.name for ref in multi.disabled})
    score = _expanded(names, get_args(ScoreName), plugins.score)
    weighted = (*multi.enabled, *plugins.score.enabled)  # what is said at the point itself counts last
    weights = DEFAULT_WEIGHTS | {ref.name: ref.weight for ref in weighted if ref.weight is not None}
    return ChosenPlugins(
        pre_enqueue=_expanded(names, get_args(PreEnqueueName), plugins.pre_enqueue),
        queue_sort=_expanded(names, get_args(QueueSortName), plugins.queue_sort),
        filter=_expanded(names, get_args(FilterName), plugins.filter),
        score=score,
        bind=_expanded(names, get_args(BindName), plugins.bind),
        weights={name: weights[name] for name in score},
    )


def _merged(defaults: Sequence[str], enabled: Sequence[str], disabled: Collection[str]) -> list[str]:
    """The defaults less what is disabled, then what is enabled beyond them."""
    kept = [] if ALL in disabled else [name for name in defaults if name not in disabled]
    return [*kept, *(name for name in enabled if name not in kept)]


def _expanded(multi_point: Iterable[str], implementers: Collection[str], here: PluginSet[str, str]) -> tuple[str, ...]:
    """First what the point repeats of multiPoint, then the rest of multiPoint, then what the point alone names."""
    disabled = {ref.name for ref in here.disabled}
    from_multi = [] if ALL in disabled else [n for n in multi_point if n in implementers and n not in disabled]
    specific = [ref.name for ref in here.enabled]
    repeated = [name for name in specific if name in from_multi]
    return (
        *repeated,
        *(name for name in from_multi if name not in repeated),
        *(name for name in specific if name not in repeated),
    )
