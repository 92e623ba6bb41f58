"""Snapshot of a cluster for queries."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.core.engine import Engine
from scheduler.kube.objects import OwnerReference
from scheduler.pods.pod import Pod
from scheduler.process.terminal import some
from scheduler.tools.explain.answers import Going, Nominated

# A pod that a message names by its UID, if no such pod is known.
UNKNOWN = "a pod of another namespace"


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Snapshot of a cluster. engine: filled from it. unit_mib: MiB in a memory unit.

    terminating_since: by uid of a terminating pod, the time of its deletion request, RFC 3339.
    unread: names of the kinds of objects that could not be read. of_others: by uid, pods without a node that request
    GPU memory and wait for another scheduler. controllers: by uid of the pod, if it has one.
    """

    engine: Engine
    unit_mib: int
    terminating_since: Mapping[str, str] = field(default_factory=dict[str, str])
    unread: frozenset[str] = frozenset()
    of_others: Mapping[str, Pod] = field(default_factory=dict[str, Pod])
    controllers: Mapping[str, OwnerReference] = field(default_factory=dict[str, OwnerReference])

    def going(self, pod: Pod) -> Going:
        """Return the terminating pod, with the time of the deletion request."""
        return Going(pod=str(pod.key), since=self.terminating_since.get(pod.key.uid, ""))

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
    named, be = some([one.pod for one in going], most), "is" if len(going) == 1 else "are"
    return f"{named} {be} terminating{f' since {since}' if since else ''}"
