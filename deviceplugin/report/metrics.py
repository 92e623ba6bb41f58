"""Metrics of one node.

Names and labels. Cards carry the labels of NVIDIA's dcgm-exporter, so that its dashboards and joins work on ours:
`gpu` (the index), `UUID`, `pci_bus_id` (eight digits of domain, as DCGM writes it), `device` (`nvidia<index>`),
`modelName`, `Hostname` (the node), and on series of containers `namespace`, `pod`, `container`. What DCGM has keeps its
name and unit, MiB and percent:

    DCGM_FI_DEV_GPU_UTIL      duty cycle, %          DCGM_FI_DEV_GPU_TEMP      °C
    DCGM_FI_DEV_FB_USED       MiB                    DCGM_FI_DEV_POWER_USAGE   W
    DCGM_FI_DEV_FB_FREE       MiB                    DCGM_FI_DEV_XID_ERRORS    the last XID, 0 for none

Two exporters on a node would make sums count each card twice, so these can be left out (`dcgmMetrics`). What DCGM does
not have begins with `gpushare_device_plugin_` and is in bytes and seconds, as Prometheus has it. With one card shared
by several pods, dcgm-exporter puts the card's numbers on one of them; here the series of a card name no pod, and what
a container uses is a series of its own.

Source: dcgm-exporter, etc/default-counters.csv and the labels of its output (NVIDIA/dcgm-exporter, pull 326).
"""

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.protocol.inventory import Health
from deviceplugin.driver.cards import DriverCard
from deviceplugin.report.shown import ShownCard, ShownContainer

Call: TypeAlias = Literal["Allocate", "PreStartContainer"]

METRICS_PREFIX: Final = "gpushare_device_plugin_"
_MIB: Final = 2**20
_CARD_LABELS: Final = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname")
_CONTAINER_LABELS: Final = (*_CARD_LABELS, "namespace", "pod", "container")
_DOMAIN_DIGITS: Final = 8
# The promises are 5 ms for an Allocate and 50 ms for a PreStartContainer; an Allocate may wait, 5 s at most.
_CALL_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class NodeMetrics:
    """One registry. `show_…` replaces all that was shown before: series of what is gone disappear."""

    def __init__(self, node: str, unit_mib: int, *, dcgm: bool) -> None:
        """dcgm: whether readings have series under DCGM's names too."""
        self.registry = CollectorRegistry()
        r = self.registry
        self._call_s = Histogram(
            f"{METRICS_PREFIX}call_duration_seconds",
            "Seconds to serve a kubelet call, refusals included.",
            ["call"],
            buckets=_CALL_S,
            registry=r,
        )
        self._refusals = Counter(
            f"{METRICS_PREFIX}refusals", "Kubelet calls that were refused.", ["call", "reason"], registry=r
        )
        self._registrations = Counter(f"{METRICS_PREFIX}registrations", "Registrations with the kubelet.", registry=r)
        self._registered = Gauge(
            f"{METRICS_PREFIX}registered", "1 while registered and watched by the kubelet.", registry=r
        )
        self._driver_processes = Gauge(
            f"{METRICS_PREFIX}driver_processes_started", "Processes that were made to ask the driver.", registry=r
        )
        self._driver_abandoned = Gauge(
            f"{METRICS_PREFIX}driver_processes_abandoned",
            "Processes that asked the driver, were ended, and hang in the kernel.",
            registry=r,
        )
        self._node = _NodeCollector(node, unit_mib, dcgm=dcgm)
        r.register(self._node)

    def served(self, call: Call, took_s: float) -> None:
        """A call of the kubelet was answered."""
        self._call_s.labels(call).observe(took_s)

    def refused(self, call: Call, reason: str, took_s: float) -> None:
        """A call of the kubelet was refused. reason: one of a few constants."""
        self._call_s.labels(call).observe(took_s)
        self._refusals.labels(call, reason).inc()

    def registered(self) -> None:
        """The kubelet has accepted the registration."""
        self._registrations.inc()
        self._registered.set(1)

    def unregistered(self) -> None:
        """The kubelet is away, or has stopped watching the devices."""
        self._registered.set(0)

    def show_driver(self, starts: int, abandoned: int) -> None:
        """The processes that ask the driver."""
        self._driver_processes.set(starts)
        self._driver_abandoned.set(abandoned)

    def xid(self, uuid: str, number: int, times: int = 1) -> None:
        """The driver reported an error, so many times. uuid: "" where it did not say of which card."""
        # One assignment each: a scrape renders in another thread.
        self._node.xids = self._node.xids + Counts({(uuid, number): times})
        self._node.last_xid = {**self._node.last_xid, uuid: number}

    def show_cards(self, cards: Iterable[ShownCard]) -> None:
        """Every card of the node."""
        self._node.cards = tuple(cards)

    def show_containers(self, containers: Iterable[ShownContainer]) -> None:
        """Every container with cards of ours."""
        self._node.containers = tuple(containers)

    def show_drift(self, count_of_kind: Mapping[str, int]) -> None:
        """What the last reconcile found; name the kinds that it did not find as well, with 0."""
        self._node.drift = dict(count_of_kind)


