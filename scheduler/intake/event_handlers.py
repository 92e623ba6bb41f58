"""Handlers that put watch events into the tables and the queue; kube-scheduler's eventhandlers.go.

No handler awaits. An error in an object is reported and affects only that object.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

from cachetools import LRUCache

from config.protocol import names
from config.protocol.quantity import QuantityError
from scheduler.core.engine import Engine
from scheduler.intake.reports import Reports
from scheduler.kube import objects
from scheduler.kube.port import SERVICES, Changed, Deleted, Kind, ListBegins, ListEnds, Undecodable, WatchEvent
from scheduler.kube.problem import Problem
from scheduler.kube.scheduling import PodGroupObject
from scheduler.kube.size_limits import TOO_LARGE, node_excess
from scheduler.pods.gang import GangKey
from scheduler.pods.mistakes import forgotten, misspelt, misspelt_as, mistakes, node_mistakes
from scheduler.pods.pod import Pod, PodReader
from scheduler.process.clock import Clock
from scheduler.state.columns.selectors import Expressions, equalities, of_label_selector
from scheduler.state.default_selectors import MOST_TERMS, size_of

_LARGEST_INDEX: Final = 65_535
_OVER_BUDGET: Final = "OverBudget"
_MISTAKE: Final = "Mistake"
_CARD_FAILED: Final = "GPUUnhealthy"
_CARD_HAS_FAILED: Final = "card.failed"
_REJECTED_BY_KUBELET: Final = "RejectedByKubelet"
_IS_REJECTED: Final = "pod.rejected_by_kubelet"
# Prefix of the message of a pod that a kubelet rejected. Source: pkg/kubelet/kubelet.go, rejectPod.
_REJECTED: Final = "Pod was rejected: "
_LONGEST_REASON: Final = 64
_LONGEST_SAID: Final = 512
_MOST_REMEMBERED: Final = 4096
# The API server's default for a pod without a scheduler name.
_FORGOTTEN: Final = "default-scheduler"


def rfc3339(unix_s: float) -> str:
    """UTC time in whole seconds, as Kubernetes writes it."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def before_start(now_s: float, unix_s: float) -> Callable[[str], float]:
    """Return a function that converts a pod's creation time (RFC 3339) to monotonic seconds; inf if after the start.

    A pod created before this process started has been waiting since its creation. now_s, unix_s: time of the start.
    """
    start = rfc3339(unix_s)

    def created_s(created: str) -> float:
        if not created or created >= start:
            return inf
        with suppress(ValueError):
            return now_s - (unix_s - datetime.fromisoformat(created).timestamp())
        return inf

    return created_s


