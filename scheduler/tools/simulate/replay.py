"""Runs the scheduler's engine on a described cluster at full speed: virtual time, no waiting, no randomness.

    play the next time's steps ─▶ pass them to the engine ─▶ decide until nothing is ready ─▶ the next time ...

A placed pod is bound at once, and the engine is informed as if by a watch. The replay ends when no step is left, no
running pod will finish, and nothing has changed since the last attempt of each waiting pod.

The claims of placed pods are bound to volumes of the cluster file or to new ones:

    claim of a placed pod ── a free volume exists ───▶ bound to it
                          └─ one is required ───────▶ created at once, and bound to it

Provisioners, and the controller that binds (pkg/controller/volume/persistentvolume), act the moment a pod is placed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from config.clusterfile.reading import ClusterFile, said_of
from config.clusterfile.workloads import Manifest
from config.settings.mistakes import ConfigurationError, Mistake
from scheduler.core.effects import Bind, Unschedulable
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.intake.event_handlers import EventHandlers
from scheduler.intake.reports import ProblemReports
from scheduler.intake.volume_handlers import VolumeHandlers
from scheduler.kube.defaults import decoded
from scheduler.kube.objects import Node, PodDisruptionBudget, PodObject
from scheduler.kube.port import (
    CLAIMS,
    NODES,
    OF_STORAGE,
    PODS,
    STORAGE_CLASSES,
    VOLUMES,
    Binding,
    Changed,
    Deleted,
    Kind,
    PodKey,
)
from scheduler.kube.problem import Problem
from scheduler.plugins.fragmentation.measure import Fragmentation, fragmentation_of
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod, PodReader
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.process.clock import Clock
from scheduler.queue.entry import PodState, QueuedPod
from scheduler.state.volumes.plan import VolumePlan
from scheduler.testing.cluster.store import Feed
from scheduler.testing.cluster.world import World
from scheduler.tools.simulate.course import Course
from scheduler.tools.simulate.player import TimelinePlayer, refuse_twins
from scheduler.tools.simulate.report import FINISHED, LOST, PlacedPod, Report, Waits
from scheduler.tools.simulate.timeline import PodComes, Step, in_order, timeline
from scheduler.tools.simulate.usage import CardUsage

_KINDS: Final[Mapping[str, Kind[Any]]] = {kind.api_kind.lower(): kind for kind in OF_STORAGE}


def create_storage(cluster: ClusterFile, world: World) -> None:
    """Create all storage objects of the file.

    Raises ConfigurationError with every object that an API server would reject.
    """
    mistakes: list[Mistake] = []
    for manifest in cluster.storage:
        kind = _KINDS[str(manifest["kind"]).lower()]
        with _noting(mistakes, cluster, manifest):
            world.storage.create(kind, decoded(manifest, kind.type))
    if mistakes:
        raise ConfigurationError(mistakes)


def create_budgets(cluster: ClusterFile, world: World) -> None:
    """Create the file's disruption budgets unchanged. Raises ConfigurationError, like `create_storage`."""
    mistakes: list[Mistake] = []
    for manifest in cluster.budgets:
        with _noting(mistakes, cluster, manifest):
            world.disruption_budgets.add(decoded(manifest, PodDisruptionBudget))
    if mistakes:
        raise ConfigurationError(mistakes)


@contextmanager
def _noting(mistakes: list[Mistake], cluster: ClusterFile, manifest: Manifest) -> Iterator[None]:
    """Add mistakes of the manifest to `mistakes`."""
    try:
        yield
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        source = cluster.source_of(manifest, said_of(manifest))
        mistakes.append(Mistake(path.removesuffix("`"), source, message.lower()))


def fulfil(plan: VolumePlan, world: World) -> None:
    """Bind every claim of a placed pod to its volume."""
    for (namespace, name), volume in plan:
        claim = world.storage.of(CLAIMS).existing(namespace, name)
        if claim.spec.volume_name:
            continue  # another pod that shares the claim was placed before
        world.storage.bind(namespace, name, volume or _make((namespace, name), plan.node, world))


def _make(key: ClaimKey, node: str, world: World) -> str:
    """Create a volume for a claim, usable where `allowedTopologies` of its class allow it; return its name."""
    claim = world.storage.of(CLAIMS).existing(*key)
    class_name = claim.spec.storage_class_name or ""
    of_class = world.storage.of(STORAGE_CLASSES).existing("", class_name)
    found = world.nodes.find(node)
    labels = {} if found is None else found.metadata.labels or {}
    keys = {one.key for term in of_class.allowed_topologies for one in term.match_label_expressions}
    expressions = [{"key": key, "operator": "In", "values": [labels[key]]} for key in sorted(keys) if key in labels]
    spec: dict[str, Any] = {
        "accessModes": list(claim.spec.access_modes),
        "capacity": dict((claim.spec.resources.requests if claim.spec.resources else None) or {}),
        "storageClassName": class_name,
        "volumeMode": claim.spec.volume_mode,
    }
    if of_class.provisioner and "/" in of_class.provisioner and not of_class.provisioner.startswith("kubernetes.io/"):
        spec["csi"] = {"driver": of_class.provisioner, "volumeHandle": f"pvc-{claim.metadata.uid}"}
    if expressions:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return world.storage.create(
        VOLUMES, {"metadata": {"name": f"pvc-{claim.metadata.uid}"}, "spec": spec}
    ).metadata.name


