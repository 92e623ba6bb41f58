"""Log lines and metrics about the scheduler's work."""

import logging
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import structlog
from cachetools import LRUCache

from scheduler.core.effects import Audited, Bind, Effect, LostWakeup, Reserve, Unschedulable
from scheduler.core.scheduling_cycle import Placement
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.preemption import Preemption
from scheduler.kube import port
from scheduler.kube.bind_outcome import BindRejected
from scheduler.kube.port import Binding, Kind, T
from scheduler.metrics.metrics import Metrics
from scheduler.pods.pod import Pod
from scheduler.process.clock import Clock
from scheduler.process.contact import BINDINGS
from scheduler.queue.entry import QueuedPod
from scheduler.state.audit import AuditRound

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram


# Interval between lines with the same reason, and until a line with another reason for the same key.
_SAME_S: Final = 300.0
_OTHER_S: Final = 30.0
_REMEMBERED: Final = 4096


@dataclass(slots=True)
class _Line:
    reason: str
    logged_s: float
    since: int


class _Tally:
    """Counts by key, for the newest 4,096 keys. Reasons come from other programs, so they are not keys."""

    def __init__(self, clock: Clock) -> None:
        """clock: says when a line is due again."""
        self._clock = clock
        self._lines: LRUCache[Hashable, _Line] = LRUCache(maxsize=_REMEMBERED)

    def count(self, key: Hashable, reason: str) -> int:
        """Count one event. Returns how many events a log line should represent now; 0: do not log.

        The first event is logged at once, a repeat of the same reason every 5 minutes, a different one after 30 s.
        """
        now_s, last = self._clock.monotonic_s(), self._lines.get(key)
        if last is None:
            self._lines[key] = _Line(reason, now_s, 0)
            return 1
        last.since += 1
        if now_s - last.logged_s < (_SAME_S if reason == last.reason else _OTHER_S):
            return 0
        number, last.reason, last.logged_s, last.since = last.since, reason, now_s, 0
        return number


_MOST_ATTEMPTS: Final = 16
# Per outage: a reason may contain a port or a time, so each may be new.
_MOST_REASONS: Final = 16
log = structlog.get_logger()


