"""NodeResourcesBalancedAllocation: prefers nodes on which a pod evens out the use of CPU and memory.

Source: kube-scheduler, plugins/noderesources/balanced_allocation.go.
"""

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, field_validator

from config.settings.scheduler import Resources
from config.settings.schema import Location, refuse_twins
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import POINT, PluginArgs, ScorePlugin
from scheduler.plugins.node.resource_allocation import SCORE_GPU_PODS, Column, column, requestable
from scheduler.plugins.utilization import FULL
from scheduler.pods.effective_requests import CPU, MEMORY
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Int64Array, Rows
from scheduler.state.columns.resources import ResourceColumns
from scheduler.state.columns.row_masks import count_of, only_row
from scheduler.state.tables import Tables

Float64Array: TypeAlias = NDArray[np.float64]
_PAIR: Final = 2


class BalancedResource(PluginArgs):
    """A resource to balance."""

    name: Annotated[str, AfterValidator(requestable)] = Field(
        description="Name, such as `cpu`. Not `resources.gpuMem`, which GpuShare scores."
    )
    weight: Literal[1] = Field(default=1, description="All resources have the same weight, as in kube-scheduler.")


_CPU_AND_MEMORY: Final = (BalancedResource(name=CPU), BalancedResource(name=MEMORY))


class NodeResourcesBalancedAllocationArgs(PluginArgs):
    """The resources to balance."""

    resources: tuple[BalancedResource, ...] = Field(
        default=_CPU_AND_MEMORY, description="Resources to balance. Empty: the default."
    )
    score_gpu_pods: bool = Field(default=False, description=SCORE_GPU_PODS)

    @field_validator("resources")
    @classmethod
    def _each_once(cls, resources: tuple[BalancedResource, ...]) -> tuple[BalancedResource, ...]:
        refuse_twins("resource", [resource.name for resource in resources])
        return resources or _CPU_AND_MEMORY

    def contradicting(self, resources: Resources) -> Iterator[tuple[Location, str]]:
        """Yield an error for a balance that includes gpu-mem: this rule never sees gpu-mem and would count nothing."""
        for number, resource in enumerate(self.resources):
            if resource.name == resources.gpu_mem:
                message = (
                    f"expected a resource that NodeResourcesFit handles, found {resource.name}: GpuShare scores it"
                )
                yield ("resources", number, "name"), message


class NodeResourcesBalancedAllocation(ScorePlugin):
    """Prefers nodes on which the pod evens out the used shares of cpu and memory.

    A node's balance is 100 points minus the standard deviation of the requested shares of its resources, in percent,
    each at most 1. The score is 75 points, plus or minus half a point for each point by which the pod improves or
    worsens the balance: 50 to 100. Resources that the node lacks do not count, and extended resources count only if the
    pod requests them. A pod that requests none of the resources is not scored. A pod with gpu-mem is scored only with
    `scoreGpuPods`.
    Source: kube-scheduler, plugins/noderesources/balanced_allocation.go.
    """

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.ALLOCATABLE | Change.PODS
    Args = NodeResourcesBalancedAllocationArgs
    args: NodeResourcesBalancedAllocationArgs

    def scores(self, pod: Pod) -> bool:
        """Score only pods that request one of the resources; the least used node would get all others.

        Pods with gpu-mem are scored only if the arguments say so.
        """
        if pod.template.gpu_request is not None and not self.args.score_gpu_pods:
            return False
        return any(pod.template.requests.get(resource.name) for resource in self.args.resources)

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:  # noqa: ARG002
        """Return 50..100 points: how much better or worse balanced the node is with the pod on it."""
        resources, named = tables.resources, self.args.resources
        found = [column(resources, pod.template, resource.name, assumed=False) for resource in named]
        counting = [each for each in found if each is not None]
        if (row := only_row(rows)) is not None:
            return np.array([_on_row(counting, row, resources) * POINT], dtype=np.int64)
        if not counting:
            # Without resources, the balance does not change.
            return np.full(count_of(rows, tables.capacity), points(FULL, FULL) * POINT, dtype=np.int64)
        before, after, there = [], [], []
        for each in counting:
            asked, allocatable = each.over(rows, resources)
            some = np.maximum(allocatable, 1)
            there.append(allocatable > 0)
            after.append(_at_most_one(asked / some))
            before.append(_at_most_one((asked - each.own) / some) if each.own else after[-1])
        scores = balance_over(after, there)
        scores -= balance_over(before, there)
        scores += FULL // 2
        scores //= 2
        scores += FULL // 2
        scores *= POINT
        return scores


def points(after: int, before: int) -> int:
    """Return 50..100 points for a balance of `after` with the pod and `before` without it."""
    return FULL // 2 + (FULL // 2 + after - before) // 2


def balance(shares: Sequence[float]) -> int:
    """Return the balance, 50..100, rounded down; 100 if all shares are equal.

    shares: the requested share of each resource, 0..1.
    """
    deviation = 0.0
    if len(shares) == _PAIR:
        deviation = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > _PAIR:
        # Added in kube-scheduler's order: another order may end just below or above a whole point.
        mean = _sum(shares) / len(shares)
        deviation = sqrt(_sum([(share - mean) * (share - mean) for share in shares]) / len(shares))
    return int((1 - deviation) * FULL)


def balance_over(shares: Sequence[Float64Array], there: Sequence[BoolArray]) -> Int64Array:
    """Compute `balance` as int64[rows].

    there: rows whose node has some of the resource; elsewhere its share may be anything.
    """
    if len(shares) == _PAIR:
        deviation = shares[0] - shares[1]
        np.abs(deviation, out=deviation)
        deviation /= 2
        deviation *= there[0] & there[1]
    else:
        deviation = _deviation([np.where(each, share, 0.0) for share, each in zip(shares, there, strict=True)], there)
    np.subtract(1.0, deviation, out=deviation)
    deviation *= FULL
    return deviation.astype(np.int64)


def _at_most_one(shares: Float64Array) -> Float64Array:
    """Cap shares at 1 in place: a new array at every step would take twice as long."""
    return np.minimum(shares, 1.0, out=shares)


def _deviation(shares: Sequence[Float64Array], there: Sequence[BoolArray]) -> Float64Array:
    """Return float64[rows]: the standard deviation. shares are 0 where `there` is False."""
    count = sum(np.asarray(each, dtype=np.int64) for each in there)
    mean = sum(shares) / np.maximum(count, 1)
    squares = [np.where(each, (share - mean) * (share - mean), 0.0) for share, each in zip(shares, there, strict=True)]
    lowest = np.minimum.reduce([np.where(each, share, 1.0) for share, each in zip(shares, there, strict=True)])
    of_two = (np.maximum.reduce(shares) - lowest) / 2
    of_many = np.where(count > _PAIR, np.sqrt(sum(squares) / np.maximum(count, 1)), 0.0)
    deviation: Float64Array = np.where(count == _PAIR, of_two, of_many)
    return deviation


def _on_row(counting: Sequence[Column], row: int, resources: ResourceColumns) -> int:
    before, after = [], []
    for each in counting:
        asked, allocatable = each.on(row, resources)
        if allocatable > 0:
            after.append(min(asked / allocatable, 1.0))
            before.append(min((asked - each.own) / allocatable, 1.0))
    return points(balance(after), balance(before))


def _sum(numbers: Sequence[float]) -> float:
    total = 0.0
    for number in numbers:
        total += number
    return total
