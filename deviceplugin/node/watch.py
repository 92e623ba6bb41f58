"""Watches this node and its pods on the API server."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Final

import structlog

from deviceplugin.allocation import view
from deviceplugin.allocation.view import OwnPods
from scheduler.kube import objects
from scheduler.kube.port import ApiError, Changed, Cluster, Deleted, Kind, T, WatchEvent
from scheduler.kube.reflector import WatchBackoff, reflect
from scheduler.process.clock import Clock
from scheduler.process.contact import Contact

# After a restart of the API server, every node reconnects, so the interval is longer than the single scheduler's. A
# kubelet that renews its Lease retries about as often (nodelease/controller.go: 200 ms doubling to 7 s).
_RECONNECT_MAX_S: Final = 5.0
log = structlog.get_logger()


class NodeWatch:
    """The node as last seen; None while it does not exist or is unknown. Owned by the event loop.

    contact: since when one of its watches has failed.
    """

    def __init__(self, cluster: Cluster, name: str, rng: random.Random, clock: Clock) -> None:
        """rng: spreads retries."""
        self._cluster, self._name = cluster, name
        self._backoff = WatchBackoff(rng, reconnect_max_s=_RECONNECT_MAX_S)
        self.contact = Contact(("nodes", "pods"), clock.monotonic_s)
        self._node: objects.Node | None = None
        self._seen = asyncio.Event()

    async def node(self, on_change: Callable[[objects.Node | None], None]) -> None:
        """Follow the node forever."""
        kind = Kind("nodes", objects.Node, "/api/v1/nodes", f"metadata.name={self._name}")
        async for batch in self._reflect(kind):
            for event in batch:
                match event:
                    case Changed(node):
                        self._node = node
                        self._seen.set()
                        on_change(node)
                    case Deleted():
                        self._node = None
                        on_change(None)
                    case _:
                        pass

    async def pods(self, pods: OwnPods) -> None:
        """Follow the node's pods forever."""
        kind = view.kind_of(self._name)
        async for batch in self._reflect(kind):
            pods.apply(batch)

    def labels(self) -> dict[str, str]:
        return dict(self._node.metadata.labels or {}) if self._node else {}

    async def node_info(self) -> objects.NodeInfo:
        """Return the kubelet's report on itself and its container runtime; waits until the node object has it.

        A node object lacks it at first if it was recreated or its kubelet has not registered.
        """
        while (info := self._node_info()) is None or not info.container_runtime_version:
            self._seen.clear()
            await self._seen.wait()
        return info

    def runtime_version(self) -> str:
        """Return the version of the container runtime, as last reported by the kubelet; "" while unknown."""
        info = self._node_info()
        return info.container_runtime_version if info else ""

    def _node_info(self) -> objects.NodeInfo | None:
        return self._node.status.node_info if self._node else None

    def _reflect(self, kind: Kind[T]) -> AsyncIterator[list[WatchEvent[T]]]:
        return reflect(
            self._cluster,
            kind,
            backoff=self._backoff,
            on_trouble=self._trouble,
            on_answer=lambda kind, _: self.contact.answered(kind.name),
        )

    def _trouble(self, kind: Kind[T], error: ApiError | None) -> None:
        if error is None:
            self.contact.recovered(kind.name)
            log.info("watch.recovered", kind=kind.name)
        elif self.contact.failed(kind.name, error.message):
            log.warning("watch.failed", kind=kind.name, reason=error.message, status=error.status)
