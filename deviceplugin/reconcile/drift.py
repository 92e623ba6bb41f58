"""Drift: differences from the scheduler's decisions, how long they last, and the actions on them. Pure.

`reconcile` finds them. What it compares was read one after the other while pods came and went, so drift counts
only when two comparisons in a row show it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from config.settings.deviceplugin import Monitor
from deviceplugin.allocation.pods import NodePod

_Key: TypeAlias = tuple["DriftKind", str, str, str]


class DriftKind(StrEnum):
    """Kinds as metrics and status name them."""

    ON_ANOTHER_CARD = "on-another-card"
    WITHOUT_DEVICES = "without-devices"
    WITHOUT_DECISION = "without-decision"
    OTHER_UNITS = "other-units"
    OVERBOOKED = "overbooked"
    USES_MORE = "uses-more"
    USES_UNASKED = "uses-unasked"
    OUTSIDE_USE = "outside-use"
    UNSCHEDULED = "unscheduled"
    ALLOCATION_CHANGED = "allocation-changed"


_UNBOOKED: Final = frozenset({DriftKind.OUTSIDE_USE, DriftKind.USES_UNASKED})


class Action(StrEnum):
    """METRIC: counted, and shown in the status. EVENT: on the pod, or on the node. ANNOUNCE_LESS: of the card."""

    METRIC = "metric"
    EVENT = "event"
    EVICT = "evict"
    ANNOUNCE_LESS = "announce-less"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One thing that differs from what was decided. pod: None where it is about the node.

    container, uuid: "" where it is about no single container, or card. mib: the memory in question, 0 where none is.
    event: of a message that names a pod, the text for an Event on the node, which other tenants may read; "" for none.
    """

    kind: DriftKind
    message: str
    pod: NodePod | None = None
    container: str = ""
    uuid: str = ""
    mib: int = 0
    event: str = ""

    @property
    def key(self) -> _Key:
        """Equal for the same drift in another comparison, whatever its numbers are."""
        return self.kind, self.pod.uid if self.pod else "", self.container, self.uuid


@dataclass(frozen=True, slots=True)
class Followed:
    """Drift over time. seen: by the last comparison. lasting: by the one before as well.

    news: lasting since the last comparison: what an Event is written for. An eviction may be refused for now, so it is
    tried for all that last.
    """

    seen: tuple[Drift, ...] = ()
    lasting: tuple[Drift, ...] = ()
    news: tuple[Drift, ...] = ()


def follow(before: Followed, found: Iterable[Drift]) -> Followed:
    """One comparison later."""
    seen = tuple(found)
    seen_before = {one.key for one in before.seen}
    lasted_before = {one.key for one in before.lasting}
    lasting = tuple(one for one in seen if one.key in seen_before)
    return Followed(seen, lasting, tuple(one for one in lasting if one.key not in lasted_before))


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftPolicy:
    """Configured actions on drift.

    evict_…: pods without devices, pods on another card, pods that no scheduler has chosen a card for.
    """

    monitor: Monitor
    evict_unregistered: bool
    evict_mismatched: bool
    evict_unscheduled: bool
    announce_outside_use: bool


def actions(one: Drift, policy: DriftPolicy) -> frozenset[Action]:
    """Actions on drift that lasts; none for excess use if it is not monitored."""
    kind, told = one.kind, frozenset({Action.METRIC, Action.EVENT})
    if kind is DriftKind.ALLOCATION_CHANGED:
        return frozenset({Action.METRIC})  # Its Event was written when it was seen.
    if kind is DriftKind.USES_MORE and policy.monitor == "off":
        return frozenset()
    evicted = {
        DriftKind.USES_MORE: policy.monitor == "evict",
        DriftKind.WITHOUT_DEVICES: policy.evict_unregistered,
        DriftKind.ON_ANOTHER_CARD: policy.evict_mismatched,
        DriftKind.UNSCHEDULED: policy.evict_unscheduled,
    }
    # A pod that is being deleted already goes no sooner for being evicted, and a static one comes again at once.
    leaves = one.pod is not None and not one.pod.terminating and not one.pod.static
    if evicted.get(kind, False) and leaves:
        told |= {Action.EVICT}
    if kind in _UNBOOKED and policy.announce_outside_use:
        told |= {Action.ANNOUNCE_LESS}
    return told
