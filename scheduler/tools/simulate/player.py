"""Plays a timeline and arriving pods on a simulated cluster, in the roles of users, nodes and kubelets.

    waits --started--> runs --after runs_s--> finished
      |                 |
      +-- (its node is lost) --> gone

Owned by the simulation's driver. Time is an argument: seconds from the start.
"""

import heapq
import random
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from config.clusterfile.arrivals import Arrival, PodAsk
from config.protocol import names
from config.settings.mistakes import ConfigurationError, Mistake
from scheduler.kube.objects import Container, Node, ObjectMeta, PodObject, PodSpec, ResourceRequirements
from scheduler.pods.gpu_request import ResourceNames
from scheduler.testing.cluster.pods import FINISHED
from scheduler.testing.cluster.world import World
from scheduler.tools.simulate.timeline import NodeGoes, NodeIs, PodComes, Step

_NAMESPACE: Final = "default"
_MOST_TOLD: Final = 10


def pods_coming(arrivals: Iterable[Arrival], resources: ResourceNames, scheduler_name: str) -> list[PodComes]:
    """Return a step for each arrival. Pods with equal requests share one spec."""
    asked: dict[PodAsk, tuple[PodSpec, dict[str, str] | None, dict[str, str] | None]] = {}
    steps = []
    for arrival in arrivals:
        parts = asked.get(arrival.ask)
        if parts is None:
            parts = asked[arrival.ask] = _parts(arrival.ask, resources, scheduler_name)
        spec, labels, annotations = parts
        metadata = ObjectMeta(arrival.name, namespace=_NAMESPACE, labels=labels, annotations=annotations)
        steps.append(PodComes(arrival.at_s, PodObject(metadata, spec), arrival.runs_s))
    return steps


def shuffled(arrivals: Sequence[Arrival], seed: int) -> list[Arrival]:
    """Return the arrivals with the same times, but with the pods in random order."""
    order = list(arrivals)
    random.Random(seed).shuffle(order)  # noqa: S311 - the same order for the same seed
    return [pod._replace(at_s=place.at_s) for pod, place in zip(order, arrivals, strict=True)]


def refuse_twins(steps: Iterable[Step], arrivals: Iterable[PodComes]) -> None:
    """Raise ConfigurationError for an arrival that is already among `steps`."""
    there = {
        (step.pod.metadata.namespace or _NAMESPACE, step.pod.metadata.name)
        for step in steps
        if isinstance(step, PodComes)
    }
    twice = [step.pod.metadata.name for step in arrivals if (_NAMESPACE, step.pod.metadata.name) in there]
    if twice:
        message = f"expected each pod once, found in a cluster file too: {', '.join(twice[:_MOST_TOLD])}"
        raise ConfigurationError([Mistake("", "arrivals", message)])


def _parts(
    ask: PodAsk, resources: ResourceNames, scheduler_name: str
) -> tuple[PodSpec, dict[str, str] | None, dict[str, str] | None]:
    """Return (spec, labels, annotations): docs/develop/protocol.md, "Requests"."""
    requests: dict[str, str | int | float] = {}
    if ask.cpu_milli:
        requests["cpu"] = f"{ask.cpu_milli}m"
    if ask.memory_mib:
        requests["memory"] = f"{ask.memory_mib}Mi"
    limits: dict[str, str | int | float] = {}
    if ask.cards:
        limits[resources.gpu_mem] = str(ask.units_per_card * ask.cards)
    container = Container(name="pod", resources=ResourceRequirements(requests or None, limits or None))
    spec = PodSpec(containers=(container,), scheduler_name=scheduler_name, priority=ask.priority)
    labels = {resources.gpu_count: str(ask.cards)} if ask.cards > 1 else None
    annotations = {names.CARD_MODELS: ",".join(ask.models)} if ask.models else None
    return spec, labels, annotations


