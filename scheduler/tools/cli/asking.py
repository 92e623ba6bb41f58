"""Engine filled from a cluster, read-only, for `explain` and `what-if`. No running scheduler is needed.

Each kind of object is listed once, and nothing is ever written. The user needs the right to list and watch nodes and
pods; if other rights are missing, the answer names the objects. docs/explain.md lists them.
"""

import contextlib
import dataclasses
import difflib
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final, cast

from msgspec.structs import replace

from config.protocol.quantity import QuantityError
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine, installed_plugins
from scheduler.intake.event_handlers import EventHandlers
from scheduler.intake.reports import ProblemReports
from scheduler.intake.volume_handlers import VolumeHandlers
from scheduler.intake.watches import Watched, watched
from scheduler.kube import objects
from scheduler.kube.defaults import new_pod
from scheduler.kube.port import (
    DISRUPTION_BUDGETS,
    NAMESPACES,
    OF_STORAGE,
    PODS,
    PRIORITY_CLASSES,
    ApiError,
    ApiForbidden,
    Changed,
    Cluster,
    Deleted,
    Kind,
    ListEnds,
    T,
    WatchEvent,
)
from scheduler.kube.problem import BAD_ANNOTATION, Problem
from scheduler.kube.scheduling import KINDS_AND_OPTIONAL
from scheduler.pods.mistakes import forgotten, mistakes
from scheduler.pods.pod import Pod, PodReader
from scheduler.pods.pod_volumes import NO_VOLUMES
from scheduler.process.clock import Clock
from scheduler.process.output import warn
from scheduler.process.terminal import some
from scheduler.tools.cli.manifests import NOT_THERE, OF_FILES, UNREADABLE, Manifest, Unanswerable, Unreadable, given
from scheduler.tools.explain.answers import Explanation, WhatIfAnswer
from scheduler.tools.explain.pod_summary import explain, own_name, sentence, what_if
from scheduler.tools.explain.reading import ClusterSnapshot

_MOST_NAMES: Final = 3
_OF_STORAGE: Final = tuple(kind.name for kind in OF_STORAGE)


@dataclass(slots=True)
class ClusterView:
    """Snapshot of a cluster. unread: kinds that were left out, one line each. namespace: for pods that name none.

    of_files: whether it was read from cluster files, which have no PriorityClasses.
    """

    cluster: Cluster
    reading: ClusterSnapshot
    reader: PodReader
    unread: list[str] = field(default_factory=list)
    namespace: str = "default"
    of_files: bool = False

    async def explained(self, namespace: str, name: str, node: str = "") -> Explanation:
        """Explain a pod. namespace: "" for the view's own.

        Raises Unanswerable if the pod does not exist or cannot be read.
        """
        namespace = namespace or self.namespace
        found = await _asked(self.cluster.pod(namespace, name))
        if found is None:
            raise Unanswerable(self._unknown(namespace, name))
        rows = self.reading.engine.tables.row_of
        if node and node not in rows:
            near = difflib.get_close_matches(node, rows, _MOST_NAMES)
            raise Unanswerable(f"there is no node {node}{_or(near)}")
        pod, left_out = self._read(found)
        return explain(self.reading, pod, node, (*mistakes(found, self.reader.resources), *left_out))

    def what_if(self, wire: objects.PodObject, replicas: int, words: tuple[str, ...] = ()) -> WhatIfAnswer:
        """Return the what-if answer for a pod that does not exist. words: sentences about the pod."""
        pod, told = self.asking(wire)
        return what_if(self.reading, pod, replicas, (*words, *told))

    def asking(self, wire: objects.PodObject) -> tuple[Pod, tuple[str, ...]]:
        """Return (a new pod as this scheduler would read it, sentences about it)."""
        meta = replace(wire.metadata, namespace=wire.metadata.namespace or self.namespace)
        pod, left_out = self._read(new_pod(replace(wire, metadata=meta)))
        words = tuple(map(sentence, (*mistakes(wire, self.reader.resources), *left_out)))
        engine = self.reading.engine
        if pod.scheduler_name not in engine.scheduler_names:
            ours = own_name(engine)
            if pod.template.gpu_units:
                words += (sentence(forgotten(pod.scheduler_name, ours)),)
            pod = replace(pod, scheduler_name=ours)
        return pod, words

    async def prioritized(self, asked: Manifest) -> tuple[objects.PodObject, tuple[str, ...]]:
        """Return (the pod with the priority that the API server would assign, sentences about the priority)."""
        if asked.pod.spec.priority and not asked.priority_class:
            return asked.pod, ()
        if self.of_files:
            return given(asked, (), OF_FILES)
        try:
            classes = await all_of(self.cluster, PRIORITY_CLASSES)
        except ApiForbidden:
            return given(asked, (), UNREADABLE)
        except ApiError as error:
            raise Unreadable(error.message) from error
        return given(asked, classes, NOT_THERE)

    def leave_out(self, kind: str) -> None:
        """Answer without this kind from now on, because reading it is denied. Call it before `unread` is printed."""
        if self.reading.unread:
            del self.unread[0]
        kinds = self.reading.unread | {kind}
        self.unread.insert(
            0, f"left out, because reading them is not allowed: {some(sorted(kinds), _MOST_NAMES)}; see docs/explain.md"
        )
        self.reading = dataclasses.replace(self.reading, unread=kinds)
        if kind == DISRUPTION_BUDGETS.name:
            # A running scheduler knows these; the answer says that they are unknown here.
            self.reading.engine.budgets_listed()

    def _read(self, wire: objects.PodObject) -> tuple[Pod, tuple[str, ...]]:
        """Return (the pod, without its volumes if these are unknown; the omitted parts, as clauses)."""
        try:
            pod = self.reader.read(wire)
        except QuantityError as error:
            raise Unanswerable(f"pod {wire.metadata.name} cannot be read: {error}") from error
        if pod.node_name:
            return pod, ()
        left_out: list[str] = []
        unread = [name for name in _OF_STORAGE if name in self.reading.unread]
        if unread and pod.volumes != NO_VOLUMES:
            pod = replace(pod, volumes=NO_VOLUMES)
            left_out.append(f"its volumes are ignored, because {some(unread, _MOST_NAMES)} cannot be read")
        if NAMESPACES.name in self.reading.unread and _selects_namespaces(pod):
            left_out.append(
                "the namespaceSelector of its pod affinity matches no namespace, because namespaces cannot be read"
            )
        return pod, tuple(left_out)

    def _unknown(self, namespace: str, name: str) -> str:
        records = list(self.reading.engine.tables.records())
        elsewhere = sorted({one.pod.key.namespace for one in records if one.pod.key.name == name})
        there = [one.pod.key.name for one in records if one.pod.key.namespace == namespace]
        near = [f"-n {found}" for found in elsewhere[:_MOST_NAMES]] or difflib.get_close_matches(
            name, there, _MOST_NAMES
        )
        return f"there is no pod {name} in namespace {namespace}{_or(near)}"


