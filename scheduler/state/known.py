"""Nodes, pods and pod selectors as last seen; `tables` updates them."""

from collections.abc import Iterator

from scheduler.kube.objects import Node
from scheduler.pods.pod import Pod
from scheduler.state.cards.node_inventory import NodeInventory
from scheduler.state.changes import ClusterEvents
from scheduler.state.columns.rows import Rowed
from scheduler.state.columns.selectors import Expressions
from scheduler.state.default_selectors import DefaultSelectors
from scheduler.state.facts.node_domains import SELECTORS_BIT
from scheduler.state.pod_record import PodRecord


class Known(Rowed):
    """The reading side of the tables, and data outside the columns. cluster_events: see `take_cluster_events`.

    references: changes whenever objects change that pods refer to: claims, storage, namespaces, selectors.
    """

    def __init__(self) -> None:
        """Empty."""
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
        """Whether we placed the pod and the API server has not shown it yet."""
        record = self._pods.get(uid)
        return record is not None and record.assumed

    def is_gone(self, uid: str) -> bool:
        """Whether a pod that had a node, or was placed, no longer exists."""
        return uid not in self._pods

    def record(self, uid: str) -> PodRecord | None:
        """Record of a pod with a node; read only."""
        return self._pods.get(uid)

    def records(self) -> Iterator[PodRecord]:
        """Every pod with a node; read only."""
        return iter(self._pods.values())

    def records_on(self, node: str) -> list[PodRecord]:
        """Every pod on a node."""
        return list(self._pods_on.get(node, {}).values())

    def node(self, name: str) -> Node:
        """The node as it was seen last; KeyError when it is not there."""
        return self._nodes[name]

    def inventory(self, node: str) -> NodeInventory:
        """Inventory of the node; KeyError if it does not exist."""
        return self._inventories[node]

    def take_pod_problems(self) -> list[tuple[Pod, str]]:
        """Pods whose allocation cannot be followed on their node, with the reason: noted since the last call."""
        found, self._pod_problems = list(self._pod_problems.values()), {}
        return found

    def take_cluster_events(self) -> ClusterEvents:
        """Cluster events since the last call."""
        found, self.cluster_events = self.cluster_events, ClusterEvents()
        return found

    def set_selector(self, namespace: str, uid: str, selector: Expressions, *, of_service: bool) -> None:
        """Set the selector of a Service or controller; () when it selects nothing, or is deleted."""
        known = self.default_selectors
        new = known.set_service(namespace, uid, selector) if of_service else known.set_controller(uid, selector)
        if new:
            self.references += 1
            self.cluster_events.note_everywhere(SELECTORS_BIT)
            self.cluster_events.note_namespace(namespace)
