"""Drift: differences from the scheduler's decisions, how long they last, and the actions to take. Pure.

`reconcile` finds them. Its inputs were read one at a time while pods came and went, so drift counts only if two
consecutive comparisons show it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from config.protocol import names
from config.protocol.inventory import Card
from config.settings.deviceplugin import Monitor
from deviceplugin.allocation.container_share import most_mib_on_cards
from deviceplugin.allocation.decision import CardDecision, units_on_cards
from deviceplugin.allocation.pods import NodePod
from deviceplugin.kubelet.checkpoint import KubeletContainer

_Key: TypeAlias = tuple["DriftKind", str, str, str]


class DriftKind(StrEnum):
    """Kinds of drift, by their names in metrics and status."""

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
    NOT_ENFORCED = "not-enforced"
    PRESSURE = "memory-pressure"


_OF_USE: Final = frozenset({DriftKind.USES_MORE, DriftKind.PRESSURE})
_UNBOOKED: Final = frozenset({DriftKind.OUTSIDE_USE, DriftKind.USES_UNASKED})


class Action(StrEnum):
    """Actions on drift. METRIC: count it and show it in the status. EVENT: write one on the pod or the node.

    ANNOUNCE_LESS: announce less memory on the card.
    """

    METRIC = "metric"
    EVENT = "event"
    EVICT = "evict"
    ANNOUNCE_LESS = "announce-less"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A difference from the decisions. pod: None if it concerns the node.

    container, uuid: "" if it is not about a single container or card. mib: the memory in question, 0 if none. event:
    for a message that names a pod, the text of an Event on the node, which other tenants may read; "" for none.
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
        """Key of the drift, equal in every comparison that finds it, regardless of its numbers."""
        return self.kind, self.pod.uid if self.pod else "", self.container, self.uuid


@dataclass(frozen=True, slots=True)
class Followed:
    """Drift over time. seen: in the last comparison. lasting: in the one before as well.

    news: lasting since the last comparison; these cause an Event. Evictions are tried for all lasting drift, because
    one may be rejected for now.
    """

    seen: tuple[Drift, ...] = ()
    lasting: tuple[Drift, ...] = ()
    news: tuple[Drift, ...] = ()


def follow(before: Followed, found: Iterable[Drift]) -> Followed:
    """Return the drift after one more comparison."""
    seen = tuple(found)
    seen_before = {one.key for one in before.seen}
    lasted_before = {one.key for one in before.lasting}
    lasting = tuple(one for one in seen if one.key in seen_before)
    return Followed(seen, lasting, tuple(one for one in lasting if one.key not in lasted_before))


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftPolicy:
    """Configured actions on drift.

    evict_unregistered: evict pods that got no devices. evict_mismatched: evict pods that are on another card.
    evict_unscheduled: evict pods for which no scheduler chose a card. enforcement_required: evict pods with a container
    that the driver does not limit, even if they do not require it themselves.
    """

    monitor: Monitor
    evict_unregistered: bool
    evict_mismatched: bool
    evict_unscheduled: bool
    announce_outside_use: bool
    enforcement_required: bool = False


def actions(one: Drift, policy: DriftPolicy) -> frozenset[Action]:
    """Return the actions to take on lasting drift; none on excess use of memory if use is not monitored."""
    kind, told = one.kind, frozenset({Action.METRIC, Action.EVENT})
    if kind is DriftKind.ALLOCATION_CHANGED:
        return frozenset({Action.METRIC})  # Its Event was written when the drift was seen.
    if kind in _OF_USE and policy.monitor == "off":
        return frozenset()
    evicted = {
        DriftKind.USES_MORE: policy.monitor == "evict",
        DriftKind.PRESSURE: policy.monitor == "evict",
        DriftKind.NOT_ENFORCED: policy.enforcement_required or _requires_isolation(one.pod),
        DriftKind.WITHOUT_DEVICES: policy.evict_unregistered,
        DriftKind.ON_ANOTHER_CARD: policy.evict_mismatched,
        DriftKind.UNSCHEDULED: policy.evict_unscheduled,
    }
    # Eviction does not speed up a pod that is being deleted, and a static pod returns at once.
    leaves = one.pod is not None and not one.pod.terminating and not one.pod.static
    if evicted.get(kind, False) and leaves:
        told |= {Action.EVICT}
    if kind in _UNBOOKED and policy.announce_outside_use:
        told |= {Action.ANNOUNCE_LESS}
    return told


def _requires_isolation(pod: NodePod | None) -> bool:
    return pod is not None and pod.annotations.get(names.ISOLATION) == names.ISOLATION_REQUIRED


@dataclass(frozen=True, slots=True)
class SeenPod:
    """An unfinished pod of this node. decision: None if unknown; `doubt` gives the reason.

    unscheduled: no scheduler chose a card for it, so it counts against every card of the node.
    """

    pod: NodePod
    decision: CardDecision | None
    doubt: str = ""
    unscheduled: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """A process on a card; one that ended before it was traced is left out. pod_uid: "" if it is in no pod.

    container_id: without the runtime's name; "" if its cgroups do not contain it. exact: all processes of a container
    together, as the driver counts them; pid is 0.
    """

    uuid: str
    pid: int
    used_mib: int
    pod_uid: str
    container_id: str = ""
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Input of a comparison.

    cards: as announced. allocated: every container that the kubelet listed, including those without IDs; an unlisted
    container proves nothing (the kubelet may not have answered). assigned: (pod UID, container) -> the cards that the
    plugin gave it. uses: empty if the driver does not report processes.
    """

    cards: Sequence[Card]
    unit_mib: int
    pods: Sequence[SeenPod]
    allocated: Sequence[KubeletContainer]
    assigned: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    uses: Sequence[Use] = ()


