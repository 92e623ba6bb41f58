"""Metrics: kube-scheduler's names and units where it has the same one, `gpushare_` for what it does not have.

Source of the names: kube-scheduler, pkg/scheduler/metrics/metrics.go (subsystem `scheduler`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler.state.arrays import Int32Array
from scheduler.state.tables import Tables

_FREE_SHARES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_FAST: Final = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1)
_SLOW: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Metrics:
    """One registry; the attributes are the metrics that others count."""

    def __init__(self, tables: Tables, queue_lengths: Callable[[], dict[str, int]], *, per_card: bool) -> None:
        """per_card: whether every card has series of its own."""
        self.registry = CollectorRegistry()
        r = self.registry
        self.attempts = Counter(
            "scheduler_schedule_attempts", "Attempts to schedule pods, by result.", ["result", "profile"], registry=r
        )
        self.algorithm_s = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Time to decide on one pod.", buckets=_FAST, registry=r
        )
        self.sli_s = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from first queueing a pod to its binding.",
            ["attempts"],
            buckets=_SLOW,
            registry=r,
        )
        self.pod_attempts = Histogram(
            "scheduler_pod_scheduling_attempts",
            "Attempts until a pod was bound.",
            buckets=(1, 2, 4, 8, 16),
            registry=r,
        )
        self.bind_retries = Counter(
            "gpushare_scheduler_bind_retries", "Bind requests sent again for want of a definite answer.", registry=r
        )
        self.problems = Counter(
            "gpushare_scheduler_bad_objects",
            "Objects that could not be read as is, by kind.",
            ["kind"],
            registry=r,
        )
        self.lost_records = Counter(
            "gpushare_scheduler_lost_records", "Events and conditions that could not be written.", registry=r
        )
        self.relists = Counter("gpushare_scheduler_lists", "Complete lists, by kind.", ["kind"], registry=r)
        self.loop_lag_s = Histogram(
            "gpushare_scheduler_loop_lag_seconds", "Lag of the event loop.", buckets=_SLOW[:9], registry=r
        )
        self.binds_in_flight = Gauge("gpushare_scheduler_binds_in_flight", "Bind requests on the wire.", registry=r)
        self.pods_being_bound = Gauge(
            "gpushare_scheduler_pods_being_bound", "Pods that have a place and are not bound yet.", registry=r
        )
        self._cluster = _ClusterCollector(tables, queue_lengths, per_card=per_card)
        r.register(self._cluster)

    def freeze(self) -> None:
        """Copy what a scrape reads, on the event loop, so that the text may be rendered in another thread."""
        self._cluster.freeze()


@dataclass(frozen=True, slots=True)
class _Frozen:
    """What the tables held. cards: (node, index, UUID, units, free) of every card, empty unless `per_card`."""

    queues: dict[str, int]
    rows: list[tuple[str, int]]
    units: Int32Array
    free: Int32Array
    cards: list[tuple[str, str, str, int, int]]


class _ClusterCollector(Collector):
    """Renders the last `freeze`."""

    def __init__(self, tables: Tables, queue_lengths: Callable[[], dict[str, int]], *, per_card: bool) -> None:
        self._tables = tables
        self._queue_lengths = queue_lengths
        self._per_card = per_card
        self.freeze()

    def freeze(self) -> None:
        tables, cards = self._tables, self._tables.cards
        self._frozen = _Frozen(
            queues=self._queue_lengths(),
            rows=list(tables.row_of.items()),
            units=cards.units.copy(),
            free=cards.free.copy(),
            cards=self._every_card() if self._per_card else [],
        )

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        frozen = self._frozen
        pending = GaugeMetricFamily("scheduler_pending_pods", "Pending pods, by queue.", labels=["queue"])
        for queue, length in frozen.queues.items():
            pending.add_metric([queue], length)
        yield pending
        yield from _node_sums(frozen)
        yield _free_shares(frozen)
        if self._per_card:
            yield from _card_series(frozen)

    def _every_card(self) -> list[tuple[str, str, str, int, int]]:
        tables, cards = self._tables, self._tables.cards
        return [
            (name, str(slot.card.index), slot.card.uuid, int(cards.units[number, row]), int(cards.free[number, row]))
            for name, row in tables.row_of.items()
            for number, slot in enumerate(cards.slots[row])
        ]


def _node_sums(frozen: _Frozen) -> Iterator[Metric]:
    total = GaugeMetricFamily("gpushare_node_gpu_memory_units", "Memory units of the node's cards.", labels=["node"])
    booked = GaugeMetricFamily("gpushare_node_gpu_memory_booked_units", "Memory units booked on them.", labels=["node"])
    totals, left = frozen.units.sum(axis=0).tolist(), frozen.free.sum(axis=0).tolist()
    for name, row in frozen.rows:
        if totals[row] or left[row]:
            total.add_metric([name], totals[row])
            booked.add_metric([name], totals[row] - left[row])
    yield total
    yield booked


def _free_shares(frozen: _Frozen) -> Metric:
    exists = frozen.units > 0
    shares = np.clip(frozen.free[exists] / frozen.units[exists], 0.0, 1.0)
    family = HistogramMetricFamily("gpushare_card_free_share", "Cards by the share of their memory that is free.")
    buckets = [(str(bound), float(np.count_nonzero(shares <= bound))) for bound in _FREE_SHARES]
    family.add_metric([], [*buckets, ("+Inf", float(len(shares)))], float(shares.sum()))
    return family


def _card_series(frozen: _Frozen) -> Iterator[Metric]:
    labels = ["node", "card", "uuid"]
    total = GaugeMetricFamily("gpushare_card_memory_units", "Memory units of the card.", labels=labels)
    booked = GaugeMetricFamily("gpushare_card_memory_booked_units", "Memory units booked on the card.", labels=labels)
    for node, index, uuid, units, free in frozen.cards:
        total.add_metric([node, index, uuid], units)
        booked.add_metric([node, index, uuid], units - free)
    yield total
    yield booked