EPOCH_S: Final = 1_767_225_600  # 2026-01-01T00:00:00Z: start of the world's clock


def replay(
    cluster: ClusterFile,
    built: tuple[Engine, PodReader],
    *,
    resources: ResourceNames,
    unit_mib: int,
    arrivals: Sequence[PodComes] = (),
    rejects: bool = False,
    course: Course | None = None,
) -> Report:
    """Place the pods of `cluster` and `arrivals`; deterministic for the same files.

    built: an empty engine and its pod reader. resources, unit_mib: the values that it was built with. rejects: whether
    a pod that fits nowhere at its first attempt is deleted. course: collects the first attempts. Raises
    ConfigurationError for objects that an API server would reject.
    """
    steps = timeline(cluster, resources, unit_mib)
    if arrivals:
        refuse_twins(steps, arrivals)
    playing = _Replay(in_order((*steps, *arrivals)), *built, rejects=rejects, course=course)
    playing.begin(cluster)
    return replace(playing.run(), ignored=tuple(cluster.ignored))


def world_after(
    cluster: ClusterFile, built: tuple[Engine, PodReader], *, resources: ResourceNames, unit_mib: int
) -> World:
    """Return the cluster once it is stable; arguments as in `replay`. Budgets have the status that the file gives them.

    Raises ConfigurationError for objects that an API server would reject.
    """
    playing = _Replay(timeline(cluster, resources, unit_mib), *built, rejects=False, course=None)
    playing.begin(cluster)
    playing.run()
    create_budgets(cluster, playing.world)
    return playing.world


@dataclass(slots=True)
class _Try:
    """Last attempt for a waiting pod. version: the tables' version at that time."""

    attempts: int
    reason: str
    version: int