def _selects_namespaces(pod: Pod) -> bool:
    both = (pod.template.affinity, pod.template.anti_affinity)
    terms = (term for each in both for term in each.required_during_scheduling_ignored_during_execution)
    return any(term.namespace_selector is not None for term in terms)


def _or(near: list[str]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else ""


async def cluster_view(
    cluster: Cluster, configuration: SchedulerConfiguration, kinds: Collection[Kind[Any]] = KINDS_AND_OPTIONAL
) -> ClusterView:
    """Read the cluster. kinds: the kinds to read. Raises Unreadable if nodes or pods cannot be read."""
    of, handled = empty_view(cluster, configuration, kinds)
    for one in handled:
        try:
            await read_all(cluster, one.kind, one.handle)
        except ApiError as error:
            if is_absent(one, error):
                continue
            if not left_out(one, error):
                raise unreadable(one, error) from error
            of.leave_out(one.kind.name)
    queue = of.reading.engine.queue
    while queue.gangs.has_changed:  # as before a decision
        queue.settle_gangs(0.0)
    return of


class _Problems(ProblemReports):
    """Problems of others' objects. messages: one for each."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def problem(self, problem: Problem) -> None:
        if not _is_of_its_owner(problem):
            self.messages.append(f"{problem.kind} {problem.name}: {problem.message}")


def empty_view(
    cluster: Cluster, configuration: SchedulerConfiguration, kinds: Collection[Kind[Any]]
) -> tuple[ClusterView, list[Watched[Any]]]:
    """Return (a view without any object, the handlers that fill it)."""
    engine, reader = build_engine(configuration, installed_plugins())
    reports = _Problems()
    # As for a scheduler that starts now: old pods count less among the usual requests.
    handlers = EventHandlers(engine, reader, reports, Clock())
    volume_handlers = VolumeHandlers(engine.tables, reports)
    outside = _OutsideTheEngine(reader, engine.scheduler_names)
    handled = [
        dataclasses.replace(one, handle=outside.noting(one.handle)) if one.kind is PODS else one
        for one in watched(handlers, volume_handlers)
        if one.kind in kinds
    ]
    reading = ClusterSnapshot(
        engine,
        configuration.memory_unit_mib,
        outside.since,
        of_others=outside.of_others,
        controllers=outside.controllers,
    )
    return ClusterView(cluster, reading, reader, reports.messages), handled


def left_out(of: Watched[Any], error: ApiError) -> bool:
    """Return whether to answer without these objects: reading them is denied, and they are not essential."""
    return isinstance(error, ApiForbidden) and not of.needed


def is_absent(of: Watched[Any], error: ApiError) -> bool:
    """Return whether to go on as if there were no objects of this kind: the server does not know it, or denies it."""
    return of.kind.optional and error.status in {HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN}


def unreadable(of: Watched[Any], error: ApiError) -> Unreadable:
    """Return the error that ends a command."""
    needs = "; this needs the right to list and watch them" if isinstance(error, ApiForbidden) else ""
    return Unreadable(f"{of.kind.name} cannot be read: {error.message}{needs}")


def _is_of_its_owner(problem: Problem) -> bool:
    """Return whether the problem is one that the owner of a pod sees, and that is irrelevant to other pods.

    A pod that could not be read is relevant.
    """
    return problem.kind == "Pod" and (problem.on_object or problem.reason != BAD_ANNOTATION)


class _OutsideTheEngine:
    """Facts about pods that a ClusterSnapshot needs and the engine does not keep."""

    def __init__(self, reader: PodReader, scheduler_names: Collection[str]) -> None:
        self.since: dict[str, str] = {}
        self.of_others: dict[str, Pod] = {}
        self.controllers: dict[str, objects.OwnerReference] = {}
        self._reader, self._scheduler_names = reader, scheduler_names

    def noting(
        self, handle: Callable[[Sequence[WatchEvent[objects.PodObject]]], None]
    ) -> Callable[[Sequence[WatchEvent[objects.PodObject]]], None]:
        """Wrap `handle` so that this object records each pod before `handle` gets it."""

        def noting(events: Sequence[WatchEvent[objects.PodObject]]) -> None:
            for event in events:
                if isinstance(event, Changed | Deleted):
                    for kept in (self.since, self.of_others, self.controllers):
                        kept.pop(event.object.metadata.uid, None)
                if isinstance(event, Changed):
                    self._note(event.object)
            handle(events)

        return noting

    def _note(self, wire: objects.PodObject) -> None:
        owners = wire.metadata.owner_references
        self.controllers.update((wire.metadata.uid, owner) for owner in owners if owner.controller)
        if wire.metadata.deletion_timestamp:
            self.since[wire.metadata.uid] = _requested(wire.metadata)
        elif not wire.spec.node_name and wire.spec.scheduler_name not in self._scheduler_names:
            # The handler reports invalid amounts.
            with contextlib.suppress(QuantityError):
                pod = self._reader.read(wire)
                if not pod.finished and (pod.template.gpu_units or pod.template.gpu_request_error):
                    self.of_others[wire.metadata.uid] = pod


def _requested(meta: objects.ObjectMeta) -> str:
    """Return the time of the deletion request in RFC 3339; "" if it cannot be read."""
    try:
        due = datetime.fromisoformat(meta.deletion_timestamp)
        return (due - timedelta(seconds=meta.deletion_grace_period_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return ""


def _present(events: Sequence[WatchEvent[T]]) -> list[T]:
    return [event.object for event in events if isinstance(event, Changed)]


async def all_of(cluster: Cluster, kind: Kind[T]) -> list[T]:
    """Return the objects of a kind. Raises ApiError."""
    found: list[T] = []
    await read_all(cluster, kind, lambda events: found.extend(_present(events)))
    return found


async def read_all(cluster: Cluster, kind: Kind[T], handle: Callable[[Sequence[WatchEvent[T]]], None]) -> None:
    """Pass every object of a kind to `handle` once. Raises ApiError."""
    batches = cast("AsyncGenerator[list[WatchEvent[T]], None]", cluster.watch(kind, None))
    async with contextlib.aclosing(batches):
        async for batch in batches:
            handle(batch)
            if any(isinstance(event, ListEnds) for event in batch):
                return


async def _asked(answer: Any) -> Any:  # noqa: ANN401 - whatever is asked of the cluster
    try:
        return await answer
    except ApiError as error:
        raise Unreadable(error.message) from error


_MOST_UNREAD: Final = 10


def tell_unread(lines: Sequence[str]) -> None:
    """Print a few of the unread objects on standard error."""
    more = len(lines) - _MOST_UNREAD
    told = [*lines[:_MOST_UNREAD], *([f"and {more} more objects with problems"] if more > 0 else [])]
    warn(told)
