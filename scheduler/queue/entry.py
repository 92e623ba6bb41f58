"""A pod in the queue and its states."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import Generic, TypeAlias, TypeVar

import msgspec

from scheduler.pods.gang import Gang
from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import ClaimKey

# (-priority, arrival number): the lowest comes first.
SortKey: TypeAlias = tuple[int, int]


ObjectT = TypeVar("ObjectT", bound=Hashable)


@dataclass(slots=True, eq=False)
class Referrers(Generic[ObjectT]):
    """Pods of one namespace with references to the same objects. pods: by slot of their class.

    A change of these objects changes the signatures of all pods in one slot in the same way.
    """

    key: Hashable
    objects: tuple[ObjectT, ...]
    pods: "dict[int, dict[Entry, None]]" = field(default_factory=dict)


class PodState(Enum):
    """State of a pod; see the diagram in scheduling_queue.py."""

    GATED = auto()
    GATHERED = auto()
    ACTIVE = auto()
    THROTTLED = auto()
    BACKING_OFF = auto()
    UNSCHEDULABLE = auto()
    IN_FLIGHT = auto()


class QueuedPod(msgspec.Struct, frozen=True):
    """A popped pod. attempts: number of attempts, including this one, >= 1.

    first_queued_s: when the pod first became active.
    """

    pod: Pod
    attempts: int
    first_queued_s: float


class Entry(msgspec.Struct, eq=False, kw_only=True):
    """State of one pod; only the queue changes it.

    sequence: arrival number, 0 before the first activation; negative for a pod that came with a nomination.
    sort_key: computed at the last activation.
    attempts: how often it was popped. no_fits: attempts that found no node. errors: consecutive attempts that failed
    for other reasons since then; in BACKING_OFF, above 0 if the back-off is for an error.
    changes: updates of the pod itself that caused attempts in quick succession; changed_s: time of the last such
    attempt, which may be in the future.
    gate: PreEnqueue's message, "" unless GATED. signature: key of its class; None if it has no class.
    claims: pods of its class that use the same claims. selected: pods of its class that selectors treat alike.
    waits_since_s: when it first became ready, possibly before this process started. passed_until_s: it does not count
    as starving before this time.
    reported: the failure of its namespace that its message has named since the last activation; "" for none.
    ready_s: end of the back-off. leftover_s: when an UNSCHEDULABLE pod is retried in any case.
    gang, gang_priority: as the pod is counted in its gang; None if it is not.
    gone: deleted in flight. changed: updated in flight in a way that may matter. edited: updated in flight in fields
    that a policy may read.
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
    gang: Gang | None = None
    gang_priority: int = 0
    gone: bool = False
    changed: bool = False
    edited: bool = False


def by_priority(pod: Pod) -> int:
    """Sort key of PrioritySort: the highest priority first."""
    return -pod.priority


def by_template(pod: Pod) -> Hashable:
    """Signature for rules that read only the pod's template."""
    return pod.template
