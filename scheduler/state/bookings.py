"""Bookings: the columns that pods change, and the row of each pod. The inner part of the tables.

a pod on a node, assumed or bound    on record and booked
a nominated pod (`nominations`)      booked while it is shown; not on record
a lifted pod                         on record, but not booked for the time of a query: `lift`, `leave_out`
"""

from collections.abc import Collection, Hashable, Iterator
from itertools import chain
from typing import Final

from scheduler.kube.objects import Node
from scheduler.pods.pod import Pod
from scheduler.state.cards.card_columns import CardColumns, Held
from scheduler.state.cards.node_inventory import NodeInventory
from scheduler.state.changes import ANY_DOMAIN, ANY_PRIORITY, Change, ChangeLog, ClusterEvents
from scheduler.state.columns.labels import Labels
from scheduler.state.columns.resources import ResourceColumns
from scheduler.state.columns.rows import Rowed
from scheduler.state.columns.selectors import Expressions
from scheduler.state.default_selectors import DefaultSelectors
from scheduler.state.facts.fact import FactT, FactTable
from scheduler.state.facts.node_domains import SELECTORS_BIT
from scheduler.state.pod_record import PodRecord, booking_kinds
from scheduler.state.volumes.volumes import Volumes


class Terminating:
    """Pods on record that are terminating. Owned by the tables."""

    def __init__(self) -> None:
        self._records: dict[str, PodRecord] = {}

    def __iter__(self) -> Iterator[PodRecord]:
        """Records of these pods, in the order in which they were noted."""
        return iter(self._records.values())

    def note(self, record: PodRecord) -> None:
        """Store a pod's record as last seen."""
        if record.pod.terminating and record.written.units:
            self._records[record.pod.key.uid] = record

    def gone(self, uid: str) -> None:
        """Remove a pod that is no longer on record."""
        self._records.pop(uid, None)


