"""Metrics of one node, including the kubelet's calls; `series` has their names and help texts."""

import time
from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import structlog
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from config.protocol.inventory import Health
from config.protocol.isolation import ADVISORY
from deviceplugin.driver.cards import DriverCard, Xid
from deviceplugin.kubelet.server import CallRejected, ContainerResponse
from deviceplugin.kubelet.session import Answers
from deviceplugin.report import series
from deviceplugin.report.status import ShownCard, ShownContainer
from scheduler.process.series import new_registry

Call: TypeAlias = Literal["Allocate", "PreStartContainer"]

_MIB: Final = 2**20
_DOMAIN_DIGITS: Final = 8
# The targets are 5 ms for an Allocate and 50 ms for a PreStartContainer; an Allocate may wait up to 5 s.
_CALL_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class NodeMetrics:
    """Registry of the node's metrics. `show_…` replaces all earlier values, so series of removed objects disappear."""

    def __init__(self, node: str, unit_mib: int, *, dcgm: bool) -> None:
        """dcgm: whether readings also have series with DCGM's names."""
        self.registry = r = new_registry()
        self._ready = series.READY.gauge(r).labels(node)
        self._call_s = series.CALLS.histogram(r, _CALL_S)
        self._refusals = series.REFUSALS.counter(r)
        self._registrations = series.REGISTRATIONS.counter(r)
        self._registered = series.REGISTERED.gauge(r)
        self._driver_abandoned = series.DRIVER_ABANDONED.gauge(r)
        self._node = _NodeCollector(node, unit_mib, dcgm=dcgm)
        r.register(self._node)

    def show_ready(self, *, ready: bool) -> None:
        """Record the state of `/readyz`."""
        self._ready.set(ready)

    def served(self, call: Call, took_s: float) -> None:
        """Record an answered call of the kubelet."""
        self._call_s.labels(call).observe(took_s)

    def refused(self, call: Call, reason: str, took_s: float) -> None:
        """Record a rejected call of the kubelet. reason: one of a few constants."""
        self._call_s.labels(call).observe(took_s)
        self._refusals.labels(call, reason).inc()

    def registered(self) -> None:
        """Record that the kubelet has accepted the registration."""
        self._registrations.inc()
        self._registered.set(1)

    def unregistered(self) -> None:
        """Record that the kubelet is gone, or has stopped watching the devices."""
        self._registered.set(0)

    def show_driver(self, starts: int, abandoned: int) -> None:
        """Record the processes that query the driver."""
        self._node.driver_starts = starts
        self._driver_abandoned.set(abandoned)

    def xid(self, xid: Xid) -> None:
        """Count errors that the driver reported."""
        # One assignment each, because a scrape renders in another thread.
        self._node.xids = self._node.xids + Counts({(xid.uuid, xid.number): xid.times})
        self._node.last_xid = {**self._node.last_xid, xid.uuid: xid.number}

    def show_cards(self, cards: Iterable[ShownCard]) -> None:
        """Record every card of the node."""
        self._node.cards = tuple(cards)

    def show_containers(self, containers: Iterable[ShownContainer]) -> None:
        """Record every container with cards of ours."""
        self._node.containers = tuple(containers)

    def show_drift(self, count_of_kind: Mapping[str, int]) -> None:
        """Record the last reconcile's drift by kind, including zeros."""
        self._node.drift = dict(count_of_kind)


