"""Cards that lack the memory that pods on them were guaranteed, because another pod uses more than its request. Pure.

Only requests are booked. A pod with `gpushare/gpu-mem-limit` may use more while it is free; others may still claim
what they requested.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from config.protocol import names
from config.protocol.inventory import Card
from deviceplugin.allocation.container_share import most_mib_on_cards
from deviceplugin.allocation.decision import units_on_cards
from deviceplugin.reconcile.drift import Drift, DriftKind, SeenPod, Use, used_by


def pressure(
    cards: Iterable[Card], seen: Sequence[SeenPod], uses: Sequence[Use], read: Collection[str], unit_mib: int
) -> Iterator[Drift]:
    """Yield, for each card under pressure, the pod furthest above its request.

    read: UUIDs of the cards with known use.
    """
    nodes_cards = tuple(cards)
    for card in nodes_cards:
        if card.uuid not in read:
            continue
        on_card = [use for use in uses if use.uuid == card.uuid]
        used = {one.pod.uid: used_by(on_card, one.pod.uid).get(card.uuid, 0) for one in seen}
        requested = _requested(seen, card.uuid, unit_mib)
        free_mib = max(0, card.memory_mib - sum(use.used_mib for use in on_card))
        claimed_mib = sum(max(0, mib - used[uid]) for uid, mib in requested.items())
        if free_mib < claimed_mib and (pod := _furthest(seen, nodes_cards, card.uuid, used, requested)):
            mib, requested_mib = used[pod.pod.uid], requested[pod.pod.uid]
            message = (
                f"pod {pod.pod}: it uses {mib} MiB of {card.uuid} and requested {requested_mib} MiB; {free_mib} MiB "
                f"are free, and other pods may still claim {claimed_mib} MiB"
            )
            yield Drift(kind=DriftKind.PRESSURE, message=message, pod=pod.pod, uuid=card.uuid, mib=mib - requested_mib)


def _requested(seen: Iterable[SeenPod], uuid: str, unit_mib: int) -> dict[str, int]:
    """Return pod UID -> MiB that the pod requests on this card, for pods that request some."""
    found = {}
    for one in seen:
        units = units_on_cards(one.pod, one.decision, unit_mib).get(uuid, 0) if one.decision else 0
        if units:
            found[one.pod.uid] = units * unit_mib
    return found


def _furthest(
    seen: Iterable[SeenPod],
    cards: Sequence[Card],
    uuid: str,
    used: Mapping[str, int],
    requested: Mapping[str, int],
) -> SeenPod | None:
    """Return the pod furthest above its request, of those that may use more than it there."""
    above = {
        one.pod.uid: used[one.pod.uid] - requested[one.pod.uid]
        for one in seen
        if one.pod.uid in requested and names.GPU_MEM_LIMIT in one.pod.annotations and one.decision is not None
        if most_mib_on_cards(one.pod, one.decision, cards).get(uuid, 0) > requested[one.pod.uid]
    }
    candidates = [one for one in seen if above.get(one.pod.uid, 0) > 0]
    by_name = sorted(candidates, key=lambda one: (-above[one.pod.uid], one.pod.namespace, one.pod.name))
    return by_name[0] if by_name else None
