"""NodeResourcesFit: every resource but gpu-mem, by what is allocatable and not requested yet.

Source: kube-scheduler, plugins/noderesources: fit.go (fitsRequest), least_allocated.go, most_allocated.go,
resource_allocation.go.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, field_validator

from config.settings.plugins import Weight
from config.settings.scheduler import ResourceName, Resources, extended_resource
from config.settings.schema import Location, refuse_twins
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    MAX_SCORE,
    FilterPlugin,
    Objection,
    PluginArgs,
    PreFilterPlugin,
    PreFilterResult,
    Relevance,
    ScorePlugin,
)
from scheduler.pods.effective_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod, Template
from scheduler.state.amounts import Amount
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, RowArray, Rows
from scheduler.state.columns.resources import ResourceColumns
from scheduler.state.tables import Tables

Strategy: TypeAlias = Literal["LeastAllocated", "MostAllocated"]
Float64Array: TypeAlias = NDArray[np.float64]

TOO_MANY_PODS: Final = "Too many pods"
_NATIVE_ORDER: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_HUGE_PAGES: Final = re.compile(r"hugepages-[1-9][0-9]*[KMGT]i")
_SCORED_APART: Final = (CPU, MEMORY)  # CPU_INDEX, MEMORY_INDEX
_MEASURED: Final[Mapping[str, Amount]] = {
    CPU: Amount.CPU_MILLIS,
    MEMORY: Amount.MEMORY_BYTES,
    EPHEMERAL_STORAGE: Amount.EPHEMERAL_STORAGE_BYTES,
    PODS: Amount.PODS,
}
_REQUESTED: Final[StateKey["Requested"]] = StateKey("node_resources_fit.requested")
_COUNTED: Final[StateKey[Int64Array]] = StateKey("node_resources_fit.counted")


def _requestable(name: str) -> str:
    if name in _NATIVE_ORDER or _HUGE_PAGES.fullmatch(name):
        return name
    try:
        return extended_resource(name)
    except ValueError:
        known = ", ".join(_NATIVE_ORDER)
        message = f"expected {known}, hugepages-<size> or domain/name, found {name[:80]!r}"
        raise ValueError(message) from None


class WeightedResource(PluginArgs):
    """A resource that counts in a score."""

    name: Annotated[str, AfterValidator(_requestable)] = Field(
        description="The resource, such as `cpu`; not `resources.gpuMem`, which GpuShare scores."
    )
    weight: Weight = Field(default=1, description="How much it counts beside the others.")


class ScoringStrategy(PluginArgs):
    """How nodes are ranked."""

    type: Strategy = Field(default="LeastAllocated", description="Prefer the emptiest nodes, or the fullest.")
    resources: tuple[WeightedResource, ...] = Field(
        default=(WeightedResource(name=CPU), WeightedResource(name=MEMORY)), description="What counts."
    )

    @field_validator("resources")
    @classmethod
    def _each_once(cls, resources: tuple[WeightedResource, ...]) -> tuple[WeightedResource, ...]:
        refuse_twins("resource", [resource.name for resource in resources])
        return resources


class NodeResourcesFitArgs(PluginArgs):
    """What counts in the score, and what the Filter leaves to others."""

    scoring_strategy: ScoringStrategy = Field(default=ScoringStrategy(), description="How nodes are ranked.")
    ignored_resources: tuple[ResourceName, ...] = Field(
        default=(),
        description="Extended resources that the Filter does not look at, since something else provides them.",
    )

    def contradicting(self, resources: Resources) -> Iterator[tuple[Location, str]]:
        """A score by gpu-mem: this rule never sees it, and would count nothing."""
        for number, resource in enumerate(self.scoring_strategy.resources):
            if resource.name == resources.gpu_mem:
                message = f"expected a resource that NodeResourcesFit judges, found {resource.name}: GpuShare scores it"
                yield ("scoringStrategy", "resources", number, "name"), message


@dataclass(frozen=True, slots=True)
class Requested:
    """What a class of pods requests, as columns. names: in the order of kube-scheduler's messages, pods first.

    version: of the table of resources, when `indexes` was true. indexes: intp[asked], of the resources that some node
    offers; amounts: int64[asked, 1]. missing: the names that no node offers.
    """

    names: tuple[str, ...]
    version: int
    indexes: RowArray
    amounts: Int64Array
    missing: frozenset[str]

    @classmethod
    def of(cls, requests: Sequence[tuple[str, int]], resources: ResourceColumns) -> "Requested":
        """requests: (resource, amount > 0), in order."""
        there = [(resources.index[name], amount) for name, amount in requests if name in resources.index]
        return cls(
            tuple(name for name, _ in requests),
            resources.version,
            np.array([index for index, _ in there], dtype=np.intp),
            np.array([[amount] for _, amount in there], dtype=np.int64),
            frozenset(name for name, _ in requests if name not in resources.index),
        )


class NodeResourcesFit(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Rejects nodes with too little of a resource; prefers the emptiest nodes, or the fullest.

    Too little is allocatable less requested below what the pod requests, for every resource but gpu-mem, which
    `GpuShare` judges.

    - `Too many pods`
    - `Insufficient cpu`, `Insufficient memory`, `Insufficient ephemeral-storage`, `Insufficient <resource>`; several at
      once for one node

    A resource that the node does not list is one of which it has nothing. For each resource that counts, with the pod
    on the node, `LeastAllocated` scores the free share (0 when over-committed), `MostAllocated` the requested share (at
    most 1); the score is their weighted mean. cpu and memory count 100m and 200 MiB for a container that requests none;
    an extended resource counts only for pods that request it; a resource of which the node has nothing does not count.
    Source: kube-scheduler, plugins/noderesources: fit.go (fitsRequest), least_allocated.go, most_allocated.go.
    """

    name: ClassVar[str] = "NodeResourcesFit"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.ALLOCATABLE | Change.PODS
    Args = NodeResourcesFitArgs
    args: NodeResourcesFitArgs

    def __init__(self, args: NodeResourcesFitArgs | None = None, resources: ResourceNames = ResourceNames()) -> None:  # noqa: B008 - immutable
        """As Plugin."""
        super().__init__(args, resources)
        weights = {resource.name: resource.weight for resource in self.args.scoring_strategy.resources}
        native = [name for name in _SCORED_APART if name in weights]
        # cpu and memory are next to each other in the table: one view for both, or for the one that counts.
        first = _SCORED_APART.index(native[0]) if native else 0
        self._native = slice(first, first + len(native))
        self._native_weights: Int64Array = np.array([weights[name] for name in native], dtype=np.int64)[:, None]
        self._native_weight = int(self._native_weights.sum())
        self._equal_weights = bool((self._native_weights == 1).all())
        self._others = {name: weight for name, weight in weights.items() if name not in _SCORED_APART}

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:
        """Put what the pod requests in order."""
        state.write(_REQUESTED, Requested.of(self._requests(pod), tables.resources))
        return Relevance.JUDGE

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Objection]:
        """Nodes without a place for one more pod, or with too little of something."""
        requested = self._requested(pod, tables, state)
        short = free(tables.resources, requested.indexes, rows) < requested.amounts
        if not requested.missing and not np.count_nonzero(short):
            return ()
        beyond = tables.resources.allocatable[requested.indexes][:, rows] < requested.amounts
        masks = zip(short, beyond, strict=True)
        objections = []
        for name in requested.names:
            missing = name in requested.missing
            mask, hopeless = (np.ones(short.shape[1], dtype=np.bool_), True) if missing else next(masks)
            if mask.any():
                reason, stays = (TOO_MANY_PODS, False) if name == PODS else (f"Insufficient {name}", hopeless)
                objections.append(Objection(mask, reason, unresolvable=stays))
        return objections

    def least(self, pod: Pod) -> Mapping[Amount, int]:
        """What it requests of the native resources."""
        return {_MEASURED[name]: amount for name, amount in self._requests(pod) if name in _MEASURED}

    def scores(self, pod: Pod) -> bool:  # noqa: ARG002 - as kube-scheduler
        """Every pod."""
        return True

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:
        """How empty or how full the node is with the pod on it: the weighted mean over its resources, 0..MAX_SCORE."""
        resources = tables.resources
        share = least_allocated if self.args.scoring_strategy.type == "LeastAllocated" else most_allocated
        # cpu and memory count as if every container asked a little.
        requested = resources.scoring_requested[self._native, rows] + self._counted(pod, state)
        allocatable = resources.allocatable[self._native, rows]
        shares = share(requested, allocatable)
        total: Float64Array = np.add.reduce(shares if self._equal_weights else shares * self._native_weights)
        weights: Int64Array | int = self._native_weight
        if not weights or np.count_nonzero(allocatable) < allocatable.size:
            weights = np.add.reduce((allocatable > 0) * self._native_weights)
        for name, weight in self._others.items():
            columns = with_pod(resources, pod.template, name, rows)
            if columns is not None:
                total += share(*columns) * weight
                weights = weights + weight * (columns[1] > 0)
        per_weight = MAX_SCORE / (weights if isinstance(weights, int) else np.maximum(weights, 1))
        return (total * per_weight).astype(np.int64)

    def _requests(self, pod: Pod) -> Sequence[tuple[str, int]]:
        return ((PODS, 1), *asks(pod.template, frozenset(self.args.ignored_resources)))

    def _requested(self, pod: Pod, tables: Tables, state: CycleState) -> Requested:
        requested = state.read(_REQUESTED)
        if requested.version != tables.resources.version:
            requested = Requested.of(self._requests(pod), tables.resources)
            state.write(_REQUESTED, requested)
        return requested

    def _counted(self, pod: Pod, state: CycleState) -> Int64Array:
        """int64[cpu and memory, as far as they count; 1]: made at the first Score, since PreFilter may be left out."""
        counted = state.find(_COUNTED)
        if counted is None:
            both = np.array([[pod.template.scoring_cpu_millis], [pod.template.scoring_memory_bytes]], dtype=np.int64)
            counted = both[self._native]
            state.write(_COUNTED, counted)
        return counted


