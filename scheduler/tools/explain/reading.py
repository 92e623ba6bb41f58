"""Snapshot of a cluster for queries."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from scheduler.core.engine import Engine
from scheduler.kube.objects import OwnerReference
from scheduler.kube.port import PodKey
from scheduler.pods.pod import Pod
from scheduler.process.terminal import some
from scheduler.tools.explain.answers import Going, Nominated

R = TypeVar("R")
HIDDEN = "a pod of another namespace"


def answer_of(steps: Generator[None, None, R]) -> R:
    """Run all steps of a query and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            answer: R = ended.value
            return answer


def _everything(_namespace: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Snapshot of a cluster. engine: filled from it. unit_mib: MiB in a memory unit.

    terminating_since: by uid of a terminating pod, the time of its deletion request, RFC 3339.
    unread: names of the kinds of objects that could not be read. of_others: by uid, pods without a node that request
    GPU memory and wait for another scheduler. sees: whether pods of a namespace may be named. most_leaving: nodes with
    more pods than this are not searched for victims; 0: no limit. controllers: by uid of the pod, if it has one.
    """

    engine: Engine
    unit_mib: int
    terminating_since: Mapping[str, str] = field(default_factory=dict[str, str])
    unread: frozenset[str] = frozenset()
    of_others: Mapping[str, Pod] = field(default_factory=dict[str, Pod])
    sees: Callable[[str], bool] = _everything
    most_leaving: int = 0
    controllers: Mapping[str, OwnerReference] = field(default_factory=dict[str, OwnerReference])

    def named(self, key: PodKey) -> str:
        """Return `namespace/name`, if it may be shown."""
        return str(key) if self.sees(key.namespace) else HIDDEN

    def going(self, pod: Pod) -> Going:
        """Return the terminating pod, with the time of the deletion request."""
        return Going(pod=self.named(pod.key), since=self.terminating_since.get(pod.key.uid, ""))

    def nominated(self, pod: Pod) -> Nominated | None:
        """Return the nomination of the pod; None if it has none."""
        kept = self.engine.nominations.of(pod.key.uid)
        if kept is None:
            return None
        records = sorted(self.engine.tables.records_on(kept.node), key=lambda record: str(record.pod.key))
        going = tuple(self.going(record.pod) for record in records if record.pod.terminating)
        return Nominated(node=kept.node, terminating=going)


def told_going(going: tuple[Going, ...], most: int) -> str:
    """Return text such as `a, b and 3 more are terminating since 2026-11-22T08:42:09Z`, with the earliest time."""
    since = min((one.since for one in going if one.since), default="")
    named, be = listed_pods([one.pod for one in going], most), "is" if len(going) == 1 else "are"
    return f"{named} {be} terminating{f' since {since}' if since else ''}"


def listed_pods(pods: Sequence[str], most: int) -> str:
    """Return text such as `a, b and 2 pods of other namespaces`: pods that may not be named are only counted."""
    shown = [pod for pod in pods if pod != HIDDEN]
    hidden = len(pods) - len(shown)
    if not hidden:
        return some(shown, most)
    others = HIDDEN if hidden == 1 else f"{hidden} pods of other namespaces"
    more = [f"{len(shown) - most} more"] if len(shown) > most else []
    told = ", ".join((*shown[:most], *more))
    return f"{told} and {others}" if told else others
