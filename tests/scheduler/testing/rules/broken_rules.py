"""Rules with one mistake each, and the sound ones that they are made of."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import (
    CardFilterPlugin,
    CardRejection,
    FilterPlugin,
    Plugin,
    PluginArgs,
    PreFilterPlugin,
    PreFilterResult,
    Rejection,
    Relevance,
    ScorePlugin,
)
from scheduler.kube.objects import Node
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import ALL_ROWS, Int64Array, Rows
from scheduler.state.columns.labels import ABSENT
from scheduler.state.columns.row_masks import mask_of
from scheduler.state.facts.fact import CardSums, CountByKey, NodeFact
from scheduler.state.tables import Tables

TEAM: Final = "example.com/team"
LIMIT: Final = "example.com/limit"
RESOURCES: Final = ResourceNames()


def changed(rule: type[Plugin], **attributes: object) -> type[Plugin]:
    """The rule with a mistake. attributes: in the place of its own, such as `depends`, `signature` or `fact`."""
    return type("Broken", (rule,), {"name": "Broken", **attributes})


def rows_of(tables: Tables, rows: Rows) -> list[int]:
    return np.arange(tables.capacity)[rows].tolist()  # type: ignore[no-any-return]


class ByTeam(FilterPlugin):
    """A node with the label of a team takes that team's pods only. Sound."""

    name: ClassVar[str] = "ByTeam"
    depends: ClassVar[Change] = Change.LABELS

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        column = tables.labels.column(TEAM)
        mine = column.values.code(pod.annotations.get(TEAM, ""))
        codes = column.codes[rows]
        return (Rejection((codes != ABSENT) & (codes != (-2 if mine is None else mine)), "another team's node"),)

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        return pod.annotations.get(TEAM)


class Limits(NodeFact[str]):
    """A limit that a node's annotation says; counts nothing."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.closed: set[int] = set()

    def read(self, pod: Pod) -> None:
        return None

    def book(self, row: int, read: str, sign: int) -> None:
        raise NotImplementedError

    def node_changed(self, row: int, node: Node | None) -> Change:
        self.closed.discard(row)
        if node is not None and (node.metadata.annotations or {}).get(LIMIT) == "0":
            self.closed.add(row)
        return Change(0)


class Closed(FilterPlugin):
    """A node whose annotation says 0 takes no pod. Sound."""

    name: ClassVar[str] = "Closed"
    depends: ClassVar[Change] = Change.ANNOTATIONS
    fact: ClassVar[type[Limits]] = Limits

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        return (Rejection(mask_of(tables.fact(self.fact).closed, rows, tables.capacity), "closed"),)


class GhostLimits(Limits):
    """Forgets no node."""

    def node_changed(self, row: int, node: Node | None) -> Change:
        if node is not None and LIMIT in (node.metadata.annotations or {}):
            super().node_changed(row, node)
        return Change(0)


class PodsOfOwner(CountByKey[str]):
    """Pods of each owner."""

    def read(self, pod: Pod) -> str | None:
        return pod.owner_uid or None


class OnePerOwner(FilterPlugin):
    """At most one pod of an owner on a node. Sound."""

    name: ClassVar[str] = "OnePerOwner"
    depends: ClassVar[Change] = Change.PODS
    fact: ClassVar[type[CountByKey[str]]] = PodsOfOwner

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        if not pod.owner_uid:
            return ()
        return (Rejection(tables.fact(self.fact).counts(pod.owner_uid, rows) >= 1, "owner is there"),)

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        return pod.owner_uid


class OnlyAdds(PodsOfOwner):
    """Forgets the sign."""

    def book(self, row: int, read: str, sign: int) -> None:
        super().book(row, read, 1)


class Stashing(PodsOfOwner):
    """Keeps the owner aside, where a change of it goes unnoticed."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.owners: dict[str, str] = {}

    def read(self, pod: Pod) -> str | None:
        self.owners[pod.key.uid] = pod.owner_uid
        return pod.key.uid

    def book(self, row: int, read: str, sign: int) -> None:
        super().book(row, self.owners[read], sign)


