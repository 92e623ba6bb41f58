"""NodeResourcesFit: every resource but gpu-mem, by what is allocatable and not requested yet.

Source: kube-scheduler, plugins/noderesources: fit.go (fitsRequest), least_allocated.go, most_allocated.go,
resource_allocation.go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    MAX_SCORE,
    FilterPlugin,
    Objection,
    PreFilterPlugin,
    PreFilterResult,
    Relevance,
    ScorePlugin,
)
from scheduler.pods.effective_requests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler.pods.pod import Pod, Template
from scheduler.state.arrays import Int64Array, RowArray, Rows
from scheduler.state.changes import Change
from scheduler.state.resources import CPU_INDEX, MEMORY_INDEX, PODS_INDEX, ResourceColumns
from scheduler.state.tables import Tables

Strategy: TypeAlias = Literal["LeastAllocated", "MostAllocated"]
Float64Array: TypeAlias = NDArray[np.float64]

TOO_MANY_PODS: Final = "Too many pods"
_NATIVE_ORDER: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_ASKS: Final[StateKey[tuple[tuple[str, int], ...]]] = StateKey("node_resources_fit.asks")


def _by_default() -> Mapping[str, int]:
    return {CPU: 1, MEMORY: 1}


@dataclass(frozen=True, slots=True)
class NodeResourcesFitArgs:
    """weights: of the resources that count in the score, by name. ignored: extended resources that Filter skips."""

    strategy: Strategy = "LeastAllocated"
    weights: Mapping[str, int] = field(default_factory=_by_default)
    ignored: frozenset[str] = frozenset()


class NodeResourcesFit(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Judges sums of requests; `Template.requests` leaves gpu-mem out, which GpuShare judges."""

    name: ClassVar[str] = "NodeResourcesFit"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.ALLOCATABLE | Change.PODS

    def __init__(self, args: NodeResourcesFitArgs) -> None:
        """args: of the profile."""
        self._args = args

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Put what the pod asks in order."""
        state.write(_ASKS, asks(pod.template, self._args.ignored))
        return Relevance.JUDGE

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Objection]:  # noqa: ARG002
        """Nodes without a place for one more pod, or with too little of something."""
        resources = tables.resources
        full = free(resources, PODS_INDEX, rows) < 1
        objections = [Objection(full, TOO_MANY_PODS)] if np.count_nonzero(full) else []
        for name, amount in state.read(_ASKS):
            index = resources.index.get(name)
            short = np.ones_like(full) if index is None else free(resources, index, rows) < amount
            if np.count_nonzero(short):
                objections.append(Objection(short, f"Insufficient {name}"))
        return objections

    def room(self, pod: Pod, tables: Tables, state: CycleState, rows: RowArray) -> Int64Array | None:
        """Copies that what is free holds."""
        resources = tables.resources
        most = free(resources, PODS_INDEX, rows)
        for name, amount in asks(pod.template, self._args.ignored):
            index = resources.index.get(name)
            copies = np.zeros_like(most) if index is None else free(resources, index, rows) // amount
            most = np.minimum(most, copies)
        return np.maximum(most, 0)

    def scores(self, pod: Pod) -> bool:  # noqa: ARG002 - as kube-scheduler
        """Every pod."""
        return True

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:  # noqa: ARG002
        """How empty or how full the node is with the pod on it: the weighted mean over its resources, 0..MAX_SCORE."""
        share = least_allocated if self._args.strategy == "LeastAllocated" else most_allocated
        total: Float64Array = np.zeros(len(tables.valid[rows]), dtype=np.float64)
        weights: Int64Array | int = 0
        for name, weight in self._args.weights.items():
            columns = with_pod(tables.resources, pod.template, name, rows)
            if columns is not None:
                requested, allocatable = columns
                total += share(requested, allocatable) * weight
                everywhere = np.count_nonzero(allocatable) == len(allocatable)
                weights = weights + (weight if everywhere else weight * (allocatable > 0))
        return (total * MAX_SCORE / np.maximum(weights, 1)).astype(np.int64)


def asks(template: Template, ignored: frozenset[str]) -> tuple[tuple[str, int], ...]:
    """(resource, amount > 0) in the order of kube-scheduler's words: cpu, memory, ephemeral-storage, then by name."""
    rank = {name: number for number, name in enumerate(_NATIVE_ORDER)}
    names = sorted(template.requests, key=lambda name: (rank.get(name, len(rank)), name))
    return tuple((name, template.requests[name]) for name in names if not (is_extended(name) and name in ignored))


def is_extended(name: str) -> bool:
    """Whether a resource is an extended one. Source: pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def free(resources: ResourceColumns, index: int, rows: Rows) -> Int64Array:
    """int64[rows]: allocatable less requested, negative where too much is requested."""
    # Two steps: numpy takes rows out of one column in a seventh of the time of `[index, rows]`.
    left: Int64Array = resources.allocatable[index][rows] - resources.requested[index][rows]
    return left


def with_pod(
    resources: ResourceColumns, template: Template, name: str, rows: Rows
) -> tuple[Int64Array, Int64Array] | None:
    """(requested with the pod, allocatable), int64[rows] each; None when the resource does not count for this pod.

    cpu and memory count as if every container asked a little; what the pod does not ask counts for nothing.
    """
    if name in {CPU, MEMORY}:
        index = CPU_INDEX if name == CPU else MEMORY_INDEX
        ask = template.scoring_cpu_millis if name == CPU else template.scoring_memory_bytes
        return resources.scoring_requested[index][rows] + ask, resources.allocatable[index][rows]
    found, ask = resources.index.get(name), template.requests.get(name, 0)
    if found is None or (ask == 0 and name != EPHEMERAL_STORAGE):
        return None
    return resources.requested[found][rows] + ask, resources.allocatable[found][rows]


def least_allocated(requested: Int64Array, allocatable: Int64Array) -> Float64Array:
    """float64[rows], 0..1: what is left over; 0 where nothing is allocatable or too much is requested."""
    left: Float64Array = np.maximum(allocatable - requested, 0) / np.maximum(allocatable, 1)
    return left


def most_allocated(requested: Int64Array, allocatable: Int64Array) -> Float64Array:
    """float64[rows], 0..1: what is requested; 0 where nothing is allocatable, 1 where too much is requested."""
    used: Float64Array = np.minimum(requested, allocatable) / np.maximum(allocatable, 1)
    return used
