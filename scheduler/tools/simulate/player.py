"""Plays a timeline on a world, as users, nodes and kubelets do: pods are created, run, and finish.

    waits --started--> runs --after runs_s--> finished
      |                 |
      +-- (its node is lost) --> gone

Owned by the simulation's driver. Time is an argument: seconds from the start.
"""

import heapq
from collections.abc import Sequence

from msgspec.structs import replace

from scheduler.kube.objects import Node, PodObject
from scheduler.testing.cluster.pods import FINISHED
from scheduler.testing.cluster.world import World
from scheduler.tools.simulate.timeline import NodeGoes, NodeIs, PodComes, Step


class TimelinePlayer:
    """All changes in `world` other than our scheduler's. steps: by time."""

    def __init__(self, world: World, steps: Sequence[Step]) -> None:
        self._world = world
        self._steps = steps
        self._taken = 0
        self._pods_until = max((place + 1 for place, step in enumerate(steps) if isinstance(step, PodComes)), default=0)
        self._runs_s: dict[str, float] = {}  # by uid
        self._ends: list[tuple[float, int, PodObject]] = []  # a heap: when, a number that orders equal times, the pod
        self._started = 0

    @property
    def next_s(self) -> float | None:
        """When `play_next` has something to do; None: nothing, unless a pod starts."""
        step = self._steps[self._taken].at_s if self._taken < len(self._steps) else None
        end = self._ends[0][0] if self._ends else None
        return min((at_s for at_s in (step, end) if at_s is not None), default=None)

    @property
    def all_pods_came(self) -> bool:
        """Whether no remaining step creates a pod."""
        return self._taken >= self._pods_until

    def play_next(self) -> list[str]:
        """Execute everything of the next time: pods that finish first, then steps. Returns a log, line by line.

        ValueError when there is nothing.
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
        """Note that the pod was placed. Once per pod."""
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
            # From a running cluster: an API server gives a new pod neither, but this one is not new.
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
        """Delete the node's pods, as the garbage collector of pods does, but without its delay."""
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
