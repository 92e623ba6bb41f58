"""Reads through NVML how cards are linked with each other."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from deviceplugin.driver import nvml_cards
from deviceplugin.driver.cards import DriverCard
from deviceplugin.driver.nvml_cards import GONE, Handle, RawHandle, answer, pci_address

_SWITCH: Final = "switch"

# As in `nvidia-smi topo -m`, which has no name for two chips of one board, closer than `PIX`.
_LEVELS: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}


@dataclass(frozen=True, slots=True)
class SeenCard:
    """A card with its links. ends: number of active NVLinks by the other card's PCI address, or `_SWITCH`."""

    card: DriverCard
    raw: RawHandle
    ends: Counter[str]


def seen(library: ModuleType, handle: Handle) -> SeenCard:
    """Return the card, without its links. Raises NVMLError."""
    card = nvml_cards.card(library, handle)
    return SeenCard(card, handle.raw, Counter() if card.mig else _link_ends(library, handle.raw))


def links(library: ModuleType, cards: Sequence[SeenCard]) -> dict[str, dict[str, str]]:
    """Return each card's links to the others, by UUID. Raises the errors in GONE."""
    return {one.card.uuid: _links(library, one, cards) for one in cards}


def _link_ends(library: ModuleType, raw: RawHandle) -> Counter[str]:
    ends = (_link_end(library, raw, link) for link in range(pynvml.NVML_NVLINK_MAX_LINKS))
    return Counter(end for end in ends if end)


def _link_end(library: ModuleType, raw: RawHandle, link: int) -> str:
    # Links are only a preference: a failed link query counts as no link and does not affect health.
    try:
        if not library.nvmlDeviceGetNvLinkState(raw, link):
            return ""
        kind = answer(library.nvmlDeviceGetNvLinkRemoteDeviceType, raw, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return _SWITCH
        return pci_address(library.nvmlDeviceGetNvLinkRemotePciInfo(raw, link))
    except GONE:
        raise
    except pynvml.NVMLError:
        return ""


def _links(library: ModuleType, one: SeenCard, seen: Iterable[SeenCard]) -> dict[str, str]:
    kinds = {str(other.card.index): _kind(library, one, other) for other in seen if other is not one}
    return {index: kind for index, kind in kinds.items() if kind}


def _kind(library: ModuleType, one: SeenCard, other: SeenCard) -> str:
    """Return the kind of link between the two; "" if the driver does not know."""
    direct = one.ends[other.card.pci]
    switched = min(one.ends[_SWITCH], other.ends[_SWITCH])
    if direct or switched:
        return f"NV{direct or switched}"
    try:
        level = library.nvmlDeviceGetTopologyCommonAncestor(one.raw, other.raw)
    except GONE:
        raise
    except pynvml.NVMLError:
        return ""
    return _LEVELS.get(level, "")
