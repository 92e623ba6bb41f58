"""Where the pods are after a race, as the API server has them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from e2e.bench.workload import NAMESPACE, ZONE, Json


@dataclass(frozen=True)
class Placed:
    """nodes: all. everywhere: the pods of all namespaces."""

    nodes: Sequence[Json]
    everywhere: Sequence[Json]

    @cached_property
    def pods(self) -> Sequence[Json]:
        """Those of the backlog that have a node."""
        backlog = [pod for pod in self.everywhere if pod["metadata"]["namespace"] == NAMESPACE]
        return [pod for pod in backlog if pod["spec"].get("nodeName")]

    def zone_of(self, pod: Json) -> str:
        """Of the pod's node."""
        return self._zones[pod["spec"]["nodeName"]]

    def per_node(self) -> Counter[str]:
        """How many of `pods` are on each node that has any, by the node's name."""
        return Counter(pod["spec"]["nodeName"] for pod in self.pods)

    @cached_property
    def _zones(self) -> Mapping[str, str]:
        return {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in self.nodes}
