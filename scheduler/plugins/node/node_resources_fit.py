"""NodeResourcesFit: compares every resource but gpu-mem by allocatable minus requested.

Source: kube-scheduler, plugins/noderesources: fit.go (fitsRequest); the score's arithmetic is in `resource_allocation`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

import numpy as np
from pydantic import AfterValidator, Field, field_validator, model_validator

from config.settings.plugins import Weight
from config.settings.scheduler import ResourceName, Resources
from config.settings.schema import Location, refuse_twins
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    POINT,
    FilterPlugin,
    PluginArgs,
    PreFilterPlugin,
    PreFilterResult,
    Rejection,
    Relevance,
    ScorePlugin,
)
from scheduler.plugins.node.resource_allocation import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    SCORE_GPU_PODS,
    Scale,
    by_utilization,
    column,
    mean,
    mean_over,
    requestable,
)
from scheduler.plugins.utilization import UtilizationShape, line_of
from scheduler.pods.effective_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod, Template
from scheduler.state.amounts import Amount
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, RowArray, Rows
from scheduler.state.columns.resources import ResourceColumns
from scheduler.state.columns.row_masks import count_of, only_row
from scheduler.state.tables import Tables

_RATIO: Final = "RequestedToCapacityRatio"
Strategy: TypeAlias = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]

TOO_MANY_PODS: Final = "Too many pods"
_NATIVE_ORDER: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_MEASURED: Final[Mapping[str, Amount]] = {
    CPU: Amount.CPU_MILLIS,
    MEMORY: Amount.MEMORY_BYTES,
    EPHEMERAL_STORAGE: Amount.EPHEMERAL_STORAGE_BYTES,
    PODS: Amount.PODS,
}
_REQUESTED: Final[StateKey["Requested"]] = StateKey("node_resources_fit.requested")
_PREFIX: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class WeightedResource(PluginArgs):
    """A resource that counts toward a score."""

    name: Annotated[str, AfterValidator(requestable)] = Field(
        description="Name, such as `cpu`. Not `resources.gpuMem`, which GpuShare scores."
    )
    weight: Weight = Field(default=1, description="Weight in the score.")


_CPU_AND_MEMORY: Final = (WeightedResource(name=CPU), WeightedResource(name=MEMORY))


class RequestedToCapacityRatio(PluginArgs):
    """User-defined line from utilization to score."""

    shape: UtilizationShape = Field(
        min_length=1, description="Points of the line, `utilization` rising; level before the first and after the last."
    )


class ScoringStrategy(PluginArgs):
    """Strategy for ranking nodes."""

    type: Strategy = Field(
        default="LeastAllocated",
        description="Prefer the emptiest nodes, the fullest, or those that `requestedToCapacityRatio` scores highest.",
    )
    resources: tuple[WeightedResource, ...] = Field(
        default=_CPU_AND_MEMORY, description="Resources that count toward the score. Empty: the default."
    )
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = Field(
        default=None,
        description="Only for the `type` of this name. `shape` is a list of `utilization` (0 to 100, rising) and "
        "`score` (0 to 10).",
    )

    @field_validator("resources")
    @classmethod
    def _each_once(cls, resources: tuple[WeightedResource, ...]) -> tuple[WeightedResource, ...]:
        refuse_twins("resource", [resource.name for resource in resources])
        return resources or _CPU_AND_MEMORY

    @model_validator(mode="after")
    def _line_where_it_counts(self) -> Self:
        if (self.type == _RATIO) is (self.requested_to_capacity_ratio is None):
            found = "none" if self.requested_to_capacity_ratio is None else f"one with type {self.type}"
            raise ValueError(f"expected requestedToCapacityRatio with type {_RATIO} and no other, found {found}")
        return self

    @property
    def scale(self) -> Scale:
        """The points that the strategy gives."""
        if self.requested_to_capacity_ratio is not None:
            return by_utilization(line_of(self.requested_to_capacity_ratio.shape))
        return LEAST_ALLOCATED if self.type == "LeastAllocated" else MOST_ALLOCATED


def _resource_group(name: str) -> str:
    if not _PREFIX.fullmatch(name):
        raise ValueError(f"expected the domain of extended resources, such as example.com, found {name[:80]!r}")
    return name


class NodeResourcesFitArgs(PluginArgs):
    """Settings for the score, and resources that the Filter ignores."""

    scoring_strategy: ScoringStrategy = Field(default=ScoringStrategy(), description="How nodes are ranked.")
    ignored_resources: tuple[ResourceName, ...] = Field(
        default=(),
        description="Extended resources that the Filter ignores.",
    )
    ignored_resource_groups: tuple[Annotated[str, AfterValidator(_resource_group)], ...] = Field(
        default=(), description="Domains whose extended resources the Filter ignores."
    )
    score_gpu_pods: bool = Field(default=False, description=SCORE_GPU_PODS)

    def contradicting(self, resources: Resources) -> Iterator[tuple[Location, str]]:
        """Yield an error for a score by gpu-mem: this rule never sees gpu-mem and would count nothing."""
        for number, resource in enumerate(self.scoring_strategy.resources):
            if resource.name == resources.gpu_mem:
                message = (
                    f"expected a resource that NodeResourcesFit handles, found {resource.name}: GpuShare scores it"
                )
                yield ("scoringStrategy", "resources", number, "name"), message


@dataclass(frozen=True, slots=True)
class Requested:
    """Requests of a class of pods, as columns. names: in the order of kube-scheduler's messages.

    version: version of the resource table for which `indexes` is valid. indexes: intp[asked], resources that some node
    offers; amounts: int64[asked, 1]; there: both as pairs. missing: names of resources that no node offers.
    """

    names: tuple[str, ...]
    version: int
    indexes: RowArray
    amounts: Int64Array
    missing: frozenset[str]
    there: tuple[tuple[int, int], ...]

    def fits_on(self, row: int, resources: ResourceColumns) -> bool:
        """Return whether one row's node has enough of everything. Python numbers take a fifth of the time of arrays."""
        allocatable, requested = resources.allocatable, resources.requested
        for index, amount in self.there:
            if allocatable.item(index, row) - requested.item(index, row) < amount:
                return False
        return not self.missing

    @classmethod
    def of(cls, requests: Sequence[tuple[str, int]], resources: ResourceColumns) -> "Requested":
        """Build the columns. requests: (resource, amount > 0), in order."""
        there = [(resources.index[name], amount) for name, amount in requests if name in resources.index]
        return cls(
            tuple(name for name, _ in requests),
            resources.version,
            np.array([index for index, _ in there], dtype=np.intp),
            np.array([[amount] for _, amount in there], dtype=np.int64),
            frozenset(name for name, _ in requests if name not in resources.index),
            tuple(there),
        )