def asks(template: Template, ignored: frozenset[str]) -> tuple[tuple[str, int], ...]:
    """(resource, amount > 0) in the order of kube-scheduler's reasons: cpu, memory, ephemeral-storage, then by name."""
    rank = {name: number for number, name in enumerate(_NATIVE_ORDER)}
    names = sorted(template.requests, key=lambda name: (rank.get(name, len(rank)), name))
    return tuple((name, template.requests[name]) for name in names if not (is_extended(name) and name in ignored))


def is_extended(name: str) -> bool:
    """Whether a resource is an extended one. Source: pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def free(resources: ResourceColumns, indexes: RowArray, rows: Rows) -> Int64Array:
    """int64[indexes, rows]: allocatable less requested, negative where too much is requested."""
    if isinstance(rows, slice):
        left: Int64Array = resources.allocatable[indexes, rows] - resources.requested[indexes, rows]
        return left
    left = np.empty((len(indexes), len(rows)), dtype=np.int64)
    for place, index in enumerate(indexes):
        # numpy takes rows out of one column in a seventh of the time of `[index, rows]`.
        np.subtract(resources.allocatable[index][rows], resources.requested[index][rows], out=left[place])
    return left


def with_pod(
    resources: ResourceColumns, template: Template, name: str, rows: Rows
) -> tuple[Int64Array, Int64Array] | None:
    """(requested with the pod, allocatable), int64[rows] each; None when the resource does not count for this pod.

    What the pod does not request counts for nothing.
    """
    found, amount = resources.index.get(name), template.requests.get(name, 0)
    if found is None or (amount == 0 and name != EPHEMERAL_STORAGE):
        return None
    return resources.requested[found][rows] + amount, resources.allocatable[found][rows]


def least_allocated(requested: Int64Array, allocatable: Int64Array) -> Float64Array:
    """float64[rows], 0..1: what is left over; 0 where nothing is allocatable or too much is requested."""
    left: Float64Array = np.maximum(allocatable - requested, 0) / np.maximum(allocatable, 1)
    return left


def most_allocated(requested: Int64Array, allocatable: Int64Array) -> Float64Array:
    """float64[rows], 0..1: what is requested; 0 where nothing is allocatable, 1 where too much is requested."""
    used: Float64Array = np.minimum(requested, allocatable) / np.maximum(allocatable, 1)
    return used
