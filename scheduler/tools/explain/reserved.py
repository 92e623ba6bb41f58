"""A reservation, read from the conditions of the pods that it concerns, its only source."""

import re
from typing import Final

from scheduler.kube.port import PodKey
from scheduler.pods.pod import Pod
from scheduler.tools.explain.answers import ReservedPlace
from scheduler.tools.explain.reading import HIDDEN, ClusterSnapshot

# Written by `scheduler.core.reservations.with_reservation`. Earlier versions always wrote `pod NAMESPACE/NAME`.
_SAID: Final = re.compile(
    r"\. (?P<place>(?:cards? [0-9, and]+ of|room on) node \S+) (?:is|are) kept for "
    r"(?:this pod|pod (?P<other>\S+?)(?: of another namespace)?), which has waited (?P<waited>\w+)\."
)


def reserved_place(reading: ClusterSnapshot, pod: Pod) -> ReservedPlace | None:
    """Reservation in the condition of a waiting pod; None without one."""
    said = _SAID.search(pod.condition.message) if pod.condition is not None else None
    if said is None:
        return None
    other = _named(reading, said["other"]) if said["other"] else str(pod.key)
    return ReservedPlace(place=said["place"], pod=other, waited=said["waited"])


def _named(reading: ClusterSnapshot, other: str) -> str:
    """other: `namespace/name`, or the uid of a pod of another namespace."""
    namespace, slash, name = other.partition("/")
    if slash:
        return reading.named(PodKey(namespace, name, ""))
    kept = reading.engine.nominations.of(other)
    return HIDDEN if kept is None else reading.named(kept.pod.key)


def told(reserved: ReservedPlace, pod: Pod) -> str:
    """A sentence about the reservation, on the pod that has it or on one that it blocks."""
    if reserved.pod == str(pod.key):
        return (
            f"A place is reserved for it, since it had waited {reserved.waited} (reserveAfter) as the first of its "
            f"priority: {reserved.place}. Smaller pods no longer take that; nobody is removed for it. It starts there, "
            "or wherever it fits first, when enough has ended."
        )
    whom = reserved.pod if reserved.pod == HIDDEN else f"pod {reserved.pod}"
    return (
        f"It is kept off {reserved.place}, which is reserved for {whom} since that had waited "
        f"{reserved.waited} (reserveAfter). When that pod starts, or gives the place up, the rest is free again."
    )
