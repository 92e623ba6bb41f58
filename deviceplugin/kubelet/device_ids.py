"""The fake devices that stand for a node's memory units, and which of them the kubelet is told are unhealthy. Pure.

An id stands for one unit of the node, not for a card: the kubelet picks ids at random, so a container on card 1 holds
any ids. When a card is unhealthy, as many ids as it has units turn unhealthy, those first that cost nobody anything:

    held only by containers on unhealthy cards ──▶ free ──▶ (held by a container on a healthy card: never)

since a kubelet that admits a running pod again fails it when its ids are unhealthy (Kubernetes 1.36,
pkg/kubelet/cm/devicemanager/manager.go, devicesToAllocate).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from config.protocol import inventory

# The kubelet's client sets no limit of its own, so grpc-go's holds (plugin/v1beta1/client.go): over it, the stream
# breaks and every device of the node is unhealthy.
LARGEST_MESSAGE: Final = 4_194_304
_MIB: Final = 2**20
_UUID_BYTES: Final = len("GPU-01234567-89ab-cdef-0123-456789abcdef")
_OLD_SEPARATOR: Final = "-_-"
_SHORT_PREFIX: Final = "u"
_VARINT_BITS: Final = 7


class TooManyDevices(ValueError):
    """The unit is so small that the list of devices would not reach the kubelet; the message names a unit that fits."""


def device_ids(cards: Sequence[inventory.Card], *, old_style: bool) -> tuple[str, ...]:
    """One id per unit of the node, each once, in an order that follows from the cards alone.

    Short: `u0`, `u1`, …, the same ids wherever the total is the same. old_style: `<UUID>-_-<j>`, j from 0 on each card
    (AliyunContainerService/gpushare-device-plugin, pkg/gpu/nvidia/nvidia.go); such an id, too, stands for any unit.
    """
    if old_style:
        return tuple(f"{card.uuid}{_OLD_SEPARATOR}{j}" for card in cards for j in range(card.units))
    return tuple(f"{_SHORT_PREFIX}{unit}" for unit in range(sum(card.units for card in cards)))


def message_bytes(id_lengths: Mapping[int, int]) -> int:
    """Size of the ListAndWatchResponse when all devices are unhealthy, the longer word.

    id_lengths: bytes of an id, > 0 -> how many such ids. The message is `repeated Device devices = 1`, each
    `string ID = 1; string health = 2`, as protobuf encodes them.
    """
    health = _field_bytes(len("Unhealthy"))
    return sum(count * _field_bytes(_field_bytes(length) + health) for length, count in id_lengths.items())


def check(cards_memory_mib: Sequence[int], unit_mib: int, *, old_style: bool) -> None:
    """Raise TooManyDevices, with a unit that fits, when the list of devices would exceed LARGEST_MESSAGE.

    cards_memory_mib: usable MiB of each card that is shared, >= 0. unit_mib: >= 1. old_style: UUIDs are taken to have
    the 40 characters that NVIDIA's have.
    """
    size = message_bytes(_id_lengths(cards_memory_mib, unit_mib, old_style=old_style))
    if size <= LARGEST_MESSAGE:
        return
    fits = 1
    while message_bytes(_id_lengths(cards_memory_mib, fits, old_style=old_style)) > LARGEST_MESSAGE:
        fits *= 2
    alike = sorted(Counter(cards_memory_mib).items(), reverse=True)
    cards = " and ".join(f"{count} card{'s' * (count > 1)} of {memory} MiB" for memory, count in alike)
    message = (
        f"{cards} at memoryUnitMiB {unit_mib} make {sum(memory // unit_mib for memory in cards_memory_mib)} devices, "
        f"a message of {size / _MIB:.1f} MiB; the kubelet accepts {LARGEST_MESSAGE // _MIB} MiB; memoryUnitMiB {fits} "
        "fits; use 128 to 1024 (each device is an entry in pod status)"
    )
    raise TooManyDevices(message)


def unhealthy(
    ids: Sequence[str],
    unhealthy_units: Mapping[str, int],
    holders: Mapping[str, frozenset[str]],
    before: frozenset[str] = frozenset(),
) -> frozenset[str]:
    """The ids to call unhealthy: as many as the unhealthy cards have units, fewer where too few may be called so.

    unhealthy_units: of each unhealthy card, by UUID. holders: id -> UUIDs of the cards decided for the containers that
    hold it; an id that is missing is free, an empty set is a holder whose card is not known, which counts as healthy:
    a guess would cost a pod. before: the answer given last; of equal ids those stay unhealthy, so that none flaps.
    """
    held = [name for name in ids if name in holders and holders[name] and holders[name] <= unhealthy_units.keys()]
    free = [name for name in ids if name not in holders]
    candidates = _those_first(before, held) + _those_first(before, free)
    return frozenset(candidates[: sum(unhealthy_units.values())])


def listed(ids: Sequence[str], unhealthy: frozenset[str]) -> tuple[tuple[str, bool], ...]:
    """(id, healthy) of every device, in the order of `ids`: what `server.Devices` is."""
    return tuple((name, name not in unhealthy) for name in ids)


def _those_first(first: frozenset[str], names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: name not in first)


def _id_lengths(cards_memory_mib: Sequence[int], unit_mib: int, *, old_style: bool) -> Counter[int]:
    """Length of an id -> how many such ids `device_ids` makes, without making them: there may be millions."""
    units = [memory // unit_mib for memory in cards_memory_mib]
    if not old_style:
        return _numbered(len(_SHORT_PREFIX), sum(units))
    return sum((_numbered(_UUID_BYTES + len(_OLD_SEPARATOR), of_card) for of_card in units), Counter[int]())


def _numbered(prefix_bytes: int, count: int) -> Counter[int]:
    """Length -> how many of the names `<prefix>0` to `<prefix><count - 1>` have it."""
    lengths: Counter[int] = Counter()
    digits, named = 1, 0
    while named < count:
        lengths[prefix_bytes + digits] = min(count, 10**digits) - named
        digits, named = digits + 1, min(count, 10**digits)
    return lengths


def _field_bytes(length: int) -> int:
    """Of a string or message that is not empty: a tag of one byte, the length as varint, and the thing itself."""
    return 1 + -(-length.bit_length() // _VARINT_BITS) + length
