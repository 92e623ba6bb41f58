"""GpuSharersPerCard: at most N pods on a shared card."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from pydantic import Field

from config.protocol import names
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import CardFilterPlugin, CardRejection, PluginArgs
from scheduler.kube.objects import Node
from scheduler.pods.pod import Pod
from scheduler.state.cards.node_inventory import MOST_SHARERS, max_sharers
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, Rows, resized
from scheduler.state.facts.fact import Fact

if TYPE_CHECKING:
    from scheduler.state.tables import Tables

REASON: Final = "node(s) had too few cards below the pods-per-card limit"


class GpuSharersPerCardArgs(PluginArgs):
    """The limit for nodes without the annotation `gpushare/max-sharers`."""

    max_sharers: int | None = Field(
        default=None, ge=1, le=MOST_SHARERS, description="Maximum number of pods on one card. If omitted: no limit."
    )


class GpuSharersPerCard(CardFilterPlugin):
    """Rejects cards that already hold the maximum number of pods.

    The limit is the node's annotation `gpushare/max-sharers`, otherwise the argument `maxSharers`; without both there
    is no limit. Every live pod on a card counts; a pod whose card is unknown counts on every card of its node.

    - `node(s) had too few cards below the pods-per-card limit`
    """

    name: ClassVar[str] = "GpuSharersPerCard"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.ANNOTATIONS | Change.CARDS
    Args = GpuSharersPerCardArgs
    args: GpuSharersPerCardArgs

    def filter_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[CardRejection]:  # noqa: ARG002 - as for every pod
        limits = self._limits(tables, rows)
        return () if limits is None else (CardRejection(tables.cards.holders[:, rows] >= limits, REASON),)

    def _limits(self, tables: "Tables", rows: Rows) -> Int64Array | None:
        """Return int64[rows]: pods per card; None if neither a node nor an argument limits them."""
        said = tables.fact(MaxSharers)
        if not said.nodes and self.args.max_sharers is None:
            return None
        limits = said.limits[rows]
        return np.where(limits > 0, limits, self.args.max_sharers or MOST_SHARERS + 1)


class MaxSharers(Fact):
    """Limits of the nodes. limits: int64[nodes], each node's annotation; 0 if it has none.

    nodes: number of nodes with that annotation.
    """

    def __init__(self, tables: "Tables") -> None:
        super().__init__(tables)
        self.limits: Int64Array = np.zeros(tables.capacity, dtype=np.int64)
        self.nodes = 0

    def node_changed(self, row: int, node: Node | None) -> Change:
        text = "" if node is None else (node.metadata.annotations or {}).get(names.MAX_SHARERS, "")
        limit = max_sharers(text)
        self.nodes += (limit > 0) - bool(self.limits[row])
        self.limits[row] = limit
        return Change(0)

    def grow(self, capacity: int) -> None:
        self.limits = resized(self.limits, (capacity,), 0)