class ServiceObserver:
    """Observer that logs each failed attempt and each bind, and counts everything."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        """metrics: where to count. clock: for lines that stand for many events."""
        self._metrics = metrics
        self._tally = _Tally(clock)
        self._searches = 0
        self._scheduled: dict[str, Counter] = {}
        self._sli_s: dict[int, Histogram] = {}
        # If the whole server is unreachable, every watch fails, and one line covers all of them.
        self._cut_off: set[str] = set()
        self._cut_off_reasons: set[str] = set()

    def stepped(self, effects: Sequence[Effect], took_s: float, searches: int) -> None:
        """Count a step of the agenda. searches: number of searches for victims so far."""
        if effects and isinstance(effects[0], Bind | Unschedulable):
            self._attempted(effects[0], took_s)
        if searches != self._searches:
            self._metrics.preemptions.inc(searches - self._searches)
            self._searches = searches

    def _attempted(self, effect: Bind | Unschedulable, took_s: float) -> None:
        if isinstance(effect, Bind):
            self._metrics.algorithm_s.observe(took_s)
        elif effect.attempt is not None:
            self._metrics.algorithm_s.observe(took_s)
            self._metrics.attempts.labels("unschedulable", effect.pod.scheduler_name).inc()

    def unschedulable(self, pod: Pod, diagnosis: Diagnosis, attempt: int | None = None) -> None:
        """Log an unschedulable pod. attempt: None if a longer search found the rest of the message."""
        if attempt is None and not diagnosis.tail:
            return  # it preempts pods, which is logged
        log.info(
            "pod.unschedulable",
            pod=str(pod.key),
            reason=diagnosis.message,
            **({} if attempt is None else {"attempt": attempt}),
        )
        if attempt is not None and log.is_enabled_for(logging.DEBUG):
            log.debug("pod.rejected", pod=str(pod.key), attempt=attempt, nodes=diagnosis.by_node)

    def noted(self, effect: Reserve | LostWakeup | Audited) -> None:
        """Log and count an effect that needs nothing else."""
        match effect:
            case Reserve():
                self._reserved(effect)
            case LostWakeup():
                log.warning("pod.lost_wakeup", pod=str(effect.pod.key))
                self._metrics.lost_wakeups.inc()
            case Audited():
                self._audited(effect.round)

    def _reserved(self, reserve: Reserve) -> None:
        self._metrics.reservations.labels("kept" if reserve.kept else "given_up").inc()
        event = "pod.place_reserved" if reserve.kept else "pod.place_given_up"
        log.info(event, pod=str(reserve.pod.key), reason=reserve.diagnosis.message)

    def preempts(self, preemption: Preemption) -> None:
        """Count a preemption."""
        if preemption.removed:
            self._metrics.victims.observe(len(preemption.removed))

    def bound(self, queued: QueuedPod, placement: Placement, now_s: float) -> None:
        """Log and count a pod that the API server has bound."""
        pod = placement.pod
        self._log_connected(BINDINGS)
        # Looking up a labeled child costs more than counting, and this runs for every pod.
        name, attempts = pod.scheduler_name, min(queued.attempts, _MOST_ATTEMPTS)
        if name not in self._scheduled:
            self._scheduled[name] = self._metrics.attempts.labels("scheduled", name)
        if attempts not in self._sli_s:
            self._sli_s[attempts] = self._metrics.sli_s.labels(str(attempts))
        self._scheduled[name].inc()
        self._sli_s[attempts].observe(now_s - queued.first_queued_s)
        self._metrics.pod_attempts.observe(queued.attempts)
        cards = {share.index: share.units for share in placement.cards}
        log.info("pod.bound", pod=str(pod.key), node=placement.node, cards=cards, attempt=queued.attempts)

    def bind_rejected(self, placement: Placement, rejected: BindRejected) -> None:
        """Log and count a rejected binding. One line covers many, by namespace and status."""
        pod = placement.pod
        if rejected.settled:
            log.info("bind.dropped", pod=str(pod.key), node=placement.node, reason=rejected.reason)
            return
        self._metrics.attempts.labels("error", pod.scheduler_name).inc()
        if rejected.status == HTTPStatus.UNAUTHORIZED:
            # Affects every request, not just this pod.
            self._log_cut_off(BINDINGS, rejected.reason, rejected.status)
            return
        namespace, status = pod.key.namespace, rejected.status
        reason = rejected.reason.replace(pod.key.name, "*")
        number = self._tally.count(("rejected", namespace, status), reason)
        if not number:
            return
        fields = {"namespace": namespace, "pod": str(pod.key), "node": placement.node, "reason": rejected.reason}
        if status == HTTPStatus.FORBIDDEN:
            hint = "grant create on pods/binding (deploy/manifests/rbac.yaml), or check the admission policies"
            log.error("bind.forbidden", hint=hint, status=status, number=number, **fields)
        else:
            log.warning("bind.refused", status=status, number=number, **fields)

    def bind_held_back(self, pod: Pod, reason: str) -> None:
        """Log a pod that is not placed, because bindings of its namespace fail. One line covers many, by namespace."""
        number = self._tally.count(("held back", pod.key.namespace), reason)
        if number:
            log.warning("bind.held_back", namespace=pod.key.namespace, pod=str(pod.key), reason=reason, number=number)

    def bind_retried(self, binding: Binding, status: int, reason: str) -> None:
        """Log and count a bind request that is retried, because it had no definite answer.

        One line covers many, by namespace and status.
        """
        self._metrics.bind_retries.inc()
        pod = binding.pod
        number = self._tally.count(("retry", pod.namespace, status), reason.replace(pod.name, "*"))
        if number:
            log.warning(
                "bind.retry",
                namespace=pod.namespace,
                pod=str(pod),
                node=binding.node,
                status=status,
                reason=reason,
                number=number,
            )

    def left_open(self, placement: Placement) -> None:
        """Log a binding whose outcome is unknown when the process exits."""
        log.info("bind.unfinished", pod=str(placement.pod.key), node=placement.node)

    def record_lost(self, what: str, why: str) -> None:
        """Log and count an Event or condition that could not be written. One line covers many, by type."""
        self._metrics.lost_records.inc()
        kind, _, _ = what.partition(" on ")
        number = self._tally.count(("lost", kind.partition(" of ")[0]), "")
        if number:
            log.warning("record.lost", what=what, why=why, number=number)

    def list_began(self, kind: str) -> None:
        """Count the start of a complete list."""
        self._metrics.relists.labels(kind).inc()

    def watch_trouble(self, kind: Kind[T], error: port.ApiError | None) -> None:
        """Log a watch that fails for a new reason, or that works again (None)."""
        if isinstance(error, port.ApiSilent) or (error is not None and error.status == HTTPStatus.UNAUTHORIZED):
            self._log_cut_off(kind.name, error.message, error.status)
            return
        was_cut_off = kind.name in self._cut_off
        self._log_connected(kind.name)
        if error is None:
            if not was_cut_off:
                log.info("watch.recovered", kind=kind.name)
        elif isinstance(error, port.ApiForbidden):
            hint = f"grant get, list and watch on {kind.name} (deploy/manifests/rbac.yaml)"
            log.error("watch.forbidden", kind=kind.name, reason=error.message, hint=hint)
        elif not kind.optional:  # a server that starts does not know all of these at once
            log.warning("watch.failed", kind=kind.name, reason=error.message, status=error.status)

    def _log_cut_off(self, kind: str, reason: str, status: int) -> None:
        self._cut_off.add(kind)
        if reason in self._cut_off_reasons or len(self._cut_off_reasons) >= _MOST_REASONS:
            return
        self._cut_off_reasons.add(reason)
        if status == HTTPStatus.UNAUTHORIZED:
            hint = "renew the token, certificate or credential plugin of the kubeconfig; retrying until it is accepted"
            log.error("api.unauthorized", reason=reason, hint=hint)
        else:
            hint = "check the server's address and the network; retrying until it answers"
            log.warning("api.unreachable", reason=reason, hint=hint)

    def _log_connected(self, kind: str) -> None:
        if kind not in self._cut_off:
            return
        # Credentials that work for one request work for others; if not, the failure is logged again.
        self._cut_off -= {kind, BINDINGS}
        if not self._cut_off:
            self._cut_off_reasons.clear()
            log.info("api.reachable")

    def bad_object(self, kind: str) -> None:
        """Count an invalid object."""
        self._metrics.problems.labels(kind).inc()

    def _audited(self, found: AuditRound) -> None:
        metrics = self._metrics
        metrics.audits.inc()
        metrics.differences.inc(found.differences)
        metrics.overcommitted_cards.set(found.overcommitted)
        metrics.shared_cards.set(found.shared)
        log.info("ledger.audited", **asdict(found))

    def loop_lagged(self, late_s: float) -> None:
        """Count a delay of the event loop of `late_s` seconds."""
        self._metrics.loop_lag_s.observe(late_s)