class NodeResourcesFit(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Rejects nodes with too little of a resource; prefers the emptiest nodes, or the fullest.

    A node has too little of a resource if allocatable minus requested is less than the pod's request. This holds for
    every resource but gpu-mem, which `GpuShare` handles.

    - `Too many pods`
    - `Insufficient cpu`, `Insufficient memory`, `Insufficient ephemeral-storage`, `Insufficient <resource>`; several at
      once for one node

    A resource that the node does not list counts as 0. For each counted resource, with the pod on the node,
    `LeastAllocated` scores the free share (0 if over-committed), `MostAllocated` the requested share (at most 100
    points), and `RequestedToCapacityRatio` the value of its `shape` at the requested share. The score is their weighted
    mean, in whole points. A container that requests no cpu or memory counts as 100m or 200 MiB; an extended resource
    counts only for pods that request it. Resources that the node lacks, or that get 0 points from
    `RequestedToCapacityRatio`, do not count. Pods with gpu-mem are scored only with `scoreGpuPods`, because large pods
    need the cards of the emptiest nodes.
    Source: kube-scheduler, plugins/noderesources: fit.go (fitsRequest), least_allocated.go, most_allocated.go,
    requested_to_capacity_ratio.go.
    """

    name: ClassVar[str] = "NodeResourcesFit"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.ALLOCATABLE | Change.PODS
    Args = NodeResourcesFitArgs
    args: NodeResourcesFitArgs

    def __init__(self, args: NodeResourcesFitArgs | None = None, resources: ResourceNames = ResourceNames()) -> None:  # noqa: B008 - immutable
        super().__init__(args, resources)
        strategy = self.args.scoring_strategy
        self._scale = strategy.scale
        self._weights = [(resource.name, resource.weight) for resource in strategy.resources]
        self._ignored = frozenset(self.args.ignored_resources), frozenset(self.args.ignored_resource_groups)

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:
        """Sort the pod's requests."""
        state.write(_REQUESTED, Requested.of(self._requests(pod), tables.resources))
        return Relevance.EVALUATE

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        """Reject nodes that are full of pods or have too little of a resource."""
        requested = self._requested(pod, tables, state)
        if (row := only_row(rows)) is not None and requested.fits_on(row, tables.resources):
            return ()
        short = free(tables.resources, requested.indexes, rows) < requested.amounts
        if not requested.missing and not np.count_nonzero(short):
            return ()
        beyond = tables.resources.allocatable[requested.indexes][:, rows] < requested.amounts
        masks = zip(short, beyond, strict=True)
        rejections = []
        for name in requested.names:
            missing = name in requested.missing
            mask, hopeless = (np.ones(short.shape[1], dtype=np.bool_), True) if missing else next(masks)
            if mask.any():
                reason, stays = (TOO_MANY_PODS, False) if name == PODS else (f"Insufficient {name}", hopeless)
                rejections.append(Rejection(mask, reason, unresolvable=stays))
        return rejections

    def minimum_request(self, pod: Pod) -> Mapping[Amount, int]:
        """Return the requests for the native resources."""
        return {_MEASURED[name]: amount for name, amount in self._requests(pod) if name in _MEASURED}

    def scores(self, pod: Pod) -> bool:
        """Return whether to score the pod: a pod with gpu-mem only with `scoreGpuPods`."""
        return self.args.score_gpu_pods or pod.template.gpu_request is None

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:  # noqa: ARG002
        """Return 0..MAX_SCORE: how empty or full the node is with the pod, as weighted mean over its resources."""
        resources, scale = tables.resources, self._scale
        found = [(column(resources, pod.template, name, assumed=True), weight) for name, weight in self._weights]
        counting = [(each, weight) for each, weight in found if each is not None]
        if (row := only_row(rows)) is not None:
            there = [(each.on(row, resources), weight) for each, weight in counting]
            points = [(scale.of_row(*amounts), weight) for amounts, weight in there if amounts[1] > 0]
            return np.array([mean(points, of_used=scale.of_used) * POINT], dtype=np.int64)
        if not counting:
            return np.zeros(count_of(rows, tables.capacity), dtype=np.int64)
        over = ((*each.over(rows, resources), weight) for each, weight in counting)
        shares = ((scale.of_rows(asked, there), there > 0, weight) for asked, there, weight in over)
        return mean_over(shares, of_used=scale.of_used) * POINT

    def _requests(self, pod: Pod) -> Sequence[tuple[str, int]]:
        return ((PODS, 1), *asks(pod.template, *self._ignored))

    def _requested(self, pod: Pod, tables: Tables, state: CycleState) -> Requested:
        requested = state.read(_REQUESTED)
        if requested.version != tables.resources.version:
            requested = Requested.of(self._requests(pod), tables.resources)
            state.write(_REQUESTED, requested)
        return requested


def asks(
    template: Template, ignored: frozenset[str], groups: frozenset[str] = frozenset()
) -> tuple[tuple[str, int], ...]:
    """Return (resource, amount > 0) in kube-scheduler's order of reasons: cpu, memory, ephemeral-storage, then by name.

    ignored, groups: extended resources, and domains of extended resources, that are left out.
    """
    rank = {name: number for number, name in enumerate(_NATIVE_ORDER)}
    names = sorted(template.requests, key=lambda name: (rank.get(name, len(rank)), name))
    return tuple(
        (name, template.requests[name])
        for name in names
        if not (is_extended(name) and (name in ignored or name.partition("/")[0] in groups))
    )


def is_extended(name: str) -> bool:
    """Return whether a resource is extended. Source: pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def free(resources: ResourceColumns, indexes: RowArray, rows: Rows) -> Int64Array:
    """Return int64[indexes, rows]: allocatable minus requested, negative if too much is requested."""
    if isinstance(rows, slice):
        left: Int64Array = resources.allocatable[indexes, rows] - resources.requested[indexes, rows]
        return left
    left = np.empty((len(indexes), len(rows)), dtype=np.int64)
    for place, index in enumerate(indexes):
        # NumPy selects rows from one column in a seventh of the time of `[index, rows]`.
        np.subtract(resources.allocatable[index][rows], resources.requested[index][rows], out=left[place])
    return left
