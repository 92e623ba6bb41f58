"""The cards as NVML describes them, and how they are linked."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final, TypeVar

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from deviceplugin.driver.cards import DriverCard
from deviceplugin.driver.nvml_answers import GONE, Handle, RawHandle, answer, optional, text_for_people

T = TypeVar("T")

_MIB: Final = 1024**2
_WORD_BITS: Final = 64
_NODE_WORDS: Final = 16  # the kernel knows at most 1024 NUMA nodes
_SWITCH: Final = "switch"

# As in `nvidia-smi topo -m`, which has nothing for two chips of one board, which are closer than `PIX`.
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
    """ends: active NVLinks, counted by the PCI address of the card at the other end; those to a switch as `_SWITCH`."""

    card: DriverCard
    raw: RawHandle
    ends: Counter[str]


def seen(library: ModuleType, handle: Handle) -> SeenCard:
    """The card, without its links. Raises NVMLError."""
    return SeenCard(_card(library, handle), handle.raw, _link_ends(library, handle.raw))


def links(library: ModuleType, cards: Sequence[SeenCard]) -> dict[str, dict[str, str]]:
    """By UUID, the links of each to the others of these. Raises one of GONE."""
    return {one.card.uuid: _links(library, one, cards) for one in cards}


def _card(library: ModuleType, handle: Handle) -> DriverCard:
    raw = handle.raw

    def at_best(function: Callable[..., T], *arguments: object) -> T | None:
        return optional(function, *arguments, absent=[])

    mode = at_best(library.nvmlDeviceGetMigMode, raw)
    mig = mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    return DriverCard(
        index=handle.index,
        uuid=handle.uuid,
        model=at_best(text_for_people, library.nvmlDeviceGetName, raw) or "",
        # The driver denies a program the memory of a card that is split, and the card is not shared anyway.
        memory_mib=0 if mig else _usable_mib(library, raw),
        minor=answer(library.nvmlDeviceGetMinorNumber, raw),
        pci=_pci(library.nvmlDeviceGetPciInfo(raw)),
        numa=at_best(_numa, library, raw),
        mig=mig,
    )


def _usable_mib(library: ModuleType, raw: RawHandle) -> int:
    """Total less what the driver reserves; 0 where the card has no memory of its own."""
    memory = answer(library.nvmlDeviceGetMemoryInfo, raw, pynvml.nvmlMemory_v2)
    if memory is not None:
        return int(memory.total - memory.reserved) // _MIB
    # Drivers before 510 do not say what they reserve.
    memory = answer(library.nvmlDeviceGetMemoryInfo, raw)
    return int(memory.total) // _MIB if memory is not None else 0


def _pci(info: "pynvml.nvmlPciInfo_t") -> str:
    """PCI address as the kernel writes it, such as `0000:07:00.0`; NVML's own text has eight digits of domain."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _numa(library: ModuleType, raw: RawHandle) -> int | None:
    """NUMA node of the card: the card itself if it is one, else the single nearest node."""
    node = answer(library.nvmlDeviceGetNumaNodeId, raw)
    if node is not None:
        return node if node >= 0 else None
    scope = pynvml.NVML_AFFINITY_SCOPE_NODE
    masks = answer(library.nvmlDeviceGetMemoryAffinity, raw, _NODE_WORDS, scope) or ()
    near = [word * _WORD_BITS + bit for word, mask in enumerate(masks) for bit in range(_WORD_BITS) if mask >> bit & 1]
    return near[0] if len(near) == 1 else None


def _link_ends(library: ModuleType, raw: RawHandle) -> Counter[str]:
    ends = (_link_end(library, raw, link) for link in range(pynvml.NVML_NVLINK_MAX_LINKS))
    return Counter(end for end in ends if end)


def _link_end(library: ModuleType, raw: RawHandle, link: int) -> str:
    # Links only help to choose: whatever a link answers, a card is no worse for it than without that link.
    try:
        if not library.nvmlDeviceGetNvLinkState(raw, link):
            return ""
        kind = answer(library.nvmlDeviceGetNvLinkRemoteDeviceType, raw, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return _SWITCH
        return _pci(library.nvmlDeviceGetNvLinkRemotePciInfo(raw, link))
    except GONE:
        raise
    except pynvml.NVMLError:
        return ""


def _links(library: ModuleType, one: SeenCard, seen: Iterable[SeenCard]) -> dict[str, str]:
    kinds = {str(other.card.index): _kind(library, one, other) for other in seen if other is not one}
    return {index: kind for index, kind in kinds.items() if kind}


def _kind(library: ModuleType, one: SeenCard, other: SeenCard) -> str:
    """How the two are linked; "" where the driver does not know."""
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
