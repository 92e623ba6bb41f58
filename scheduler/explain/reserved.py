"""A place that the scheduler has reserved, as it says on the pods that it concerns: nobody else knows of it."""

import re
from typing import Final

from scheduler.explain.answers import ReservedPlace
from scheduler.pods.pod import Pod

# As `scheduler.reservations.with_reserved_place` writes it.
_SAID: Final = re.compile(
    r"\. (?P<place>(?:cards? [0-9, and]+ of|room on) node \S+) (?:is|are) kept for (?:this pod|pod (?P<other>\S+)), "
    r"which has waited (?P<waited>\w+)\."
)


def reserved_place(pod: Pod) -> ReservedPlace | None:
    """By the condition of a pod that waits; None where it says of none."""
    said = _SAID.search(pod.condition.message) if pod.condition is not None else None
    if said is None:
        return None
    return ReservedPlace(place=said["place"], pod=said["other"] or str(pod.key), waited=said["waited"])


def told(reserved: ReservedPlace, pod: Pod) -> str:
    """A sentence, on the pod that has the place or on one that is kept off it."""
    if reserved.pod == str(pod.key):
        return (
            f"A place is reserved for it, since it had waited {reserved.waited} (reserveAfter) as the first of its "
            f"priority: {reserved.place}. Smaller pods no longer take that; nobody is removed for it. It starts there, "
            "or wherever it fits first, when enough has ended."
        )
    return (
        f"It is kept off {reserved.place}, which is reserved for pod {reserved.pod} since that had waited "
        f"{reserved.waited} (reserveAfter). When that pod starts, or gives the place up, the rest is free again."
    )