class Known(Rowed):
    """Read access to the tables, and data that is not in columns. cluster_events: see `take_cluster_events`.

    references: a number that changes with every object that pods refer to: a claim, storage, a namespace, a selector.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pods: dict[str, PodRecord] = {}
        self._pods_on: dict[str, dict[str, PodRecord]] = {}
        self._nodes: dict[str, Node] = {}
        self._inventories: dict[str, NodeInventory] = {}
        self.default_selectors = DefaultSelectors()
        self.cluster_events = ClusterEvents()
        self.references = 0
        self._pod_problems: dict[str, tuple[Pod, str]] = {}

    def is_assumed(self, uid: str) -> bool:
        """Whether we placed the pod and the API server has not shown it there yet."""
        record = self._pods.get(uid)
        return record is not None and record.assumed

    def is_gone(self, uid: str) -> bool:
        """Whether the pod once had a node, or was placed on one, and no longer exists."""
        return uid not in self._pods

    def record(self, uid: str) -> PodRecord | None:
        """Record of a pod with a node; read-only."""
        return self._pods.get(uid)

    def records(self) -> Iterator[PodRecord]:
        """Every pod with a node; read-only."""
        return iter(self._pods.values())

    def records_on(self, node: str) -> list[PodRecord]:
        """Every pod on a node."""
        return list(self._pods_on.get(node, {}).values())

    def node(self, name: str) -> Node:
        """The node as last seen. Raises KeyError if it does not exist."""
        return self._nodes[name]

    def inventory(self, node: str) -> NodeInventory:
        """Inventory of the node. Raises KeyError if the node does not exist."""
        return self._inventories[node]

    def take_pod_problems(self) -> list[tuple[Pod, str]]:
        """Pods whose allocation cannot be applied on their node, with the reason, noted since the last call."""
        found, self._pod_problems = list(self._pod_problems.values()), {}
        return found

    def take_cluster_events(self) -> ClusterEvents:
        """Cluster events since the last call."""
        found, self.cluster_events = self.cluster_events, ClusterEvents()
        return found

    def set_selector(self, namespace: str, uid: str, selector: Expressions, *, of_service: bool) -> None:
        """Set the selector of a Service or controller; () if it selects nothing or is deleted."""
        known = self.default_selectors
        new = known.set_service(namespace, uid, selector) if of_service else known.set_controller(uid, selector)
        if new:
            self.references += 1
            self.cluster_events.note_everywhere(SELECTORS_BIT)
            self.cluster_events.note_namespace(namespace)


_DOMAINS: Final = int(Change.DOMAINS)
_BOOKINGS: Final = int(Change.BOOKINGS)
_SOME_DOMAINS: Final = ANY_DOMAIN & ~_DOMAINS
_INVENTORY: Final = int(Change.INVENTORY)


class Bookings(Known):
    """Bookings of pods in the columns. Owned by the tables.

    query: number of the what-if query that places pods now and will undo this; 0 if none does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.query = 0
        self.changes = ChangeLog()
        self.labels = Labels()
        self.resources = ResourceColumns()
        self.cards = CardColumns()
        self.namespaces: dict[str, dict[str, str]] = {}
        self.volumes = Volumes()
        self._facts = FactTable(self)
        self._nominated_on: dict[str, dict[str, PodRecord]] = {}

    def pods_on(self, row: int) -> int:
        """Number of pods booked on a row, including nominated ones."""
        return len(self._pods_on.get(self.names[row], ()))

    @property
    def any_nominated(self) -> bool:
        """Whether any nominated pod is booked."""
        return bool(self._nominated_on)

    def nominated(self) -> Iterator[tuple[int, Pod]]:
        """Yield (row, pod) for each booked nominated pod."""
        for node, records in self._nominated_on.items():
            if (row := self.row_of.get(node)) is not None:
                yield from ((row, record.pod) for record in records.values())

    def kept_on_cards(self) -> Iterator[tuple[int, Held]]:
        """Yield (row, cards) for each booked nominated pod that requests cards."""
        for node, records in self._nominated_on.items():
            if (row := self.row_of.get(node)) is not None:
                yield from ((row, record.held) for record in records.values() if record.held is not None)

    def nominated_on(self, row: int) -> Collection[PodRecord]:
        """Booked nominated pods of a row."""
        return self._nominated_on.get(self.names[row], {}).values()

    # Nominated pods, and what-if

    def show(self, record: PodRecord) -> None:
        """Book a nominated pod. This frees nothing, so it wakes no pod."""
        record.read = self._facts.read(record.pod)
        for pods_on in (self._pods_on, self._nominated_on):
            pods_on.setdefault(record.node, {})[record.pod.key.uid] = record
        row = self.row_of.get(record.node)
        if row is not None:
            self._changed(row, self._book(record, row))

    def hide(self, record: PodRecord, *, for_good: bool) -> None:
        """Undo `show`. for_good: the nomination has ended, so its resources are available to all pods."""
        uid = record.pod.key.uid
        for pods_on in (self._pods_on, self._nominated_on):
            others = pods_on[record.node]
            del others[uid]
            if not others:
                del pods_on[record.node]
        row = self.row_of.get(record.node)
        if row is None:
            return
        kinds = self._unbook(record, row)
        if for_good:
            if record.pod.volumes.claims:
                self.cluster_events.note_claims(record.pod.claim_keys)
            self._opened(row, kinds, record.pod.priority)
            self._note_turned()
        else:
            self._changed(row, kinds)

    def open_again(self, record: PodRecord) -> None:
        """End a hidden nomination. By now the pod may be on record, on this node or another one."""
        row, own = self.row_of.get(record.node), self._pods.get(record.pod.key.uid)
        if row is None:
            return
        if own is not None and own.node == record.node:
            self._opened(row, _BOOKINGS, record.pod.priority)
            return
        # The nomination may have excluded pods from other rows, too. No pod is ever booked twice.
        booked = own if own is not None and own.node in self.row_of and not own.lifted else None
        if booked is not None:
            self.lift(booked)
        self.show(record)
        self.hide(record, for_good=True)
        if booked is not None:
            self.put_back(booked)

    def lift(self, record: PodRecord) -> None:
        """Remove the pod's booking for a query. Records no change: call `put_back` before anything else changes."""
        row = self.row_of[record.node]
        self._unbook(record, row)
        record.lifted = True
        self.cards.turned.clear()

    def put_back(self, record: PodRecord) -> None:
        """Undo `lift`."""
        row = self.row_of[record.node]
        self._book(record, row)
        record.lifted = False
        self.cards.turned.clear()

    def leave_out(self, record: PodRecord) -> None:
        """Lift a pod while others are placed, until `bring_back`. Cached results of the row are recomputed."""
        row = self.row_of[record.node]
        kinds = self._unbook(record, row)
        record.lifted = True
        self._changed(row, kinds)

    def bring_back(self, record: PodRecord) -> None:
        """Undo `leave_out`."""
        row = self.row_of[record.node]
        kinds = self._book(record, row)
        record.lifted = False
        self._changed(row, kinds)

    # Facts

    def pod_seen(self, pod: Pod, came_s: float) -> None:
        """Show the facts a pod that is seen for the first time. came_s: see `Fact.pod_seen`."""
        self._facts.pod_seen(pod, came_s)

    def fact(self, kind: type[FactT], *arguments: Hashable) -> FactT:
        """The fact of this kind with these arguments, created by the first call; see `facts`."""
        fact = self._facts.made.get((kind, arguments))
        if fact is None:
            nominated = (record for records in self._nominated_on.values() for record in records.values())
            return self._facts.make(kind, arguments, self._nodes, chain(self._pods.values(), nominated))
        return fact  # type: ignore[return-value] # of that kind

    # Helpers of the methods above

    def _book(self, record: PodRecord, row: int) -> int:
        """Book the pod in the columns of its row. Return the bits of the changes."""
        self._book_resources(record, row, 1)
        record.held = self._hold(record, row)
        return self._facts.book(record, row, 1) | booking_kinds(record)

    def _unbook(self, record: PodRecord, row: int) -> int:
        self._book_resources(record, row, -1)
        kinds = self._facts.book(record, row, -1) | booking_kinds(record)
        if record.held is not None:
            self.cards.release(row, record.held)
            record.held = None
        return kinds

    def _changed(self, row: int, kinds: int) -> None:
        """Record changes of a row that free nothing."""
        self.changes.note(row, kinds)
        while self.cards.turned:
            self.changes.note(self.cards.turned.pop(), _INVENTORY)

    def _hold(self, record: PodRecord, row: int) -> Held | None:
        if not record.written.units:
            return None
        return self.cards.hold(row, record.written, exclusive=record.exclusive, nominated=record.nominated)

    def _note_turned(self) -> None:
        """Record that cards of other nodes became usable or unusable because they share a UUID with this node's."""
        while self.cards.turned:
            self._opened(self.cards.turned.pop(), _INVENTORY)

    def _book_resources(self, record: PodRecord, row: int, sign: int) -> None:
        template = record.pod.template
        self.resources.add(row, template.requests, (template.scoring_cpu_millis, template.scoring_memory_bytes), sign)

    def _opened(self, row: int, kinds: int, up_to: int = ANY_PRIORITY) -> None:
        """Record changes of a row that may make room for pods. up_to: see `ClusterEvents`."""
        self.changes.note(row, kinds)
        self.cluster_events.note(row, kinds, up_to)
        self.cluster_events.note_everywhere(ANY_DOMAIN if kinds & _DOMAINS else kinds & _SOME_DOMAINS)
