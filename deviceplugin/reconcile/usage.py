"""Units and memory use of each container, from readings of the node. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from config.protocol import inventory
from config.protocol.booked_cards import rescaled
from deviceplugin.allocation.decision import NoAllocation, Undecided, decided
from deviceplugin.allocation.pods import MIRROR, NodePod
from deviceplugin.driver.cards import CardReading, card_of
from deviceplugin.reconcile.cgroups import Owner
from deviceplugin.reconcile.drift import Action, Drift, DriftKind, DriftPolicy, Followed, SeenPod, Use, actions
from deviceplugin.report.status import AllocationStatus, DriftStatus, ShownContainer
from scheduler.kube import objects


@dataclass(frozen=True, slots=True)
class Account:
    """A container that requests cards and has a decision. units: UUID -> units there, at least one card.

    used_mib: UUID -> MiB there; None if unknown. exact: UUIDs of the cards on which the driver counts its use.
    """

    namespace: str
    pod: str
    container: str
    units: Mapping[str, int]
    used_mib: Mapping[str, int | None]
    exact: frozenset[str] = frozenset()


def seen(pods: Iterable[NodePod], cards: Sequence[inventory.Card], unit_mib: int) -> list[SeenPod]:
    """Return each unfinished pod with its decision, or with the reason why the decision is unknown."""
    return [_seen(pod, cards, unit_mib) for pod in pods if not pod.finished]


def uids_by_cgroup(pods: Iterable[objects.PodObject]) -> dict[str, str]:
    """Return the UID in a pod's cgroups -> its UID on the API server; they differ for static pods.

    Any user may write the annotation, so it never replaces an existing pod.
    """
    pods = tuple(pods)
    mirrors = {(pod.metadata.annotations or {}).get(MIRROR, ""): pod.metadata.uid for pod in pods}
    return mirrors | {pod.metadata.uid: pod.metadata.uid for pod in pods}


def uses(
    readings: Mapping[str, CardReading], owners: Mapping[int, Owner | None], uids: Mapping[str, str]
) -> tuple[Use, ...]:
    """Return every process on every card whose owner could be traced. uids: as from `uids_by_cgroup`."""
    found = []
    for uuid, reading in sorted(readings.items()):
        for process in reading.processes:
            if process.pid in owners:
                owner = owners[process.pid]
                uid = uids.get(owner.pod_uid, owner.pod_uid) if owner else ""
                container_id = owner.container_id if owner else ""
                found.append(Use(uuid, process.pid, process.used_mib, uid, container_id))
    return tuple(found)


def containers_by_id(pods: Iterable[objects.PodObject]) -> dict[str, str]:
    """Return container ID, without the runtime's name -> the container's name, for live containers."""
    return {
        status.container_id.partition("://")[2]: status.name
        for pod in pods
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if status.container_id
    }


def accounts(
    pods: Iterable[SeenPod], found: Iterable[Use], read: Collection[str], by_id: Mapping[str, str], *, unit_mib: int
) -> list[Account]:
    """Return one account per container with cards, in units of `unit_mib`. read: UUIDs of the cards with known use.

    by_id: from `containers_by_id`.

    Use by an unknown container of a pod is charged to the pod's only requesting container; if it has several, the use
    is unknown.
    """
    used: Counter[tuple[str, str, str]] = Counter()
    exact: set[tuple[str, str, str]] = set()
    for use in found:
        key = use.pod_uid, by_id.get(use.container_id, ""), use.uuid
        used[key] += use.used_mib
        exact |= {key} if use.exact else set()
    listed = []
    for one in pods:
        if one.decision is None:
            continue
        asking, uid = one.pod.asking(), one.pod.uid
        for container in asking:
            shares = one.decision.shares[container.name]
            counted = frozenset(share.uuid for share in shares if (uid, container.name, share.uuid) in exact)
            of_card: dict[str, int | None] = {}
            for uuid in (share.uuid for share in shares):
                unknown, own = used[uid, "", uuid], used[uid, container.name, uuid]
                told = uuid in read and (not unknown or len(asking) == 1)
                of_card[uuid] = own if uuid in counted else own + unknown if told else None
            units = {share.uuid: rescaled(share.units, one.decision.unit_mib, unit_mib) for share in shares}
            listed.append(Account(one.pod.namespace, one.pod.name, container.name, units, of_card, counted))
    return listed


def shown_containers(listed: Iterable[Account], cards: Iterable[inventory.Card]) -> list[ShownContainer]:
    """Return one entry for each container and card, for metrics."""
    by_uuid = {card.uuid: card_of(card) for card in cards}
    return [
        ShownContainer(
            card=by_uuid[uuid],
            namespace=one.namespace,
            pod=one.pod,
            container=one.container,
            requested_units=units,
            used_mib=one.used_mib[uuid],
            exact=uuid in one.exact,
        )
        for one in listed
        for uuid, units in one.units.items()
        if uuid in by_uuid
    ]


def container_statuses(listed: Iterable[Account]) -> tuple[AllocationStatus, ...]:
    """Return one entry for each container, for `/status`."""
    return tuple(
        AllocationStatus(
            one.namespace,
            one.pod,
            one.container,
            dict(one.units),
            _sum(one.used_mib.values()),
            exact=one.exact == one.units.keys(),
        )
        for one in listed
    )


def counts(lasting: Iterable[Drift], policy: DriftPolicy) -> dict[str, int]:
    """Return the number of counted drifts of each kind, including zeros."""
    counted = Counter(one.kind for one in lasting if Action.METRIC in actions(one, policy))
    return {kind.value: counted[kind] for kind in DriftKind}


def drift_statuses(lasting: Iterable[Drift], policy: DriftPolicy) -> tuple[DriftStatus, ...]:
    """Return the drift with at least one action."""
    following = ((one, sorted(actions(one, policy))) for one in lasting)
    return tuple(DriftStatus(one.kind.value, one.message, tuple(found)) for one, found in following if found)


def outside_mib(
    before: Mapping[str, int], followed: Followed, read: Collection[str], policy: DriftPolicy
) -> dict[str, int]:
    """Return UUID -> MiB to subtract from the announced memory of the card; empty unless configured.

    before: the previous result. read: UUIDs of the cards whose use is known now. If it is unknown, or was unknown last
    time, the answer stays: an unreadable card's memory must not be allocated.
    """
    sums: Counter[str] = Counter()
    for one in followed.lasting:
        if Action.ANNOUNCE_LESS in actions(one, policy):
            sums[one.uuid] += one.mib
    seen_again = {one.uuid for one in followed.seen if Action.ANNOUNCE_LESS in actions(one, policy)}
    return {uuid: mib for uuid, mib in before.items() if uuid not in read or uuid in seen_again} | dict(sums)


def _seen(pod: NodePod, cards: Sequence[inventory.Card], unit_mib: int) -> SeenPod:
    if not pod.asking():
        return SeenPod(pod, None)
    try:
        return SeenPod(pod, decided(pod, cards, unit_mib))
    except NoAllocation as error:
        return SeenPod(pod, None, str(error), unscheduled=True)
    except Undecided as error:
        return SeenPod(pod, None, str(error))


def _sum(amounts: Collection[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None
