"""Which live pods of the node hold cards: by the API server, and by the kubelet where that has others. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from config.protocol import booked_cards
from deviceplugin.allocation.pods import MIRROR, NodePod
from deviceplugin.cdi.spec import device_name
from deviceplugin.kubelet.checkpoint import CheckpointEntry
from deviceplugin.kubelet.containers import KubeletContainer
from deviceplugin.uninstall.facts import Holders, HoldingPod


def holders(
    pods: Sequence[NodePod], recorded: Sequence[CheckpointEntry] | None, listed: Sequence[KubeletContainer] | None
) -> Holders:
    """The pods that hold cards, by name.

    pods: of this node, finished ones too. recorded: the kubelet's checkpoint, its entries of our resource; None where
    it cannot be read. listed: what the kubelet lists; None where it does not answer.

    The checkpoint keeps entries of dead pods until the next allocation, so an entry alone makes no holder where the
    kubelet says what is alive.
    """
    live = {_uid(pod): pod for pod in pods if not pod.finished and pod.asking()}
    unknown = unknown_to(pods, recorded or ())
    known = None if recorded is None else {one.ids for one in recorded if one.pod_uid not in unknown}
    strangers = _strangers(live.values(), known, listed)
    found = [HoldingPod(f"{pod.namespace}/{pod.name}", _holds(pod)) for pod in live.values()]
    found += (HoldingPod(name, "devices of the kubelet; the API server does not have the pod") for name in strangers)
    if listed is None:
        found += (
            HoldingPod(f"UID {uid}", "devices, by the kubelet's checkpoint; the kubelet does not answer")
            for uid in unknown
        )
    if recorded is None and found:
        return Holders(pods=_sorted(found), devices=None)
    # The kubelet names no init containers: which of the unknown ones are a stranger's is not known.
    holding = live.keys() | unknown if strangers or listed is None else live.keys()
    needed = [one.ids for one in recorded or () if one.pod_uid in holding]
    needed += [ids for sets in strangers.values() for ids in sets]
    return Holders(pods=_sorted(found), devices=frozenset(map(device_name, needed)))


def unknown_to(pods: Iterable[NodePod], recorded: Iterable[CheckpointEntry]) -> frozenset[str]:
    """UIDs of the checkpoint that none of these pods has: of dead pods, or of such as the API server does not have."""
    return frozenset(one.pod_uid for one in recorded) - {_uid(pod) for pod in pods}


def _uid(pod: NodePod) -> str:
    """As the kubelet has it."""
    return pod.annotations.get(MIRROR, pod.uid)


def _strangers(
    live: Iterable[NodePod], known: Collection[frozenset[str]] | None, listed: Sequence[KubeletContainer] | None
) -> dict[str, list[frozenset[str]]]:
    """Of the pods that have devices and that the API server does not have, by name: the ids of each container.

    known: ids of the containers of those that it has, finished ones too; None: not recorded, so the name has to do. It
    says little: an old answer may have the pod of a StatefulSet that was there before.
    """
    named = {(pod.namespace, pod.name) for pod in live}
    found: dict[str, list[frozenset[str]]] = {}
    for one in listed or ():
        stranger = (one.namespace, one.pod) not in named if known is None else one.ids not in known
        if one.ids and stranger:
            found.setdefault(f"{one.namespace}/{one.pod}", []).append(one.ids)
    return found


def _holds(pod: NodePod) -> str:
    """As "3 units of card 0 (GPU-…)"; the units alone where nobody has said which card."""
    written = booked_cards.read(pod.annotations, pod.ask())
    return ", ".join(_on_cards(written)) or f"{_units(pod.ask().units)} of a card that nobody has named"


def _on_cards(written: booked_cards.WrittenAllocation) -> Iterator[str]:
    for index, units in sorted(written.per_card.items()):
        uuid = written.uuids.get(index, "")
        yield f"{_units(units)} of card {index}{f' ({uuid})' if uuid else ''}"


def _units(count: int) -> str:
    return f"{count} unit{'' if count == 1 else 's'}"


def _sorted(found: Iterable[HoldingPod]) -> tuple[HoldingPod, ...]:
    return tuple(sorted(found, key=lambda holder: holder.pod))
