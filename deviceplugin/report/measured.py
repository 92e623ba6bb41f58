"""Counts and times what the kubelet asks, and knows whether an Allocate is under way."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from deviceplugin.kubelet.server import CallRejected, ContainerResponse
from deviceplugin.kubelet.session import Answers
from deviceplugin.report.metrics import Call, NodeMetrics

log = structlog.get_logger()


@dataclass(slots=True)
class MeasuredPlugin:
    """`session.Answers` around others. allocating: Allocates under way."""

    plugin: Answers
    metrics: NodeMetrics
    allocating: int = 0

    async def registering(self) -> None:
        """Pass through."""
        await self.plugin.registering()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """Answer Allocate, measured."""
        self.allocating += 1
        try:
            with self._call("Allocate", len(ids)):
                return await self.plugin.allocate(ids)
        finally:
            self.allocating -= 1

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Answer PreStartContainer, measured."""
        with self._call("PreStartContainer", len(ids)):
            await self.plugin.pre_start(ids)

    @contextmanager
    def _call(self, call: Call, units: int) -> Iterator[None]:
        began_s = time.perf_counter()
        try:
            yield
        except CallRejected as refused:
            self.metrics.refused(call, refused.kind, time.perf_counter() - began_s)
            log.warning("call.refused", call=call, units=units, kind=refused.kind, reason=str(refused))
            raise
        took_s = time.perf_counter() - began_s
        self.metrics.served(call, took_s)
        log.debug("call.served", call=call, units=units, took_ms=round(took_s * 1e3, 2))
