"""Metrics: kube-scheduler's names and units where it has the same one, `gpushare_` for what it does not have.

Source of the names: kube-scheduler, pkg/scheduler/metrics/metrics.go (subsystem `scheduler`).
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from scheduler.process.scrape import exposition
from scheduler.state.tables import Tables
from scheduler.telemetry.cluster_series import copied

_FAST: Final = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1)
_SLOW: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
# As kube-scheduler's.
_VICTIMS: Final = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """One registry for what is counted, by the attributes; the state of the cluster is read at each scrape."""

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
        self.preemption = PreemptionMetrics(r)
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
        self.audit = AuditMetrics(r)
        self.loop = LoopMetrics(r)
        self.binds_in_flight = Gauge("gpushare_scheduler_binds_in_flight", "Bind requests on the wire.", registry=r)
        self.pods_being_bound = Gauge(
            "gpushare_scheduler_pods_being_bound", "Pods that have a place and are not bound yet.", registry=r
        )
        self.leader = LeaderMetrics(r)
        self._tables = tables
        self._queue_lengths = queue_lengths
        self._per_card = per_card

    def scrape(self) -> Iterator[bytes]:
        """What `/metrics` shows, of this moment. Call it on the event loop; the text is for another thread."""
        if not self.leader.leads():
            return exposition(self.registry)
        cluster = copied(self._tables, self._queue_lengths(), per_card=self._per_card)
        return chain(exposition(self.registry), cluster.text())


class LoopMetrics:
    """How the event loop is. tasks: those that have not ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """registry: where it is shown."""
        self.lag_s = Histogram(
            "gpushare_scheduler_loop_lag_seconds", "Lag of the event loop.", buckets=_SLOW[:9], registry=registry
        )
        self.tasks = Gauge(
            "gpushare_scheduler_asyncio_tasks", "Tasks of the event loop that have not ended.", registry=registry
        )


class LeaderMetrics:
    """leads: whether this replica schedules. The others leave out what all of them would say of one cluster."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """registry: where it is shown, once `follow` is called: a process that is alone has nothing to say."""
        self._registry = registry
        self.leads: Callable[[], bool] = lambda: True

    def follow(self, lease: str, leads: Callable[[], bool]) -> None:
        """lease: its name. client-go's name of the metric."""
        self.leads = leads
        what = "1 in the replica that schedules, 0 in the others."
        gauge = Gauge("leader_election_master_status", what, ["name"], registry=self._registry)
        gauge.labels(lease).set_function(leads)


class PreemptionMetrics:
    """What was sought for pods that fit nowhere, who goes for them, and what is reserved."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """registry: where they are shown."""
        self.attempts = Counter(
            "scheduler_preemption_attempts", "Searches for pods of lower priority that could go.", registry=registry
        )
        self.victims = Histogram(
            "scheduler_preemption_victims", "Pods that go for one pod.", buckets=_VICTIMS, registry=registry
        )
        self.reservations = Counter(
            "gpushare_scheduler_reservations",
            "Places reserved for pods that have waited for reserveAfter, and places given up without success.",
            ["result"],
            registry=registry,
        )


class AuditMetrics:
    """What the ledger audits have found."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """registry: where they are shown."""
        self.audits = Counter("gpushare_scheduler_ledger_audits", "Audits of the ledger.", registry=registry)
        self.differences = Counter(
            "gpushare_scheduler_ledger_differences",
            "Nodes whose ledger an audit found wrong and repaired.",
            registry=registry,
        )
        self.overcommitted_cards = Gauge(
            "gpushare_scheduler_overcommitted_cards",
            "Cards with more units booked than they have, at the last audit.",
            registry=registry,
        )
        self.shared_cards = Gauge(
            "gpushare_scheduler_shared_cards",
            "Card UUIDs that several nodes announce, at the last audit.",
            registry=registry,
        )
