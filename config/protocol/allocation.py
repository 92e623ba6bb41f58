"""The allocation that the scheduler writes into the Binding and the node reads.

Two annotations hold units per container and card index (`ALLOCATION` for `spec.containers`,
`INIT_ALLOCATION` for `spec.initContainers`), a third maps each card index to its UUID, which is authoritative. A fourth
gives the MiB per unit of all these numbers.
The `ALIYUN_*` annotations next to them are for tools and for the legacy plugin: docs/develop/protocol.md,
"What the scheduler writes".
"""

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from config.protocol import names
from config.protocol.inventory import MAX_UNIT_MIB

Shares: TypeAlias = dict[int, dict[int, int]]  # container index -> card index -> units

# No pod has this many containers or cards; a larger document is foreign or an attack.
_LARGEST_TEXT: Final = 65_536
_LARGEST_NUMBER: Final = 2**31 - 1

T = TypeVar("T")
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST_NUMBER)]
_Uuid: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_ENCODE: Final = msgspec.json.Encoder().encode
_SHARES: Final = msgspec.json.Decoder(dict[_Number, dict[_Number, _Number]])
_A_SHARE: Final = f'{{"<container index>":{{"<card index>":<units>}}}}, whole numbers from 0 to {_LARGEST_NUMBER}'
_A_CARD: Final = '{"<card index>":"<UUID>"}'
_CARDS: Final = msgspec.json.Decoder(dict[_Number, _Uuid])


class AllocationError(ValueError):
    """An invalid allocation annotation; the message names it and the expected form."""


class Allocation(msgspec.Struct, frozen=True):
    """Units of each container on each card.

    containers, init_containers: container index -> card index -> units.
    cards: card index -> UUID; empty if the writer did not know UUIDs (a node without an inventory).
    unit_mib: MiB per unit of these numbers and of the `ALIYUN_*` ones; 0 if the writer did not give it.
    """

    containers: Shares
    init_containers: Shares
    cards: dict[int, str]
    unit_mib: int = 0

    def card_indexes(self) -> list[int]:
        """Return every card index that a container holds, ascending."""
        shares = (*self.containers.values(), *self.init_containers.values())
        return sorted({index for share in shares for index in share})


class LegacyFields(msgspec.Struct, frozen=True):
    """Values of the `ALIYUN_*` annotations in addition to the allocation.

    pod_units: the pod's units over all cards. device_units: the units of the first card.
    assume_time_ns: Unix time in nanoseconds; the legacy plugin serves the oldest first.
    """

    pod_units: int
    device_units: int
    assume_time_ns: int


def encode(allocation: Allocation, legacy: LegacyFields) -> dict[str, str]:
    """Return every allocation annotation of a Binding.

    A Binding overwrites only the keys that it sends, so every key is sent.

    allocation: holds at least one card, with its unit.
    """
    first = allocation.card_indexes()[0]
    return {
        names.ALLOCATION: _dump(_in_order(allocation.containers)),
        names.INIT_ALLOCATION: _dump(_in_order(allocation.init_containers)),
        names.CARDS: _dump(dict(sorted(allocation.cards.items()))),
        names.UNIT_MIB: str(allocation.unit_mib),
        names.MEM_IDX: str(first),
        names.MEM_POD: str(legacy.pod_units),
        names.MEM_DEV: str(legacy.device_units),
        names.MEM_ASSIGNED: "false",
        names.MEM_ASSUME_TIME: str(legacy.assume_time_ns),
    }


def decode(annotations: Mapping[str, str]) -> Allocation | None:
    """Return the allocation in a pod's annotations; None if there is no `ALLOCATION` annotation.

    `ALIYUN_COM_GPU_MEM_IDX` alone is not read here: see `legacy_index`.
    Raises AllocationError if a key exists but cannot be read.
    """
    text = annotations.get(names.ALLOCATION)
    if text is None:
        return None
    return Allocation(
        containers=_read(names.ALLOCATION, _SHARES, _A_SHARE, text),
        init_containers=_read(names.INIT_ALLOCATION, _SHARES, _A_SHARE, annotations.get(names.INIT_ALLOCATION, "{}")),
        cards=_read(names.CARDS, _CARDS, _A_CARD, annotations.get(names.CARDS, "{}")),
        unit_mib=unit_mib(annotations),
    )


def legacy_index(annotations: Mapping[str, str]) -> int | None:
    """Return the card index that the legacy extender wrote; None if absent, unparsable, negative or absurd."""
    return _number(annotations.get(names.MEM_IDX, ""))


def unit_mib(annotations: Mapping[str, str]) -> int:
    """Return the MiB per unit of a pod's numbers from its annotations; 0 if absent or invalid."""
    found = _number(annotations.get(names.UNIT_MIB, "")) or 0
    return found if found <= MAX_UNIT_MIB else 0


def device_units(annotations: Mapping[str, str]) -> int:
    """Return the units of the pod's first card, in the unit of the pod's numbers; 0 if absent or not a number."""
    return _number(annotations.get(names.MEM_DEV, "")) or 0


def _number(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST_NUMBER))):
        return None
    number = int(text)
    return number if number <= _LARGEST_NUMBER else None


def _in_order(shares: Shares) -> Shares:
    return {container: dict(sorted(cards.items())) for container, cards in sorted(shares.items())}


def _dump(document: Shares | dict[int, str]) -> str:
    return _ENCODE(document).decode()


def _read(key: str, decoder: msgspec.json.Decoder[T], expected: str, text: str) -> T:
    if len(text) > _LARGEST_TEXT:
        raise AllocationError(f"annotation {key} has {len(text)} characters; expected at most {_LARGEST_TEXT}")
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise AllocationError(f"annotation {key} cannot be read: {error}; expected {expected}") from error
