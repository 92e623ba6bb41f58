"""The fake devices that stand for a node's memory units, and which of them the kubelet is told are unhealthy. Pure.

An id stands for one unit of the node, not for a card: the kubelet picks ids at random, so a container on card 1 holds
any ids. A kubelet that admits a running pod again fails it when one of its ids is unhealthy or has vanished (Kubernetes
1.36, pkg/kubelet/cm/devicemanager/manager.go, devicesToAllocate). So what becomes of cards costs free ids first:

    listed     = held ids + free ones, up to the units of all cards
    healthy    = held ids, but for those of containers on unhealthy cards alone, + free ones, up to the usable units
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from typing import Final, TypeAlias

from config.protocol import inventory

# The kubelet's client sets no limit of its own, so grpc-go's holds (plugin/v1beta1/client.go): over it, the stream
# breaks and every device of the node is unhealthy.
LARGEST_MESSAGE: Final = 4_194_304
_MIB: Final = 2**20
_UUID_BYTES: Final = len("GPU-01234567-89ab-cdef-0123-456789abcdef")
_OLD_SEPARATOR: Final = "-_-"
_SHORT_PREFIX: Final = "u"
_VARINT_BITS: Final = 7

# (id, healthy) of every device: what `server.Devices` is.
Listed: TypeAlias = tuple[tuple[str, bool], ...]


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
    raise TooManyDevices(
        f"{cards} at memoryUnitMiB {unit_mib} make {sum(memory // unit_mib for memory in cards_memory_mib)} devices, "
        f"a message of {size / _MIB:.1f} MiB; the kubelet accepts {LARGEST_MESSAGE // _MIB} MiB; memoryUnitMiB {fits} "
        "fits; use 128 to 1024 (each device is an entry in pod status)"
    )


def spare_ids(cards: Sequence[inventory.Card], *, old_style: bool) -> Iterator[str]:
    """Ids after those of `device_ids`, in the same style, without end; none without cards."""
    if not cards:
        return iter(())
    if old_style:
        return (f"{cards[-1].uuid}{_OLD_SEPARATOR}{j}" for j in count(cards[-1].units))
    return (f"{_SHORT_PREFIX}{unit}" for unit in count(sum(card.units for card in cards)))


def listed(  # noqa: PLR0917  (each a different type: none can take another's place)
    ids: Sequence[str],
    spare: Iterator[str],
    usable: int,
    holders: Mapping[str, frozenset[str]],
    well: Collection[str],
    before: frozenset[str] = frozenset(),
) -> Listed:
    """(id, healthy) of every device to list.

    ids: of the units of all cards. spare: as `spare_ids`; needed where ids of unhealthy cards outnumber their units.
    usable: units of the cards that are not unhealthy, at most as many as `ids`. holders: id -> UUIDs of the cards
    decided for the containers that hold it; an id that is missing is free, an empty set is a holder whose card is not
    known, which counts as one on a healthy card: a guess would cost a pod. well: UUIDs of the cards that are there and
    not unhealthy. before: the unhealthy ids of the last answer; of free ids those stay unhealthy, so that none flaps.

    So many healthy ids are free as the usable units exceed what is held on cards that are not unhealthy, or none: the
    kubelet never has more to give away than the cards have.
    """
    on_sick = {name for name, uuids in holders.items() if uuids and uuids.isdisjoint(well)}
    free_healthy = max(0, usable - (len(holders) - len(on_sick)))
    free_listed = max(len(ids) - len(holders), free_healthy)
    free = list(islice((name for name in chain(ids, spare) if name not in holders), free_listed))
    healthy = set(sorted(free, key=lambda name: name in before)[:free_healthy])
    known = set(ids)
    names = [name for name in ids if name in holders] + sorted(holders.keys() - known) + free
    return tuple((name, name in healthy or (name in holders and name not in on_sick)) for name in names)


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
    """Bytes of a string or message that is not empty: a tag of one byte, the length as varint, and the content."""
    return 1 + -(-length.bit_length() // _VARINT_BITS) + length