class _Replay(ProblemReports):
    def __init__(
        self, steps: list[Step], engine: Engine, reader: PodReader, *, rejects: bool, course: Course | None
    ) -> None:
        self._now_s = 0.0
        self._rejects = rejects
        self._course = course
        self._engine = engine
        self.world = self._world = World(self._unix_s)
        self._player = TimelinePlayer(self._world, steps)
        self._handlers = EventHandlers(engine, reader, self, Clock(self._elapsed_s, self._unix_ns))
        volume_handlers = VolumeHandlers(engine.tables, self)
        self._feeds = (
            Feed(self._world.nodes.collection, NODES, self._node_events),
            *(Feed(self._world.storage.of(kind), kind, partial(volume_handlers.handle, kind)) for kind in OF_STORAGE),
            Feed(self._world.pods.collection, PODS, self._pod_events),
        )
        self._usage = CardUsage()
        self._created_s: dict[str, float] = {}
        self._placed: dict[str, PlacedPod] = {}
        self._tries: dict[str, _Try] = {}
        self._rejected: list[Waits] = []
        self._problems: dict[Problem, None] = {}
        self._by_others: set[str] = set()
        self._decisions = 0
        self._fragmentation: Fragmentation | None = None

    def _elapsed_s(self) -> float:
        return self._now_s

    def _unix_s(self) -> float:
        return EPOCH_S + self._now_s

    def _unix_ns(self) -> int:
        return int(self._unix_s() * 1e9)

    def begin(self, cluster: ClusterFile) -> None:
        """Load the initial objects other than nodes and pods. Raises ConfigurationError."""
        create_storage(cluster, self._world)

    def run(self) -> Report:
        while (now_s := self._next_s()) is not None:
            self._now_s = now_s
            if self._player.next_s != now_s:
                self._decide_all()
            while self._player.next_s == now_s:  # a pod that runs for 0 s ends at the time at which it started
                self._player.play_next()
                self._deliver()
                self._decide_all()
                if self._fragmentation is None and self._player.all_pods_came:
                    # Later, pods finish, and the remaining cluster does not show how it was filled.
                    self._fragmentation = self._measured()
        return self._report()

    # Time

    def _next_s(self) -> float | None:
        """Return the time of the next change; None if never."""
        outside_s, ready_s = self._player.next_s, self._engine.next_ready_s()
        if outside_s is None and not self._worth_trying():
            return None
        times = [at_s for at_s in (outside_s, ready_s) if at_s is not None]
        return max(self._now_s, min(times)) if times else None

    def _worth_trying(self) -> bool:
        """Return whether a pod waits only for time, and something has changed since its last attempt."""
        queue, version = self._engine.queue, self._engine.tables.changes.version
        return any(
            tried.version != version and queue.state(uid) is PodState.BACKING_OFF for uid, tried in self._tries.items()
        )

    # The watch

    def _deliver(self) -> None:
        for feed in self._feeds:
            feed.deliver()

    def _node_events(self, events: list[Changed[Node] | Deleted[Node]]) -> None:
        self._handlers.nodes(events)
        for event in events:
            name = event.object.metadata.name
            if name in self._engine.tables.row_of:
                self._usage.node_is(name, self._engine.tables.inventory(name))
            else:
                self._usage.node_gone(name)

    def _pod_events(self, events: list[Changed[PodObject] | Deleted[PodObject]]) -> None:
        self._handlers.pods(events)
        for event in events:
            uid = event.object.metadata.uid
            if isinstance(event, Deleted):
                self._pod_ended(event.object)
                continue
            self._created_s.setdefault(uid, self._now_s)
            record = self._engine.tables.record(uid)
            if record is not None:
                if record.held is not None:
                    self._usage.begins(uid, record.node, record.held.booked, self._now_s)
                if uid not in self._placed:
                    self._by_others.add(uid)

    def _pod_ended(self, pod: PodObject) -> None:
        uid = pod.metadata.uid
        self._usage.ends(uid, self._now_s)
        if uid in self._placed:
            how = FINISHED if self._world.pods.find(pod.metadata.namespace, pod.metadata.name) else LOST
            self._placed[uid] = replace(self._placed[uid], ended_s=self._now_s, ended=how)

    def problem(self, problem: Problem) -> None:
        if problem.happened:
            return  # the report shows the cards
        self._problems[problem] = None

    # Decisions

    def _decide_all(self) -> None:
        """Let the engine work until it has nothing to do. No pod is ever evicted here."""
        while (step := self._engine.step(self._now_s, self._unix_ns())) is not None:
            for effect in step.effects:
                if isinstance(effect, Bind):
                    self._bind(effect.queued, effect.placement)
                elif isinstance(effect, Unschedulable) and effect.attempt is not None:
                    self._waits_on(effect.pod, effect.attempt, effect.diagnosis.message)

    def _waits_on(self, pod: Pod, attempt: int, message: str) -> None:
        self._note_attempt(pod, attempt, placed=False)
        if self._rejects:
            self._reject(pod.key, message)
        else:
            self._tries[pod.key.uid] = _Try(attempt, message, self._engine.tables.changes.version)

    def _reject(self, key: PodKey, message: str) -> None:
        self._rejected.append(Waits(str(key), self._created_s[key.uid], 1, message))
        self._world.pods.delete(key.namespace, key.name)
        self._deliver()

    def _note_attempt(self, pod: Pod, attempt: int, *, placed: bool) -> None:
        self._decisions += 1
        if (course := self._course) is None or attempt > 1:
            return
        # The unit of an invalid request may be wrong: 8Gi are more than any cluster has.
        request, whole = pod.template.gpu_request, self._usage.whole
        course.note(self._now_s, 0 if request is None else request.units, whole.used, placed=placed)
        course.units, course.average = self._usage.units, whole.average(self._now_s)

    def _bind(self, queued: QueuedPod, placement: Placement) -> None:
        key = placement.pod.key
        self._tries.pop(key.uid, None)
        self._placed[key.uid] = PlacedPod(
            pod=str(key),
            node=placement.node,
            cards=placement.cards,
            bound_s=self._now_s,
            wait_s=round(self._now_s - self._created_s[key.uid], 6),
            attempts=queued.attempts,
        )
        if placement.volumes is not None:
            fulfil(placement.volumes, self._world)
        pod = self._world.pods.assign(Binding(key, placement.node, placement.annotations))
        self._engine.bound(placement)
        self._player.started(pod, self._now_s)
        self._deliver()
        self._note_attempt(placement.pod, queued.attempts, placed=True)

    # The end

    def _measured(self) -> Fragmentation:
        return fragmentation_of(self._engine.tables).total()

    def _report(self) -> Report:
        fragmentation = self._fragmentation or self._measured()
        return Report(
            placed=tuple(self._placed.values()),
            waiting=tuple(self._waits(pod) for pod in self._world.pods if not pod.spec.node_name and _lives(pod)),
            nodes=tuple(self._usage.nodes(self._now_s)),
            cards=tuple(self._usage.cards(self._now_s)),
            end_s=self._now_s,
            by_others=len(self._by_others),
            decisions=self._decisions,
            problems=tuple(f"{problem.kind} {problem.name}: {problem.message}" for problem in self._problems),
            rejected=tuple(self._rejected),
            free=round(fragmentation.free),
            fragmented=round(fragmentation.unusable, 3),
        )

    def _waits(self, pod: PodObject) -> Waits:
        meta = pod.metadata
        tried = self._tries.get(meta.uid)
        return Waits(
            pod=f"{meta.namespace}/{meta.name}",
            since_s=self._created_s[meta.uid],
            attempts=tried.attempts if tried else 0,
            reason=tried.reason if tried else self._untried(pod),
        )

    def _untried(self, pod: PodObject) -> str:
        """Return why there was no attempt for a pod."""
        name = pod.spec.scheduler_name
        if name not in self._engine.scheduler_names:
            return f"schedulerName is {name}: left to that scheduler"
        if reason := self._engine.queue.gate(pod.metadata.uid):
            return reason
        if pod.metadata.deletion_timestamp:
            return "is being deleted"
        return "cannot be read: see the problems"


def _lives(pod: PodObject) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed")
