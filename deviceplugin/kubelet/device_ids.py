"""The fake devices that stand for a node's memory units, and the ones reported to the kubelet as unhealthy. Pure.

An ID stands for one unit of the node, not for a card: the kubelet picks IDs at random, so a container on card 1 holds
any IDs. A kubelet that re-admits a running pod fails it if one of its IDs is unhealthy or has vanished (Kubernetes
1.36, pkg/kubelet/cm/devicemanager/manager.go, devicesToAllocate). So changes of cards affect free IDs first:

    listed     = held IDs + free ones, up to the units of all cards
    healthy    = held IDs, except those held only on unhealthy cards, + free ones, up to the usable units
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from typing import Final, TypeAlias

from config.protocol import inventory

# The kubelet's client sets no limit of its own, so grpc-go's applies (plugin/v1beta1/client.go): a larger message
# breaks the stream and makes every device of the node unhealthy.
LARGEST_MESSAGE: Final = 4_194_304
_MIB: Final = 2**20
_UUID_BYTES: Final = len("GPU-01234567-89ab-cdef-0123-456789abcdef")
_OLD_SEPARATOR: Final = "-_-"
_SHORT_PREFIX: Final = "u"
_VARINT_BITS: Final = 7

# (ID, healthy) of every device: the type of `server.Devices`.
Listed: TypeAlias = tuple[tuple[str, bool], ...]


class TooManyDevices(ValueError):
    """The unit is so small that the list of devices would not reach the kubelet; the message names a unit that fits."""


def device_ids(cards: Sequence[inventory.Card], *, old_style: bool) -> tuple[str, ...]:
    """Return one unique ID per unit of the node, in an order that depends on the cards alone.

    Short: `u0`, `u1`, …, the same IDs for the same total. old_style: `<UUID>-_-<j>`, j from 0 on each card
    (AliyunContainerService/gpushare-device-plugin, pkg/gpu/nvidia/nvidia.go); such an ID also stands for any unit.
    """
    if old_style:
        return tuple(f"{card.uuid}{_OLD_SEPARATOR}{j}" for card in cards for j in range(card.units))
    return tuple(f"{_SHORT_PREFIX}{unit}" for unit in range(sum(card.units for card in cards)))


def message_bytes(id_lengths: Mapping[int, int]) -> int:
    """Return the size of the ListAndWatchResponse if all devices are unhealthy, which is the longest case.

    id_lengths: bytes of an ID, > 0 -> number of such IDs. The message is `repeated Device devices = 1`, each `string ID
    = 1; string health = 2`, in protobuf encoding.
    """
    health = _field_bytes(len("Unhealthy"))
    return sum(count * _field_bytes(_field_bytes(length) + health) for length, count in id_lengths.items())


def check(cards_memory_mib: Sequence[int], unit_mib: int, *, old_style: bool) -> None:
    """Raise TooManyDevices, with a unit that fits, if the list of devices would exceed LARGEST_MESSAGE.

    cards_memory_mib: usable MiB of each shared card, >= 0. unit_mib: >= 1. old_style: UUIDs are assumed to have 40
    characters, like NVIDIA's.
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
        f"a message of {size / _MIB:.1f} MiB; the kubelet accepts {LARGEST_MESSAGE // _MIB} MiB; "
        f"memoryUnitMiB {fits} would fit, but use 128 to 1024 (each device is an entry in pod status)"
    )


def spare_ids(cards: Sequence[inventory.Card], *, old_style: bool) -> Iterator[str]:
    """Return an endless sequence of IDs after those of `device_ids`, in the same style; empty if there are no cards."""
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
    """Return (ID, healthy) of every device to list.

    ids: one per unit of all cards. spare: as in `spare_ids`; used if IDs of unhealthy cards outnumber their units.
    usable: units of the cards that are not unhealthy, at most as many as `ids`. holders: ID -> UUIDs of the cards
    decided for the containers that hold it. A missing ID is free. An empty set means a holder with an unknown card,
    which counts as a healthy card: guessing otherwise could fail a pod. well: UUIDs of the cards that exist and are not
    unhealthy. before: the unhealthy IDs of the last answer; the free ones stay unhealthy, so that none flaps.

    The number of free healthy IDs is the usable units less the units held on cards that are not unhealthy, at least 0:
    the kubelet never has more to allocate than the cards have.
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
    """Return length of an ID -> number of such IDs in `device_ids`, without creating them: there may be millions."""
    units = [memory // unit_mib for memory in cards_memory_mib]
    if not old_style:
        return _numbered(len(_SHORT_PREFIX), sum(units))
    return sum((_numbered(_UUID_BYTES + len(_OLD_SEPARATOR), of_card) for of_card in units), Counter[int]())


def _numbered(prefix_bytes: int, count: int) -> Counter[int]:
    """Return length -> how many of the names `<prefix>0` to `<prefix><count - 1>` have it."""
    lengths: Counter[int] = Counter()
    digits, named = 1, 0
    while named < count:
        lengths[prefix_bytes + digits] = min(count, 10**digits) - named
        digits, named = digits + 1, min(count, 10**digits)
    return lengths


def _field_bytes(length: int) -> int:
    """Return the bytes of a non-empty string or message: a one-byte tag, the length as varint, and the content."""
    return 1 + -(-length.bit_length() // _VARINT_BITS) + length