class _NodeCollector(Collector):
    """Renders what was shown last."""

    def __init__(self, node: str, unit_mib: int, *, dcgm: bool) -> None:
        self._host = node
        self._unit_bytes = unit_mib * _MIB
        self._dcgm = dcgm
        self.cards: tuple[ShownCard, ...] = ()
        self.containers: tuple[ShownContainer, ...] = ()
        self.drift: dict[str, int] = {}
        self.xids: Counts[tuple[str, int]] = Counts()
        self.last_xid: dict[str, int] = {}

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        cards = self.cards
        yield from self._memory(cards)
        yield self._health(cards)
        yield from self._of_containers()
        yield self._xid_counts(cards)
        yield self._drift()
        if self._dcgm:
            yield from self._readings(cards)

    def _memory(self, cards: tuple[ShownCard, ...]) -> Iterator[Metric]:
        total = _gauge("card_memory_total_bytes", "Usable memory of the card.")
        announced = _gauge("card_memory_announced_bytes", "Announced memory of the card: whole units.")
        allocated = _gauge("card_memory_allocated_bytes", "Memory of the card that is allocated to live pods.")
        used = _gauge("card_memory_used_bytes", "Memory of the card that is in use.")
        for shown in cards:
            labels = self._labels(shown.card)
            total.add_metric(labels, shown.card.memory_mib * _MIB)
            announced.add_metric(labels, shown.units * self._unit_bytes)
            allocated.add_metric(labels, shown.allocated_units * self._unit_bytes)
            if shown.reading is not None:
                used.add_metric(labels, shown.reading.used_mib * _MIB)
        yield from (total, announced, allocated, used)

    def _health(self, cards: tuple[ShownCard, ...]) -> Metric:
        family = GaugeMetricFamily(
            f"{METRICS_PREFIX}card_health",
            "1 for the card's health, 0 for the others.",
            labels=(*_CARD_LABELS, "health"),
        )
        for shown in cards:
            for health in Health:
                family.add_metric([*self._labels(shown.card), health.value], float(health is shown.health))
        return family

    def _of_containers(self) -> Iterator[Metric]:
        asked = _gauge(
            "container_memory_requested_bytes", "Memory that the container requested on the card.", _CONTAINER_LABELS
        )
        used = _gauge("container_memory_used_bytes", "Memory that the container uses on the card.", _CONTAINER_LABELS)
        for shown in self.containers:
            labels = [*self._labels(shown.card), shown.namespace, shown.pod, shown.container]
            asked.add_metric(labels, shown.requested_units * self._unit_bytes)
            if shown.used_mib is not None:
                used.add_metric(labels, shown.used_mib * _MIB)
        yield from (asked, used)

    def _xid_counts(self, cards: tuple[ShownCard, ...]) -> Metric:
        """Of the cards that are there, and of errors without a card."""
        family = CounterMetricFamily(
            f"{METRICS_PREFIX}xids", "XID errors that the driver reported.", labels=("UUID", "xid")
        )
        there = {"", *(shown.card.uuid for shown in cards)}
        for (uuid, number), count in sorted(self.xids.items()):
            if uuid in there:
                family.add_metric([uuid, str(number)], count)
        return family

    def _drift(self) -> Metric:
        family = GaugeMetricFamily(
            f"{METRICS_PREFIX}drift", "Drift that the last reconcile found, by kind.", labels=("kind",)
        )
        for kind, count in sorted(self.drift.items()):
            family.add_metric([kind], count)
        return family

    def _readings(self, cards: tuple[ShownCard, ...]) -> Iterator[Metric]:
        utilisation = _dcgm("GPU_UTIL", "GPU utilization (in %).")
        used, free = _dcgm("FB_USED", "Memory used (in MiB)."), _dcgm("FB_FREE", "Memory free (in MiB).")
        temperature, power = _dcgm("GPU_TEMP", "Temperature (in C)."), _dcgm("POWER_USAGE", "Power draw (in W).")
        xid = _dcgm("XID_ERRORS", "The last XID error, 0 for none.")
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


def _gauge(name: str, says: str, labels: tuple[str, ...] = _CARD_LABELS) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{METRICS_PREFIX}{name}", says, labels=labels)


def _dcgm(name: str, says: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"DCGM_FI_DEV_{name}", says, labels=_CARD_LABELS)


def _pci(address: str) -> str:
    """`0000:07:00.0` -> `00000000:07:00.0`; "" stays "", which Prometheus takes for no label."""
    domain, colon, rest = address.partition(":")
    return f"{domain.rjust(_DOMAIN_DIGITS, '0')}{colon}{rest}".upper() if colon else address
