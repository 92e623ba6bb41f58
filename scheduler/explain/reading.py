"""What was read of a cluster, to ask questions of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.engine import Engine
from scheduler.explain.answers import Going, Nominated
from scheduler.pods.pod import Pod


@dataclass(frozen=True, slots=True)
class Reading:
    """engine: filled from the cluster. unit_mib: MiB in a memory unit.

    terminating_since: by uid, when a pod's deletion was requested, RFC 3339; of pods that are being deleted.
    unread: names of the kinds of objects that could not be read. of_others: pods without a node that request GPU memory
    and wait for another scheduler.
    """

    engine: Engine
    unit_mib: int
    terminating_since: Mapping[str, str] = field(default_factory=dict[str, str])
    unread: frozenset[str] = frozenset()
    of_others: Sequence[Pod] = ()

    def going(self, pod: Pod) -> Going:
        """Of a pod that is being deleted."""
        return Going(pod=str(pod.key), since=self.terminating_since.get(pod.key.uid, ""))

    def nominated(self, pod: Pod) -> Nominated | None:
        """The place that is kept for the pod, None where there is none."""
        kept = self.engine.nominations.of(pod.key.uid)
        if kept is None:
            return None
        records = sorted(self.engine.tables.records_on(kept.node), key=lambda record: str(record.pod.key))
        going = tuple(self.going(record.pod) for record in records if record.pod.terminating)
        return Nominated(node=kept.node, terminating=going)


def told_going(going: tuple[Going, ...], most: int) -> str:
    """`a, b and 3 more are terminating since 2026-11-22T08:42:09Z`: since the first of them is."""
    since = min((one.since for one in going if one.since), default="")
    named = ", ".join(one.pod for one in going[:most]) + (f" and {len(going) - most} more" if len(going) > most else "")
    return f"{named} {'is' if len(going) == 1 else 'are'} terminating{f' since {since}' if since else ''}"
