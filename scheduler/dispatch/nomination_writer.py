"""Writes nominations into the status of waiting pods, for other readers."""

import asyncio
from contextlib import suppress
from weakref import WeakValueDictionary

import structlog

from scheduler.core.engine import Engine
from scheduler.dispatch.sender import Sender, Stopped, Write
from scheduler.kube.port import ApiConflict, ApiError, ApiNotFound, Cluster
from scheduler.pods.pod import Pod

log = structlog.get_logger()


class NominationWriter:
    """Writer of `nominatedNodeName`."""

    def __init__(self, engine: Engine, cluster: Cluster, sender: Sender) -> None:
        self._engine = engine
        self._cluster = cluster
        self._sender = sender
        # By UID of the pod: the status must end with the later of two nominations.
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def write(self, pod: Pod) -> None:
        """Write the current nomination, if any, into the pod's status. It holds even if the write fails."""
        async with self._writing.setdefault(pod.key.uid, asyncio.Lock()):
            kept = self._engine.nominations.of(pod.key.uid)
            node = "" if kept is None else kept.node
            try:
                with suppress(Stopped, ApiNotFound, ApiConflict):
                    await self._sender.deliver(
                        Write.STATUS, pod.key.namespace, self._cluster.set_nominated_node, pod.key, node
                    )
            except ApiError as error:
                log.warning("nomination.lost", pod=str(pod.key), node=node, reason=error.message)