class _NodeCollector(Collector):
    """Collector that renders the last values."""

    def __init__(self, node: str, unit_mib: int, *, dcgm: bool) -> None:
        self._host = node
        self._unit_bytes = unit_mib * _MIB
        self._dcgm = dcgm
        self.cards: tuple[ShownCard, ...] = ()
        self.containers: tuple[ShownContainer, ...] = ()
        self.drift: dict[str, int] = {}
        self.driver_starts = 0
        self.xids: Counts[tuple[str, int]] = Counts()
        self.last_xid: dict[str, int] = {}

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        cards = self.cards
        yield from self._memory(cards)
        yield self._health(cards)
        yield self._isolation(cards)
        yield from self._of_containers()
        yield self._xid_counts(cards)
        yield self._drift()
        yield self._driver_processes()
        if self._dcgm:
            yield from self._readings(cards)

    def _memory(self, cards: tuple[ShownCard, ...]) -> Iterator[Metric]:
        declared = (series.CARD_TOTAL, series.CARD_ANNOUNCED, series.CARD_ALLOCATED, series.CARD_USED)
        total, announced, allocated, used = (one.gauges() for one in declared)
        for shown in cards:
            labels = self._labels(shown.card)
            total.add_metric(labels, shown.card.memory_mib * _MIB)
            announced.add_metric(labels, shown.units * self._unit_bytes)
            allocated.add_metric(labels, shown.allocated_units * self._unit_bytes)
            if shown.reading is not None:
                used.add_metric(labels, shown.reading.used_mib * _MIB)
        yield from (total, announced, allocated, used)

    def _health(self, cards: tuple[ShownCard, ...]) -> Metric:
        family = series.CARD_HEALTH.gauges()
        for shown in cards:
            for health in Health:
                family.add_metric([*self._labels(shown.card), health.value], float(health is shown.health))
        return family

    def _isolation(self, cards: tuple[ShownCard, ...]) -> Metric:
        family = series.CARD_ISOLATION.gauges()
        for shown in cards:
            family.add_metric([*self._labels(shown.card), shown.isolation or ADVISORY], 1.0)
        return family

    def _of_containers(self) -> Iterator[Metric]:
        asked, used = series.CONTAINER_REQUESTED.gauges(), series.CONTAINER_USED.gauges()
        exact = series.CONTAINER_EXACT.gauges()
        for shown in self.containers:
            labels = [*self._labels(shown.card), shown.namespace, shown.pod, shown.container]
            asked.add_metric(labels, shown.requested_units * self._unit_bytes)
            if shown.used_mib is not None:
                used.add_metric(labels, shown.used_mib * _MIB)
            if shown.exact:
                exact.add_metric(labels, 1)
        yield from (asked, used, exact)

    def _xid_counts(self, cards: tuple[ShownCard, ...]) -> Metric:
        """Return the errors of existing cards, and errors without a card."""
        family = series.XIDS.counters()
        there = {"", *(shown.card.uuid for shown in cards)}
        for (uuid, number), count in sorted(self.xids.items()):
            if uuid in there:
                family.add_metric([uuid, str(number)], count)
        return family

    def _drift(self) -> Metric:
        family = series.DRIFT.gauges()
        for kind, count in sorted(self.drift.items()):
            family.add_metric([kind], count)
        return family

    def _driver_processes(self) -> Metric:
        family = series.DRIVER_PROCESSES.counters()
        family.add_metric((), self.driver_starts)
        return family

    def _readings(self, cards: tuple[ShownCard, ...]) -> Iterator[Metric]:
        utilisation, xid = series.DCGM_UTILISATION.gauges(), series.DCGM_XID.gauges()
        used, free = series.DCGM_USED.gauges(), series.DCGM_FREE.gauges()
        temperature, power = series.DCGM_TEMPERATURE.gauges(), series.DCGM_POWER.gauges()
        for shown in cards:
            labels, reading = self._labels(shown.card), shown.reading
            xid.add_metric(labels, self.last_xid.get(shown.card.uuid, 0))
            if reading is None:
                continue
            used.add_metric(labels, reading.used_mib)
            free.add_metric(labels, max(shown.card.memory_mib - reading.used_mib, 0))
            said = ((utilisation, reading.utilisation), (temperature, reading.temperature_c), (power, reading.power_w))
            for family, value in said:
                if value is not None:
                    family.add_metric(labels, value)
        yield from (utilisation, used, free, temperature, power, xid)

    def _labels(self, card: DriverCard) -> list[str]:
        return [str(card.index), card.uuid, _pci(card.pci), f"nvidia{card.index}", card.model, self._host]


def _pci(address: str) -> str:
    """Return `00000000:07:00.0` for `0000:07:00.0`; "" stays "", which Prometheus treats as a missing label."""
    domain, colon, rest = address.partition(":")
    return f"{domain.rjust(_DOMAIN_DIGITS, '0')}{colon}{rest}".upper() if colon else address


log = structlog.get_logger()


@dataclass(slots=True)
class MeasuredPlugin:
    """`session.Answers` with measurements. allocating: number of running Allocate calls."""

    plugin: Answers
    metrics: NodeMetrics
    allocating: int = 0

    async def registering(self) -> None:
        await self.plugin.registering()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        self.allocating += 1
        try:
            with self._call("Allocate", len(ids)):
                return await self.plugin.allocate(ids)
        finally:
            self.allocating -= 1

    async def pre_start(self, ids: frozenset[str]) -> None:
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
