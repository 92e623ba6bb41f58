"""The scheduler's metrics: counters of its work, and the state of the cluster at each scrape."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from prometheus_client import CollectorRegistry

from scheduler.metrics import series
from scheduler.metrics.cluster_series import copied
from scheduler.process.scrape import exposition
from scheduler.process.series import new_registry
from scheduler.state.facts.namespace_memory import NamespaceMemory
from scheduler.state.tables import Tables

_FAST: Final = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1)
_SLOW: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
_ATTEMPTS: Final = (1, 2, 4, 8, 16)
# Same as kube-scheduler's.
_VICTIMS: Final = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """One registry for counters, as attributes. The state of the cluster is read at each scrape.

    waiting: text of the metrics of waiting pods; may be set.
    """

    def __init__(self, tables: Tables, queue_lengths: Callable[[], dict[str, int]], *, per_card: bool) -> None:
        """per_card: whether every card has metrics of its own."""
        self.registry = r = new_registry()
        self.attempts = series.ATTEMPTS.counter(r)
        self.algorithm_s = series.ALGORITHM.histogram(r, _FAST)
        self.sli_s = series.SLI.histogram(r, _SLOW)
        self.pod_attempts = series.POD_ATTEMPTS.histogram(r, _ATTEMPTS)
        self.lost_wakeups = series.LOST_WAKEUPS.counter(r)
        self.preemptions = series.PREEMPTIONS.counter(r)
        self.victims = series.VICTIMS.histogram(r, _VICTIMS)
        self.reservations = series.RESERVATIONS.counter(r)
        self.bind_retries = series.BIND_RETRIES.counter(r)
        self.problems = series.BAD_OBJECTS.counter(r)
        self.lost_records = series.LOST_RECORDS.counter(r)
        self.relists = series.LISTS.counter(r)
        self.audits = series.AUDITS.counter(r)
        self.differences = series.DIFFERENCES.counter(r)
        self.overcommitted_cards = series.OVERCOMMITTED.gauge(r)
        self.shared_cards = series.SHARED_CARDS.gauge(r)
        self.loop_lag_s = series.LOOP_LAG.histogram(r, _SLOW[:9])
        self.loop_tasks = series.TASKS.gauge(r)
        self.binds_in_flight = series.BINDS_IN_FLIGHT.gauge(r)
        self.pods_being_bound = series.BEING_BOUND.gauge(r)
        self.replica = ReplicaMetrics(r)
        # Text of the metrics of waiting pods, from a copy that is made on the event loop.
        self.waiting: Callable[[], Iterator[bytes]] = lambda: iter(())
        self._tables = tables
        # Cheap only while the tables are empty.
        tables.fact(NamespaceMemory)
        self._queue_lengths = queue_lengths
        self._per_card = per_card

    def scrape(self) -> Iterator[bytes]:
        """Text of `/metrics`. Call it on the event loop; another thread renders the text."""
        self.replica.look()
        if not self.replica.leads():
            return exposition(self.registry)
        cluster = copied(self._tables, self._queue_lengths(), per_card=self._per_card)
        return chain(exposition(self.registry), cluster.text(), self.waiting())


class ReplicaMetrics:
    """Metrics about the role of this process. Only the leader exports the metrics of the cluster.

    leads: whether it schedules. ready: whether it could schedule. Both may be set.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.leads: Callable[[], bool] = lambda: True
        self.ready: Callable[[], bool] = lambda: True
        self._shown = series.READY.gauge(registry), series.LEADS.gauge(registry)

    def follow(self, lease: str, leads: Callable[[], bool]) -> None:
        """Export the leader status. lease: name of the Lease. Without leader election there is no such metric."""
        self.leads = leads
        series.MASTER.gauge(self._registry).labels(lease).set_function(leads)

    def look(self) -> None:
        """Update both values, on the event loop."""
        for gauge, holds in zip(self._shown, (self.ready, self.leads), strict=True):
            gauge.set(holds())