class TimelinePlayer:
    """Makes all changes in `world` other than our scheduler's. steps: by time."""

    def __init__(self, world: World, steps: Sequence[Step]) -> None:
        self._world = world
        self._steps = steps
        self._taken = 0
        self._pods_until = max((place + 1 for place, step in enumerate(steps) if isinstance(step, PodComes)), default=0)
        self._runs_s: dict[str, float] = {}  # by uid
        self._ends: list[tuple[float, int, PodObject]] = []  # a heap: time, a number that orders equal times, the pod
        self._started = 0

    @property
    def next_s(self) -> float | None:
        """Time at which `play_next` has something to do; None if there is nothing unless a pod starts."""
        step = self._steps[self._taken].at_s if self._taken < len(self._steps) else None
        end = self._ends[0][0] if self._ends else None
        return min((at_s for at_s in (step, end) if at_s is not None), default=None)

    @property
    def all_pods_came(self) -> bool:
        """True if no remaining step creates a pod."""
        return self._taken >= self._pods_until

    def play_next(self) -> list[str]:
        """Execute everything due at the next time: first, pods finish; then come the steps. Returns log lines.

        Raises ValueError if there is nothing to execute.
        """
        now_s = self.next_s
        if now_s is None:
            raise ValueError("nothing is left to play")
        events = []
        while self._ends and self._ends[0][0] <= now_s:
            events += self._finish(heapq.heappop(self._ends)[2])
        while self._taken < len(self._steps) and self._steps[self._taken].at_s <= now_s:
            step = self._steps[self._taken]
            self._taken += 1
            events += self._take(step)
        return events

    def started(self, pod: PodObject, now_s: float) -> None:
        """Record that the pod was placed. Call this once per pod."""
        runs_s = self._runs_s.pop(pod.metadata.uid, None)
        if runs_s is not None:
            self._started += 1
            heapq.heappush(self._ends, (now_s + runs_s, self._started, pod))

    def _take(self, step: Step) -> list[str]:
        match step:
            case PodComes():
                self._create(step)
                return []  # the scheduler reports its fate
            case NodeIs():
                self._show(step.node)
            case NodeGoes():
                self._lose(step.name)
        return [step.event]

    def _create(self, step: PodComes) -> None:
        wanted, pods = step.pod, self._world.pods
        if wanted.status.phase in FINISHED:
            return  # it holds nothing now
        made = pods.create(wanted)
        key = made.metadata.namespace, made.metadata.name
        if wanted.status.phase or wanted.metadata.deletion_timestamp:
            # From a running cluster: an API server gives a new pod neither of these, but this pod is not new.
            ends = wanted.metadata.deletion_timestamp
            made = pods.update(
                *key,
                lambda pod: replace(pod, metadata=replace(pod.metadata, deletion_timestamp=ends), status=wanted.status),
            )
        if step.runs_s is not None:
            self._runs_s[made.metadata.uid] = step.runs_s
        if made.spec.node_name:
            self.started(made, step.at_s)

    def _show(self, node: Node) -> None:
        nodes = self._world.nodes
        if nodes.find(node.metadata.name) is None:
            nodes.add(node)
        else:
            nodes.update(
                node.metadata.name,
                lambda old: Node(replace(old.metadata, annotations=node.metadata.annotations), node.spec, node.status),
            )

    def _lose(self, name: str) -> None:
        """Delete the node's pods, like the garbage collector of pods, but without its delay."""
        self._world.nodes.delete(name)
        for pod in [pod for pod in self._world.pods if pod.spec.node_name == name]:
            self._world.pods.remove(pod.metadata.namespace, pod.metadata.name)

    def _finish(self, pod: PodObject) -> list[str]:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        found = self._world.pods.find(namespace, name)
        if found is None or found.metadata.uid != pod.metadata.uid:
            return []  # it was deleted with its node
        self._world.pods.finish(namespace, name)
        return [f"pod {namespace}/{name} finished"]
