"""BestFit and FGD of the FGD paper's simulator as rules (docs/evidence/packing.md). Ties: node names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from e2e.packing.fragmentation import Needed, Nodes, scores_of
from e2e.packing.workload import Workload, read
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import POINT, CardScorePlugin, PluginArgs, ScorePlugin
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, Rows

if TYPE_CHECKING:
    from scheduler.state.tables import Tables

_CPU: Final = 0
# What the published policy divides by: the CPU and the card units of the largest node.
_MOST_CPU: Final = 128_000
_MOST_UNITS: Final = 8_000
_DEPENDS: Final = Change.ALLOCATABLE | Change.INVENTORY | Change.PODS | Change.CARDS


class PackingBestFit(ScorePlugin):
    """Prefers the node that has the least CPU and card units left with the pod on it, half each."""

    name: ClassVar[str] = "PackingBestFit"
    depends: ClassVar[Change] = _DEPENDS

    def scores(self, pod: Pod) -> bool:  # noqa: ARG002 - as every rule
        """Every pod."""
        return True

    def score(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Int64Array:  # noqa: ARG002 - as every rule
        """Published as scores of 0..100, spread over the feasible nodes; spreading does not change who wins."""
        needed = _needed(pod)
        cpu = (_free_cpu(tables, rows) - needed.cpu) / _MOST_CPU
        units = (_free(tables, rows).sum(axis=0) - needed.units * needed.cards) / _MOST_UNITS
        score: Int64Array = np.trunc(100 * (1 - (0.5 * cpu + 0.5 * units))).astype(np.int64) * POINT
        return score


class PackingFgdArgs(PluginArgs):
    """Against which pods fragmentation is measured."""

    workload: str = Field(default="workload.csv", description="A file of what pods ask, and how many of them.")


class PackingFgd(ScorePlugin, CardScorePlugin):
    """Prefers the node and card where the pod lessens the expected fragmentation most."""

    name: ClassVar[str] = "PackingFgd"
    depends: ClassVar[Change] = _DEPENDS
    Args = PackingFgdArgs
    args: PackingFgdArgs

    def __init__(self, args: PackingFgdArgs | None = None, resources: ResourceNames = ResourceNames()) -> None:  # noqa: B008 - immutable
        """As Plugin. The file is read when the first pod comes."""
        super().__init__(args, resources)
        self._workload: Workload | None = None
        self._allowed: NDArray[np.bool_] = np.zeros((0, 0), dtype=np.bool_)

    def scores(self, pod: Pod) -> bool:  # noqa: ARG002 - as every rule
        """Every pod: those without cards take CPU that pods with cards need."""
        return True

    def score(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Int64Array:  # noqa: ARG002 - as every rule
        """Of the best card."""
        best: Int64Array = np.maximum(self._scores(pod, tables, rows).max(axis=0), 0) * POINT
        return best

    def score_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Int64Array:  # noqa: ARG002 - as every rule
        """The first of those that score the same, however much is free on them."""
        width = tables.cards.width
        shape = tables.cards.units[:, rows].shape
        scores = np.broadcast_to(self._scores(pod, tables, rows)[:width], shape)
        return np.ascontiguousarray(scores * width - np.arange(width)[:, np.newaxis])

    def _scores(self, pod: Pod, tables: "Tables", rows: Rows) -> Int64Array:
        """int64[cards or 1, rows]: see `scores_of`; -1 where the pod does not fit."""
        if self._workload is None:
            self._workload = read(Path(self.args.workload))
        needed, cpu, free = _needed(pod), _free_cpu(tables, rows), _free(tables, rows)
        scores = np.full((len(free) if needed.shares else 1, len(cpu)), -1, dtype=np.int64)
        fits = (np.count_nonzero(free >= max(needed.units, 1), axis=0) >= needed.cards) & (cpu >= needed.cpu)
        (chosen,) = fits.nonzero()
        if len(chosen):
            codes = tables.cards.model_code
            if self._allowed.shape[1] != 1 + len(codes):
                self._allowed = _allowed(self._workload.models, codes)
            allowed = self._allowed[:, tables.cards.stored.model[0, rows][chosen]]
            nodes = Nodes(cpu[chosen], free[:, chosen], allowed)
            scores[:, chosen] = scores_of(self._workload, nodes, needed)
        return scores


def _needed(pod: Pod) -> Needed:
    request = pod.template.gpu_request
    cpu = pod.template.requests.get("cpu", 0)
    return Needed(cpu, 0, 0) if request is None else Needed(cpu, request.units_per_card, request.cards)


def _free_cpu(tables: "Tables", rows: Rows) -> Int64Array:
    return tables.resources.allocatable[_CPU, rows] - tables.resources.requested[_CPU, rows]


def _free(tables: "Tables", rows: Rows) -> Int64Array:
    """int64[cards, rows]: of every slot, also where the rows judged have fewer."""
    return tables.cards.stored.free[:, rows].astype(np.int64)


def _allowed(models: Sequence[tuple[str, ...]], codes: Mapping[str, int]) -> NDArray[np.bool_]:
    """bool[asks, codes]: models that the ask allows, by their codes in the columns of cards."""
    allowed = np.ones((len(models), 1 + len(codes)), dtype=np.bool_)
    for ask, names in enumerate(models):
        if names:
            allowed[ask] = False
            allowed[ask, [codes[name] for name in names if name in codes]] = True
    return allowed