class EventHandlers:
    """Handlers of watch events: one method per kind, which takes a batch of events in order."""

    def __init__(
        self,
        engine: Engine,
        reader: PodReader,
        reports: Reports,
        clock: Clock,
    ) -> None:
        """reader: reads pods. reports: gets each problem, and each waiting pod of ours that is created or changed."""
        self._engine, self._reader, self._reports, self._clock = engine, reader, reports, clock
        self._waits_since_s = before_start(clock.monotonic_s(), clock.wall_s())
        self._lists_failed = True
        self._rejected: LRUCache[str, None] = LRUCache(_MOST_REMEMBERED)

    def pods(self, events: Iterable[WatchEvent[objects.PodObject]]) -> None:
        """Put pods with a node into the tables, and our waiting pods into the queue."""
        for event in events:
            if isinstance(event, Changed):
                self._pod_changed(event.object)
            elif isinstance(event, Deleted):
                self._engine.pod_gone(event.object.metadata.uid)
            elif isinstance(event, Undecodable):
                self._reports.problem(Problem("Pod", event.name, event.error, on_object=False))

    def failed_pods(self, events: Iterable[WatchEvent[objects.PodObject]]) -> None:
        """Record our pods that a kubelet rejected at admission.

        Ignores pods from the list at the start of a watch: their rejection may be old.
        """
        for event in events:
            if isinstance(event, ListBegins | ListEnds):
                self._lists_failed = isinstance(event, ListBegins)
            elif isinstance(event, Changed) and self._lists_failed:
                self._rejected[event.object.metadata.uid] = None
            elif isinstance(event, Changed):
                self._failed(event.object)

    def nodes(self, events: Iterable[WatchEvent[objects.Node]]) -> None:
        """Put nodes and their inventories into the tables."""
        for event in events:
            if isinstance(event, Changed):
                self._node_changed(event.object)
            elif isinstance(event, Deleted):
                self._engine.node_gone(event.object.metadata.name)
            elif isinstance(event, Undecodable):
                # The node may have changed in any way, so it gets no new pods.
                self._engine.node_gone(event.name.rpartition("/")[2])
                self._reports.problem(Problem("Node", event.name, event.error, on_object=False))

    def namespaces(self, events: Iterable[WatchEvent[objects.Namespace]]) -> None:
        """Put the labels of namespaces into the tables; anti-affinity terms may select them."""
        for event in events:
            if isinstance(event, Changed):
                meta = event.object.metadata
                self._engine.tables.set_namespace(meta.name, meta.labels or {})
            elif isinstance(event, Deleted):
                self._engine.tables.set_namespace(event.object.metadata.name, None)

    def selecting(self, kind: Kind[Any], events: Iterable[WatchEvent[Any]]) -> None:
        """Put the selectors of Services and controllers into the tables. kind: one of `port.SELECTING`."""
        for event in events:
            if isinstance(event, Changed | Deleted):
                meta = event.object.metadata
                selector = () if isinstance(event, Deleted) else _selector_of(event.object.spec.selector)
                if size_of(selector) > MOST_TERMS:
                    selector = ()
                    self._long_selector(kind.api_kind, f"{meta.namespace}/{meta.name}")
                self._engine.tables.set_selector(meta.namespace, meta.uid, selector, of_service=kind is SERVICES)
            elif isinstance(event, Undecodable):
                self._reports.problem(Problem(kind.api_kind, event.name, event.error, on_object=False))

    def config_maps(self, events: Iterable[WatchEvent[objects.ConfigMap]]) -> None:
        """Apply the legacy lists of unhealthy cards. Ignores every other ConfigMap."""
        for event in events:
            if not isinstance(event, Changed | Deleted):
                continue
            meta = event.object.metadata
            if not meta.name.startswith(names.UNHEALTHY_PREFIX):
                continue
            text = "" if isinstance(event, Deleted) else (event.object.data or {}).get(names.UNHEALTHY_KEY, "")
            indexes, wrong = _indexes(text)
            self._engine.tables.mark_unhealthy(meta.name.removeprefix(names.UNHEALTHY_PREFIX), indexes)
            if wrong:
                message = f"key {names.UNHEALTHY_KEY}: {wrong[:64]!r} is not a card index; expected a list such as 0,2"
                self._reports.problem(Problem("ConfigMap", f"{meta.namespace}/{meta.name}", message, on_object=False))

    def disruption_budgets(self, events: Iterable[WatchEvent[objects.PodDisruptionBudget]]) -> None:
        """Record PodDisruptionBudgets, which preemption prefers to respect."""
        for event in events:
            if isinstance(event, Changed):
                meta = event.object.metadata
                problem = self._engine.tables.budgets.set(event.object)
                if problem:
                    name = f"{meta.namespace}/{meta.name}"
                    message = f"{problem}; it does not protect pods from preemption"
                    self._reports.problem(Problem("PodDisruptionBudget", name, message, on_object=False))
            elif isinstance(event, Deleted):
                self._engine.tables.budgets.remove(event.object.metadata.namespace, event.object.metadata.name)
            elif isinstance(event, ListEnds):
                self._engine.budgets_listed()
            elif isinstance(event, Undecodable):
                # The last readable version stays in effect.
                self._reports.problem(Problem("PodDisruptionBudget", event.name, event.error, on_object=False))

    def pod_groups(self, api_group: str, events: Iterable[WatchEvent[PodGroupObject]]) -> None:
        """Record how many pods each PodGroup needs. api_group: one of `scheduling.POD_GROUPS`."""
        for event in events:
            if isinstance(event, Changed | Deleted):
                meta = event.object.metadata
                minimum = None if isinstance(event, Deleted) else event.object.spec.minimum
                self._engine.gang_described(GangKey(meta.namespace, meta.name, api_group), minimum)
            elif isinstance(event, Undecodable):
                namespace, _, name = event.name.rpartition("/")
                self._engine.gang_described(GangKey(namespace, name, api_group), None)
                self._reports.problem(Problem("PodGroup", event.name, event.error, on_object=False))

    def _pod_changed(self, wire: objects.PodObject) -> None:
        try:
            pod = self._reader.read(wire)
        except QuantityError as error:
            meta = wire.metadata
            self._reports.problem(Problem("Pod", f"{meta.namespace}/{meta.name}", str(error), meta.uid))
            if wire.spec.node_name and self._engine.tables.record(meta.uid) is None:
                # Another scheduler bound it, so it no longer waits for us.
                self._engine.pod_gone(meta.uid)
            return
        if pod.finished:
            self._engine.pod_gone(pod.key.uid)
        elif pod.node_name:
            self._learn_from(pod)
            self._assigned(pod)
        elif pod.scheduler_name in self._engine.scheduler_names:
            self._learn_from(pod)
            self._waiting(pod)
            if not pod.template.over_limit:
                self._report_mistakes(pod, wire)
        elif pod.terminating:
            self._engine.pod_terminating(pod.key.uid)
        else:
            self._engine.pod_of_others(pod)
            if pod.template.gpu_units and not pod.terminating:
                self._report_scheduler_name(pod)

    def _learn_from(self, pod: Pod) -> None:
        self._engine.pod_seen(pod, min(self._waits_since_s(pod.created), self._clock.monotonic_s()))

    def _failed(self, wire: objects.PodObject) -> None:
        if not wire.status.message.startswith(_REJECTED) or wire.metadata.uid in self._rejected:
            return
        self._rejected[wire.metadata.uid] = None
        try:
            pod = self._reader.read(wire)
        except QuantityError:
            return
        if not pod.node_name or pod.scheduler_name not in self._engine.scheduler_names:
            return
        reason = pod.reason[:_LONGEST_REASON] or "no reason"
        for_s = self._engine.pod_rejected(pod, reason, self._clock.monotonic_s())
        said = wire.status.message.removeprefix(_REJECTED)[:_LONGEST_SAID].rstrip(". ")
        message = f"node {pod.node_name} rejected it ({reason}): {said}; similar pods avoid the node for {for_s:.0f} s"
        name, uid = str(pod.key), pod.key.uid
        self._reports.problem(Problem("Pod", name, message, uid, reason=_REJECTED_BY_KUBELET, happened=_IS_REJECTED))

    def _report_mistakes(self, pod: Pod, wire: objects.PodObject) -> None:
        found = mistakes(wire, self._reader.resources)
        if found:
            self._reports.problem(Problem("Pod", str(pod.key), "; ".join(found), pod.key.uid, reason=_MISTAKE))

    def _report_scheduler_name(self, pod: Pod) -> None:
        """Report a scheduler name that looks wrong. If there are legacy nodes, other schedulers may choose cards."""
        own_names, message = self._engine.scheduler_names, ""
        if pod.scheduler_name != _FORGOTTEN:
            if meant := misspelt(pod.scheduler_name, own_names):
                message = misspelt_as(pod.scheduler_name, meant)
        elif not self._engine.tables.card_changes.legacy_nodes:
            ours = names.SCHEDULER_NAME if names.SCHEDULER_NAME in own_names else min(own_names)
            message = forgotten(pod.scheduler_name, ours)
        if message:
            self._reports.problem(Problem("Pod", str(pod.key), message, pod.key.uid, reason=_MISTAKE))

    def _over_limit(self, pod: Pod, consequence: str, *, on_object: bool) -> None:
        message = f"exceeds a limit of this scheduler: {TOO_LARGE}; {consequence}"
        self._reports.problem(Problem("Pod", str(pod.key), message, pod.key.uid, on_object, _OVER_BUDGET))

    def _long_selector(self, kind: str, name: str) -> None:
        excess = f"a selector of over {MOST_TERMS} keys and values"
        message = f"exceeds a limit of this scheduler: {excess}; it is not used to spread pods"
        self._reports.problem(Problem(kind, name, message, on_object=False, reason=_OVER_BUDGET))

    def _assigned(self, pod: Pod) -> None:
        if pod.template.over_limit:
            self._over_limit(pod, "its requests for cpu, memory, storage and GPUs still count", on_object=True)
        problem = self._engine.pod_assigned(pod)
        if problem:
            self._reports.problem(Problem("Pod", str(pod.key), problem, pod.key.uid))

    def _waiting(self, pod: Pod) -> None:
        if pod.terminating:
            self._engine.pod_terminating(pod.key.uid)
            return
        if pod.template.over_limit:
            # The message of the attempt gives its owner the same text.
            self._over_limit(pod, "it stays pending", on_object=False)
        self._engine.pod_waiting(pod, self._clock.monotonic_s(), self._waits_since_s(pod.created))
        self._reports.waiting_seen(pod)

    def _node_changed(self, node: objects.Node) -> None:
        over_limit = node_excess(node)
        if over_limit:
            self._engine.node_gone(node.metadata.name)
            message = f"exceeds a limit of this scheduler: {', '.join(over_limit)}; no pods are placed on it"
            self._reports.problem(Problem("Node", node.metadata.name, message, node.metadata.uid, reason=_OVER_BUDGET))
            return
        try:
            problem = self._engine.node_changed(node)
        except QuantityError as error:
            self._engine.node_gone(node.metadata.name)
            problem = str(error)
        if problem:
            self._reports.problem(Problem("Node", node.metadata.name, problem, node.metadata.uid))
        if found := node_mistakes(node):
            self._reports.problem(
                Problem("Node", node.metadata.name, "; ".join(found), node.metadata.uid, reason=_MISTAKE)
            )
        for pod, what in self._engine.tables.card_changes.take_failures():
            message = f"{what}; the pod uses this card of node {node.metadata.name}"
            self._reports.problem(
                Problem("Pod", str(pod.key), message, pod.key.uid, reason=_CARD_FAILED, happened=_CARD_HAS_FAILED)
            )
        # Different cards, or a different unit, may change how its pods are read.
        for pod, problem in self._engine.tables.take_pod_problems():
            self._reports.problem(Problem("Pod", str(pod.key), problem, pod.key.uid))


def _selector_of(selector: objects.LabelSelector | dict[str, str] | None) -> Expressions:
    if isinstance(selector, objects.LabelSelector):
        return of_label_selector(selector) or ()
    return equalities(selector or {})


def _indexes(text: str) -> tuple[frozenset[int], str]:
    """Indexes in a comma-separated list, and the first invalid entry ("" if all are valid)."""
    good, wrong = set(), ""
    for entry in (part.strip() for part in text.split(",")):
        if entry.isascii() and entry.isdigit() and len(entry) <= len(str(_LARGEST_INDEX)):
            good.add(int(entry))
        elif entry:
            wrong = wrong or entry
    return frozenset(good), wrong
