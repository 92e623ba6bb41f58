"""Reads the MIG instances of a card through NVML.

An instance is a compute instance inside a GPU instance. NVML has a handle for each, which only the parent's handle
leads to. It is looked up again for every reading, because an administrator may replace the instances at any time.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from config.protocol import card_uuid
from deviceplugin.driver.cards import CardFailed, CardReading, DriverCard, InstanceReading
from deviceplugin.driver.nvml_cards import (
    GONE,
    RawHandle,
    answer,
    memory_mib,
    message_of,
    text,
    text_for_people,
    use,
)

# Index of an instance: 1000 * (1 + the parent's) + 10 * GPU instance + compute instance. Other instances that come and
# go do not change it. A card has at most 15 GPU instances of 8 compute instances, and a node fewer than 64 cards.
_OF_A_CARD: Final = 1000
_OF_A_GPU_INSTANCE: Final = 10
_MOST_CARDS: Final = 64
# At an index without an instance, or if it has just been destroyed; the second from some drivers.
_GAP: Final = (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument)


@dataclass(frozen=True, slots=True)
class _Instance:
    """place: IDs of its GPU instance and compute instance."""

    uuid: str
    raw: RawHandle
    place: tuple[int, int]


def described(library: ModuleType, raw: RawHandle, parent: DriverCard) -> DriverCard:
    """Return the card with its instances, or the reason in `absent` why they cannot be known. Raises NVMLError."""
    try:
        return replace(parent, instances=tuple(card for card, _ in _cards(library, raw, parent)))
    except pynvml.NVMLError_NoPermission as error:
        return replace(parent, absent=(*parent.absent, f"MigDevices: {message_of(error)}"))


def readings(
    library: ModuleType, raw: RawHandle, parent: DriverCard, reading: CardReading
) -> tuple[InstanceReading, ...]:
    """Return the instances with their readings. reading: the parent's. Raises NVMLError.

    The health of an instance is the parent's: they share hardware, and only a reset of the parent repairs it.
    """
    try:
        found = _cards(library, raw, parent)
    except pynvml.NVMLError_NoPermission:
        return ()
    return tuple(InstanceReading(card, _reading(library, one, reading)) for card, one in found)


def _cards(library: ModuleType, raw: RawHandle, parent: DriverCard) -> list[tuple[DriverCard, _Instance]]:
    """Return the instances by index. Compute instances of one GPU instance share its memory: each gets an equal part.

    One that is destroyed meanwhile is left out.
    """
    listed = list(_listed(library, raw))
    sharing = Counter(one.place[0] for one in listed)
    found = []
    for one in listed:
        with contextlib.suppress(pynvml.NVMLError_NotFound):
            found.append((_card(library, parent, one, sharing[one.place[0]]), one))
    return sorted(found, key=lambda card_of: card_of[0].index)


def _listed(library: ModuleType, raw: RawHandle) -> Iterator[_Instance]:
    for number in range(answer(library.nvmlDeviceGetMaxMigDeviceCount, raw) or 0):
        try:
            instance = library.nvmlDeviceGetMigDeviceHandleByIndex(raw, number)
            uuid = text(library.nvmlDeviceGetUUID(instance))
        except _GAP:
            continue
        if problem := card_uuid.objection(uuid):
            raise CardFailed(f"MIG instance {number}: {problem}", lost=False)
        with contextlib.suppress(pynvml.NVMLError_NotFound):
            place = library.nvmlDeviceGetGpuInstanceId(instance), library.nvmlDeviceGetComputeInstanceId(instance)
            yield _Instance(uuid, instance, place)


def _card(library: ModuleType, parent: DriverCard, one: _Instance, sharing: int) -> DriverCard:
    usable_mib, reserved_mib = _memory_mib(library, one)
    return replace(
        parent,
        index=index_of(parent, one.place),
        uuid=one.uuid,
        model=text_for_people(library.nvmlDeviceGetName, one.raw),
        memory_mib=usable_mib // sharing,
        reserved_mib=reserved_mib // sharing,
        mig=False,
        absent=(),
        parent=parent.uuid,
        instance=one.place,
        instances=(),
    )


def index_of(parent: DriverCard, place: tuple[int, int]) -> int:
    """Return the instance's index on the node. Raises CardFailed if there is none."""
    gpu_instance, compute_instance = place
    on_card = _OF_A_GPU_INSTANCE * gpu_instance + compute_instance
    if parent.index >= _MOST_CARDS or compute_instance >= _OF_A_GPU_INSTANCE or on_card >= _OF_A_CARD:
        raise CardFailed(
            f"card {parent.uuid}: no index for its instance {gpu_instance}/{compute_instance}; expected a card below "
            f"{_MOST_CARDS}, a GPU instance below {_OF_A_CARD // _OF_A_GPU_INSTANCE} and a compute instance below "
            f"{_OF_A_GPU_INSTANCE}",
            lost=False,
        )
    return _OF_A_CARD * (1 + parent.index) + on_card


def _memory_mib(library: ModuleType, one: _Instance) -> tuple[int, int]:
    """Return (usable MiB, reserved MiB). A program without access to the instance learns only its size."""
    try:
        found = memory_mib(library, one.raw)
    except pynvml.NVMLError_NoPermission:
        found = (0, 0)
    return found if found[0] else (int(library.nvmlDeviceGetAttributes_v2(one.raw).memorySizeMB), 0)


def _reading(library: ModuleType, one: _Instance, parent: CardReading) -> CardReading | None:
    absent = list(parent.absent)
    try:
        used_mib, processes = use(library, one.raw, absent)
    except GONE:
        raise
    except pynvml.NVMLError:
        return None
    # A sum over cards must not count the card's power once for each instance.
    return replace(parent, used_mib=used_mib, processes=processes, power_w=None, absent=tuple(absent))
