"""Counts and times what the kubelet asks, and knows whether an Allocate is under way."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from deviceplugin.kubelet.server import ContainerResponse, Devices, KubeletPlugin, Refused
from deviceplugin.report.metrics import Call, NodeMetrics

log = structlog.get_logger()


@dataclass(slots=True)
class MeasuredPlugin:
    """`server.KubeletPlugin` around another one. left: told when no kubelet watches the devices.

    allocating: Allocates under way. following: kubelets that watch the devices, two while one takes over from another.
    """

    plugin: KubeletPlugin
    metrics: NodeMetrics
    left: Callable[[], None]
    allocating: int = 0
    following: int = 0

    async def devices(self) -> AsyncIterator[Devices]:
        """As the port."""
        self.following += 1
        try:
            async for devices in self.plugin.devices():
                yield devices
        finally:
            self.following -= 1
            if not self.following:
                self.left()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """As the port."""
        self.allocating += 1
        try:
            with self._call("Allocate", len(ids)):
                return await self.plugin.allocate(ids)
        finally:
            self.allocating -= 1

    async def pre_start(self, ids: frozenset[str]) -> None:
        """As the port."""
        with self._call("PreStartContainer", len(ids)):
            await self.plugin.pre_start(ids)

    @contextmanager
    def _call(self, call: Call, units: int) -> Iterator[None]:
        began_s = time.perf_counter()
        try:
            yield
        except Refused as refused:
            self.metrics.refused(call, refused.kind, time.perf_counter() - began_s)
            log.warning("call.refused", call=call, units=units, kind=refused.kind, reason=str(refused))
            raise
        took_s = time.perf_counter() - began_s
        self.metrics.served(call, took_s)
        log.debug("call.served", call=call, units=units, took_ms=round(took_s * 1e3, 2))