class OneOwnerPerZone(OnePerOwner):
    """One pod of an owner in all the cluster. Sound."""

    name: ClassVar[str] = "OneOwnerPerZone"
    depends: ClassVar[Change] = Change.PODS | Change.DOMAINS

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        if not pod.owner_uid or not tables.fact(Anywhere).counts(pod.owner_uid, ALL_ROWS).any():
            return ()
        return (Rejection(np.ones(len(rows_of(tables, rows)), dtype=np.bool_), "owner is somewhere"),)


class Anywhere(PodsOfOwner):
    booking_change: ClassVar[Change] = Change.DOMAINS


class PreFilterOfNodes(PreFilterPlugin, ByTeam):
    """Its PreFilter looks at nodes."""

    name: ClassVar[str] = "PreFilterOfNodes"

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:
        return Relevance.EVALUATE if tables.labels.column(TEAM).codes.max() != ABSENT else Relevance.SKIP


class WrongDtype(ScorePlugin):
    name: ClassVar[str] = "WrongDtype"

    def scores(self, pod: Pod) -> bool:
        return True

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:
        return np.zeros(len(rows_of(tables, rows)))  # type: ignore[return-value] # the mistake


class SharersOfCard(CardSums):
    def read(self, pod: Pod) -> int | None:
        return 1 if pod.labels.get("app") == "web" else None


class OneWebPerCard(CardFilterPlugin):
    """At most one web pod on a card. Sound."""

    name: ClassVar[str] = "OneWebPerCard"
    depends: ClassVar[Change] = Change.CARDS

    def filter_cards(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[CardRejection]:
        if pod.labels.get("app") != "web":
            return ()
        return (CardRejection(tables.fact(SharersOfCard).over(rows) >= 1, "a web pod is on the card"),)

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        return pod.labels.get("app")


class CardsClosed(CardFilterPlugin):
    """No card of a node whose annotation says 0. Sound."""

    name: ClassVar[str] = "CardsClosed"
    depends: ClassVar[Change] = Change.ANNOTATIONS

    def filter_cards(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[CardRejection]:
        closed = mask_of(tables.fact(Limits).closed, rows, tables.capacity)
        return (CardRejection(np.broadcast_to(closed, tables.cards.units[:, rows].shape), "closed"),)


class KeepsItself(FilterPlugin):
    """Remembers the first pod that it sees."""

    name: ClassVar[str] = "KeepsItself"

    def __init__(self, args: PluginArgs | None = None, resources: ResourceNames = RESOURCES) -> None:
        super().__init__(args, resources)
        self.asked = 0

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        self.asked += 1
        return (Rejection(np.full(len(rows_of(tables, rows)), self.asked > 9, dtype=np.bool_), "enough"),)


class Raises(FilterPlugin):
    """Trusts what users write."""

    name: ClassVar[str] = "Raises"

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        return (Rejection(np.full(len(rows_of(tables, rows)), fill_value=self._wanted(pod) > 5), "too much"),)

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        return pod.annotations.get(LIMIT)

    def _wanted(self, pod: Pod) -> int:
        return int(pod.annotations.get(LIMIT, "0"))


class SometimesWrong(FilterPlugin):
    """Forgets that some rows may be asked for."""

    name: ClassVar[str] = "SometimesWrong"
    depends: ClassVar[Change] = Change.PODS

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        return (Rejection(np.zeros(tables.capacity, dtype=np.bool_), "wrong"),)


class ByPrefix(FilterPlugin):
    """Reads keys that it does not ask for, and has no signature."""

    name: ClassVar[str] = "ByPrefix"

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        found = any(key.startswith("example.com/") for key in pod.annotations)
        return (Rejection(np.full(len(rows_of(tables, rows)), found), "found"),)


class OnlyOdd(FilterPlugin):
    """Has not met pods that request 7 CPUs."""

    name: ClassVar[str] = "OnlyOdd"

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        if pod.template.requests.get("cpu") == 7000:
            message = "an odd pod"
            raise RuntimeError(message)
        return ()


SOUND: Final = (ByTeam, Closed, OnePerOwner, OneOwnerPerZone, OneWebPerCard, CardsClosed)