def find_drift(compared: Compared, *, allowance_mib: int) -> list[Drift]:
    """Return all drift: first of pods by name, then of cards by index.

    allowance_mib: MiB that a pod may use on a card beyond its request.
    """
    held = {(one.namespace, one.pod, one.container): len(one.ids) for one in compared.allocated}
    found: list[Drift] = []
    for seen in sorted(compared.pods, key=lambda seen: (seen.pod.namespace, seen.pod.name)):
        found += _of_decision(seen)
        found += _of_allocation(seen, held)
        found += _of_cards(seen, compared)
        found += _of_use(seen, compared, allowance_mib)
    return [*found, *_allocated_to_nobody(compared, held), *_of_node(compared)]


def _of_decision(seen: SeenPod) -> Iterator[Drift]:
    """Yield the drift of a pod that came without a decision, or whose allocation or requests changed later."""
    pod = seen.pod
    if seen.unscheduled:
        message = (
            f"pod {pod}: no card was chosen for its {pod.ask().units} units, which count against every card of this "
            f"node: {_past_scheduler(pod)}"
        )
        yield Drift(kind=DriftKind.UNSCHEDULED, message=message, pod=pod)
    if pod.changed:
        message = f"pod {pod}: {', '.join(pod.changed)} changed after its card was chosen; the change is ignored"
        yield Drift(kind=DriftKind.ALLOCATION_CHANGED, message=message, pod=pod)


def _past_scheduler(pod: NodePod) -> str:
    if pod.static:
        return (
            "it is a static pod, which bypasses every scheduler; remove its file from the node and create it as a pod"
        )
    return (
        f"it bypassed {names.SCHEDULER_NAME} (schedulerName {pod.scheduler or 'not set'}); create it again "
        f"with schedulerName: {names.SCHEDULER_NAME} and without nodeName"
    )


def _of_allocation(seen: SeenPod, held: Mapping[tuple[str, str, str], int]) -> Iterator[Drift]:
    """Yield differences between devices and requests. The kubelet lists no ordinary init containers (server_v1.go)."""
    pod = seen.pod
    for container in pod.asking():
        ids = held.get((pod.namespace, pod.name, container.name))
        if ids is None:
            continue
        if ids and seen.decision is None and not seen.unscheduled:
            message = f"pod {pod}: container {container.name} has {ids} units but no card: {seen.doubt}"
            yield Drift(kind=DriftKind.WITHOUT_DECISION, message=message, pod=pod, container=container.name)
        elif ids and ids != container.units and not seen.unscheduled:
            message = f"pod {pod}: container {container.name} has {ids} units; its limit is {container.units}"
            yield Drift(kind=DriftKind.OTHER_UNITS, message=message, pod=pod, container=container.name)
        elif not ids and pod.reported and not pod.terminating:
            message = (
                f"pod {pod}: container {container.name} requests {container.units} units but has no devices: the "
                "kubelet admitted it before the resource was registered"
            )
            yield Drift(kind=DriftKind.WITHOUT_DEVICES, message=message, pod=pod, container=container.name)


def _of_cards(seen: SeenPod, compared: Compared) -> Iterator[Drift]:
    """Yield differences between the cards that containers got and the decided ones."""
    if seen.decision is None:
        return
    for container in seen.pod.asking():
        assigned = compared.assigned.get((seen.pod.uid, container.name))
        decided = frozenset(share.uuid for share in seen.decision.shares.get(container.name, ()))
        if assigned is not None and assigned != decided:
            cards = f"{_list(assigned)}; the scheduler chose {_list(decided)}"
            message = f"pod {seen.pod}: container {container.name} has {cards}"
            yield Drift(kind=DriftKind.ON_ANOTHER_CARD, message=message, pod=seen.pod, container=container.name)


