"""What the API server shows of this node: the node itself, and its pods."""

import asyncio
from collections.abc import Callable

import structlog

from deviceplugin.allocation import own_pods
from deviceplugin.allocation.own_pods import OwnPods
from scheduler.kube import objects
from scheduler.kube.port import ApiError, Changed, Cluster, Deleted, Kind, T
from scheduler.kube.reflector import Backoff, reflect

log = structlog.get_logger()


class NodeWatch:
    """Owned by the event loop. The node as last seen; None while it does not exist, or is not known yet."""

    def __init__(self, cluster: Cluster, name: str, backoff: Backoff) -> None:
        self._cluster, self._name, self._backoff = cluster, name, backoff
        self._node: objects.Node | None = None
        self._seen = asyncio.Event()

    async def node(self, on_change: Callable[[objects.Node | None], None]) -> None:
        """Follow the node forever."""
        kind = Kind("nodes", objects.Node, "/api/v1/nodes", f"metadata.name={self._name}")
        async for batch in reflect(self._cluster, kind, backoff=self._backoff, on_trouble=_log_watch):
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
        kind = own_pods.kind_of(self._name)
        async for batch in reflect(self._cluster, kind, backoff=self._backoff, on_trouble=_log_watch):
            pods.apply(batch)

    def labels(self) -> dict[str, str]:
        """Of the node."""
        return dict(self._node.metadata.labels or {}) if self._node else {}

    async def runtime_version(self) -> str:
        """The container runtime of the kubelet, such as `containerd://2.1.9`; waits until the node object has it.

        A node object that is created again, or before its kubelet registers, does not have it at first.
        """
        while not (version := self._runtime_version()):
            self._seen.clear()
            await self._seen.wait()
        return version

    def _runtime_version(self) -> str:
        info = self._node.status.node_info if self._node else None
        return info.container_runtime_version if info else ""


def _log_watch(kind: Kind[T], error: ApiError | None) -> None:
    if error is None:
        log.info("watch.recovered", kind=kind.name)
    else:
        log.warning("watch.failed", kind=kind.name, reason=error.message, status=error.status)
