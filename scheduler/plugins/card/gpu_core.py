"""GpuCore: a share of a card's compute, counted per card like memory."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    CardFilterPlugin,
    CardRejection,
    PreFilterPlugin,
    PreFilterResult,
    Rejected,
    Relevance,
)
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, Rows
from scheduler.state.facts.fact import CardSums

if TYPE_CHECKING:
    from scheduler.state.tables import Tables

WHOLE_CARD: Final = 100
_MOST: Final = 2**31
_PER_CARD: Final = StateKey[int]("gpu_core.per_card")


class GpuCore(PreFilterPlugin, CardFilterPlugin):
    """Rejects cards that have too little of their compute share left.

    A container requests `aliyun.com/gpu-core.percentage` as a limit; one card has 100. With `gpu-count` the request is
    spread evenly over the cards, rounded up. The pod must also request gpu-mem, because that gives it a card.
    `NodeResourcesFit` checks the node's total, so a node that announces none takes no such pod.

    - `Insufficient aliyun.com/gpu-core.percentage on one card`
    - `aliyun.com/gpu-core.percentage: the pod requests 130 of one card; expected at most 100`
    - `aliyun.com/gpu-core.percentage: the pod requests no aliyun.com/gpu-mem, so it gets no card; request both`
    """

    name: ClassVar[str] = "GpuCore"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.CARDS

    def pre_filter(self, pod: Pod, tables: "Tables", state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Skip pods that request no share; reject a request that no card can meet."""
        core, memory = self.resource_names.gpu_core, self.resource_names.gpu_mem
        if not pod.template.requests.get(core, 0):
            return Relevance.SKIP
        if pod.template.gpu_request is None:
            return Rejected(f"{core}: the pod requests no {memory}, so it gets no card; request both")
        asked = percent_per_card(pod, core)
        if asked > WHOLE_CARD:
            return Rejected(f"{core}: the pod requests {asked} of one card; expected at most {WHOLE_CARD}")
        state.write(_PER_CARD, asked)
        return Relevance.EVALUATE

    def filter_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[CardRejection]:  # noqa: ARG002 - PreFilter has read it
        short = self._left(tables, rows) < state.read(_PER_CARD)
        return (CardRejection(short, f"Insufficient {self.resource_names.gpu_core} on one card"),)

    def _left(self, tables: "Tables", rows: Rows) -> Int64Array:
        return WHOLE_CARD - tables.fact(PercentBooked, self.resource_names.gpu_core).over(rows)


class PercentBooked(CardSums):
    """Percentage of each card's compute that live pods hold."""

    def __init__(self, tables: "Tables", resource: str) -> None:
        """resource: its configured name."""
        super().__init__(tables)
        self._resource = resource

    def read(self, pod: Pod) -> int | None:
        """Return the percentage on each of the pod's cards; None if the pod requests none."""
        return percent_per_card(pod, self._resource) or None


def percent_per_card(pod: Pod, resource: str) -> int:
    """Return the pod's request per card, rounded up and capped: the sum of many pods must fit into a column."""
    total, request = pod.template.requests.get(resource, 0), pod.template.gpu_request
    cards = 1 if request is None else request.cards
    return min(-(-total // cards), _MOST)