def _of_use(seen: SeenPod, compared: Compared, allowance_mib: int) -> Iterator[Drift]:
    """Yield, card by card, differences between the memory that a pod uses and its allocation."""
    pod = seen.pod
    booked = units_on_cards(pod, seen.decision, compared.unit_mib) if seen.decision else {}
    most = most_mib_on_cards(pod, seen.decision, compared.cards) if seen.decision else {}
    for uuid, used in sorted(used_by(compared.uses, pod.uid).items()):
        requested_mib = booked.get(uuid, 0) * compared.unit_mib
        most_mib = max(requested_mib, most.get(uuid, 0))
        if booked and uuid not in booked:
            message = f"pod {pod}: it uses {used} MiB of {uuid}; the scheduler chose {_list(booked)}"
            yield Drift(kind=DriftKind.ON_ANOTHER_CARD, message=message, pod=pod, uuid=uuid, mib=used)
        elif not booked and not pod.asking():
            message = f"pod {pod}: it uses {used} MiB of {uuid} but requests none"
            yield Drift(kind=DriftKind.USES_UNASKED, message=message, pod=pod, uuid=uuid, mib=used)
        # An exclusive pod has the card to itself: excess use harms no other pod.
        elif booked and used > most_mib + allowance_mib and not pod.exclusive:
            may = f"may use {most_mib}" if most_mib > requested_mib else f"requested {requested_mib}"
            message = f"pod {pod}: it uses {used} MiB of {uuid}; it {may} MiB there"
            yield Drift(kind=DriftKind.USES_MORE, message=message, pod=pod, uuid=uuid, mib=used - most_mib)


def _allocated_to_nobody(compared: Compared, held: Mapping[tuple[str, str, str], int]) -> Iterator[Drift]:
    known = {(seen.pod.namespace, seen.pod.name) for seen in compared.pods}
    for (namespace, name, container), ids in sorted(held.items()):
        if ids and (namespace, name) not in known:
            message = f"pod {namespace}/{name}: container {container} has {ids} units; the API server has no such pod"
            event = f"a pod unknown to the API server holds {ids} units; gpushare-device-plugin status names it"
            about = f"{namespace}/{name}/{container}"
            yield Drift(kind=DriftKind.WITHOUT_DECISION, message=message, container=about, event=event)


def _of_node(compared: Compared) -> Iterator[Drift]:
    """Yield the drift of each card as a whole."""
    known = {"", *(seen.pod.uid for seen in compared.pods)}
    booked = _booked(compared.pods, compared.unit_mib)
    for card in sorted(compared.cards, key=lambda card: card.index):
        if booked[card.uuid] > card.units:
            message = f"card {card.uuid} has {card.units} units; {booked[card.uuid]} are allocated to pods"
            yield Drift(kind=DriftKind.OVERBOOKED, message=message, uuid=card.uuid)
        outside = used_by((use for use in compared.uses if use.uuid == card.uuid), "")
        if outside:
            pids = _list(str(use.pid) for use in compared.uses if use.uuid == card.uuid and not use.pod_uid)
            message = f"card {card.uuid}: processes outside Kubernetes use {outside[card.uuid]} MiB (PID {pids})"
            yield Drift(kind=DriftKind.OUTSIDE_USE, message=message, uuid=card.uuid, mib=outside[card.uuid])
        strange = [use for use in compared.uses if use.uuid == card.uuid and use.pod_uid not in known]
        if strange:
            mib, uids = sum(use.used_mib for use in strange), _list({use.pod_uid for use in strange})
            message = f"card {card.uuid}: pods unknown to the API server use {mib} MiB (UID {uids})"
            yield Drift(kind=DriftKind.USES_UNASKED, message=message, uuid=card.uuid, mib=mib)


def _booked(pods: Iterable[SeenPod], unit_mib: int) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for seen in pods:
        if seen.decision is not None:
            for uuid, units in units_on_cards(seen.pod, seen.decision, unit_mib).items():
                sums[uuid] += units
    return sums


def used_by(uses: Iterable[Use], pod_uid: str) -> dict[str, int]:
    """Return card UUID -> MiB that the pod uses."""
    sums: dict[str, int] = defaultdict(int)
    for use in uses:
        if use.pod_uid == pod_uid:
            sums[use.uuid] += use.used_mib
    return dict(sums)


def _list(items: Iterable[str]) -> str:
    return ", ".join(sorted(items)) or "none"
