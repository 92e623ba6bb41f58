"""Nodes, as their operator and their kubelets change them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from scheduler.kube.defaults import Identity, decoded, merge_patched, new_node
from scheduler.kube.objects import Node, Quantities, Taint
from scheduler.testing.cluster.store import Collection


class Nodes:
    """Verbs on one collection of nodes; each is one write, unless it changes nothing."""

    def __init__(self, collection: Collection[Node], identity: Identity) -> None:
        self.collection = collection
        self._identity = identity

    def __len__(self) -> int:
        return len(self.collection)

    def __iter__(self) -> Iterator[Node]:
        """Nodes in order of creation."""
        return iter(self.collection)

    def find(self, name: str) -> Node | None:
        """The node, or None."""
        return self.collection.find("", name)

    def add(self, node: Node | Mapping[str, Any]) -> Node:
        """Make a node of an object or a manifest; raises ApiConflict when the name is taken."""
        wanted = decoded(node, Node)
        named = self._identity.given_to(replace(wanted.metadata, namespace=""))
        return self.collection.create(new_node(replace(wanted, metadata=named)))

    def update(self, name: str, change: Callable[[Node], Node]) -> Node:
        """Replace the node by the result of `change`; raises ApiNotFound."""
        return self.collection.replace(change(self.collection.existing("", name)))

    def patch(
        self,
        name: str,
        *,
        labels: Mapping[str, str | None] | None = None,
        annotations: Mapping[str, str | None] | None = None,
        taints: Sequence[Taint] | None = None,
        unschedulable: bool | None = None,
        allocatable: Mapping[str, str | None] | None = None,
    ) -> Node:
        """Merge into a node in one write: a None value removes a key, a None part stays; raises ApiNotFound."""
        node = self.collection.existing("", name)
        spec, status = node.spec, node.status
        if taints is not None:
            spec = replace(spec, taints=tuple(taints))
        if unschedulable is not None:
            spec = replace(spec, unschedulable=unschedulable)
        if allocatable is not None:
            quantities: Quantities = dict(status.allocatable or {})
            status = replace(status, allocatable=merge_patched(quantities, allocatable))
        metadata = node.metadata
        if labels is not None:
            metadata = replace(metadata, labels=merge_patched(metadata.labels or {}, labels))
        if annotations is not None:
            metadata = replace(metadata, annotations=merge_patched(metadata.annotations or {}, annotations))
        return self.collection.replace(Node(metadata, spec, status))

    def delete(self, name: str) -> Node:
        """Remove the node; its pods stay, until a controller removes them. Raises ApiNotFound."""
        return self.collection.remove("", name)
