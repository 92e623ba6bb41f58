"""One pod in the queue, and the states that it can be in."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import Generic, TypeAlias, TypeVar

import msgspec

from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import ClaimKey

# (-priority, place in the order of arrival): the least comes first.
SortKey: TypeAlias = tuple[int, int]


ObjectT = TypeVar("ObjectT", bound=Hashable)


@dataclass(slots=True, eq=False)
class Referrers(Generic[ObjectT]):
    """Pods of one namespace that refer to the same objects in the same way. pods: by the slot of their class.

    Whatever becomes of these objects, it changes the signatures of all pods in one slot alike.
    """

    key: Hashable
    objects: tuple[ObjectT, ...]
    pods: "dict[int, dict[Entry, None]]" = field(default_factory=dict)


class PodState(Enum):
    """Where a pod is; drawn in scheduling_queue.py."""

    GATED = auto()
    ACTIVE = auto()
    THROTTLED = auto()
    BACKING_OFF = auto()
    UNSCHEDULABLE = auto()
    IN_FLIGHT = auto()


class QueuedPod(msgspec.Struct, frozen=True):
    """One attempt. attempts: this one included, >= 1.

    first_queued_s: when the pod first became active.
    """

    pod: Pod
    attempts: int
    first_queued_s: float


class Entry(msgspec.Struct, eq=False, kw_only=True):
    """What the queue knows of one pod; changed by the queue only.

    sequence: place in the order of arrival, 0 before it has one; negative where it came with a nomination.
    sort_key: as computed when the pod last became active.
    attempts: pops. no_fits: attempts that found no node. errors: failures in a row since then; above 0 in
    BACKING_OFF means that the back-off is for an error.
    changes: of the pod itself that led to attempts in short order; changed_s: when the last one did, or will.
    gate: PreEnqueue's message, "" when not GATED. signature: None when in no class.
    claims, selected: the pods of its class that use the same claims, and those that are selected by the same objects.
    waits_since_s: when it became ready for the first time, also if that was another process before this one.
    passed_until_s: it counts not as starved until then. told: how its namespace fails, as it was
    told since it became active; "" while it was not.
    ready_s: end of the back-off. leftover_s: when an UNSCHEDULABLE pod is tried again whatever happens.
    evaluated_s: when it was found to fit nowhere last, be it by an attempt or not; evaluated_at: by what state of things,
    None where that is not known.
    gone: deleted in flight. changed: updated in flight, in a way that may matter; edited: in what a policy may read.
    """

    pod: Pod
    state: PodState = PodState.GATED
    sequence: int = 0
    sort_key: SortKey = (0, 0)
    attempts: int = 0
    no_fits: int = 0
    errors: int = 0
    gate: str = ""
    signature: Hashable = None
    claims: Referrers[ClaimKey] | None = None
    selected: Referrers[str] | None = None
    ready_s: float = 0.0
    leftover_s: float = 0.0
    first_queued_s: float = inf
    waits_since_s: float = inf
    passed_until_s: float = -inf
    queued_s: float = 0.0
    changes: int = 0
    changed_s: float = -inf
    reported: str = ""
    evaluated_s: float = 0.0
    evaluated_at: Hashable = None
    gone: bool = False
    changed: bool = False
    edited: bool = False


def by_priority(pod: Pod) -> int:
    """PrioritySort: the highest first."""
    return -pod.priority


def by_template(pod: Pod) -> Hashable:
    """What a rule may read of a pod, when nothing beside its template is."""
    return pod.template
