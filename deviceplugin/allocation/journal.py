"""The first decision for each pod, so that later changes to its annotations are reported but not followed.

    unknown --seen with a readable allocation--> KNOWN --its cards are known--> DECIDED --keep without it--> unknown
                                                   ^----these are not its own----+

KNOWN:   its first allocation and requests are final.
DECIDED: the UUIDs of each container's cards are final too: an index may later belong to another card.

Kept in one small file, replaced by rename. The file is not synced to disk at each change: after a power loss only an
older journal remains, or none, and the annotations are trusted again.
Owned by one thread. Every method blocks while a few kilobytes are written to disk.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec

from config.protocol import names
from deviceplugin.allocation.pods import FirstCards
from deviceplugin.files import replace_file

# Without the keys that change in a pod's life: _ASSIGNED, and _ASSUME_TIME (by the legacy device plugin).
_KEYS: Final = (
    names.ALLOCATION,
    names.INIT_ALLOCATION,
    names.CARDS,
    names.UNIT_MIB,
    names.MEM_IDX,
    names.MEM_POD,
    names.GPU_MEM_LIMIT,
    names.MEM_DEV,
)
_DECIDING: Final = (names.ALLOCATION, names.MEM_IDX)
_VERSION: Final = 2
FILE: Final = "journal.json"


class PodRequests(msgspec.Struct, frozen=True, rename="camel"):
    """Requests that the decision was made for, as the pod's author wrote them. gpu_count: as text, "" if unset."""

    gpu_count: str = ""
    exclusive: bool = False


_NOTHING: Final = PodRequests()


@dataclass(frozen=True, slots=True)
class First:
    """A pod as first seen. annotations, requests: the first values. changed: keys whose values differ now.

    cards: those of its first decision; None while unknown.
    """

    annotations: Mapping[str, str]
    changed: tuple[str, ...] = ()
    requests: PodRequests = _NOTHING
    cards: FirstCards | None = None


# More than any node has, and small enough for every calculation.
_Amount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_OneOrMore: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_OnCards: TypeAlias = Annotated[dict[str, _OneOrMore], msgspec.Meta(min_length=1)]


class _Pod(msgspec.Struct, rename="camel"):
    """A pod in the file. requests: None in version 1. units: as in `FirstCards`, with `unit_mib`; None if unknown.

    limit: whether its `gpushare/gpu-mem-limit` has been recorded, which earlier plugins did not know.
    """

    annotations: dict[str, str]
    requests: PodRequests | None = None
    unit_mib: _Amount = msgspec.field(default=0, name="unitMiB")
    units: dict[str, _OnCards] | None = None
    limit: bool = False

    def __post_init__(self) -> None:
        """Check the unit. Raises ValueError, which makes the whole document count as unreadable."""
        if self.units is not None and not self.unit_mib:
            raise ValueError("expected `unitMiB` with `units`")

    def cards(self) -> FirstCards | None:
        return None if self.units is None else FirstCards(self.unit_mib, self.units)


class _Head(msgspec.Struct):
    version: int


class _Document(msgspec.Struct):
    version: int
    pods: dict[str, _Pod]


class _DocumentOne(msgspec.Struct):
    pods: dict[str, dict[str, str]]


class Journal:
    """Journal of one node. problem: why the file on disk was not used; "" if it was used or did not exist."""

    def __init__(self, directory: Path) -> None:
        """Read the file. Raises OSError if `directory` cannot be created."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = directory / FILE
        self._pods, self.problem = _load(self._path)
        self._unsaved = False

    def first(
        self, uid: str, annotations: Mapping[str, str], requests: PodRequests = _NOTHING, *, readable: bool = True
    ) -> First:
        """Return the pod as it was when first seen with a readable allocation; if that is now, record it.

        readable: whether the allocation tells which cards the pod is on; otherwise it may still be corrected. Call
        `save` before acting on the result.
        """
        now = {key: annotations[key] for key in _KEYS if key in annotations}
        known = self._pods.get(uid)
        if known is None:
            if readable and any(key in now for key in _DECIDING):
                self._pods[uid] = _Pod(now, requests, limit=True)
                self._unsaved = True
            return First(annotations, requests=requests)
        if known.requests is None:
            # Version 1 recorded neither: today's values count as the first ones.
            known.requests = requests
            known.annotations |= {key: now[key] for key in (names.UNIT_MIB,) if key in now}
            self._unsaved = True
        if not known.limit:
            known.limit = True
            known.annotations |= {key: now[key] for key in (names.GPU_MEM_LIMIT,) if key in now}
            self._unsaved = True
        others = {key: value for key, value in annotations.items() if key not in _KEYS}
        return First({**others, **known.annotations}, _changed(known, now, requests), known.requests, known.cards())

    def decide(self, uid: str, cards: FirstCards) -> None:
        """Record these cards as the pod's, unless it already has cards. The pod has been seen with an allocation."""
        known = self._pods.get(uid)
        if known is not None and known.units is None:
            known.unit_mib = cards.unit_mib
            known.units = {name: dict(units) for name, units in cards.units.items()}
            self._unsaved = True

    def undecide(self, uid: str) -> None:
        """Drop the pod's cards, because they cannot be its own."""
        known = self._pods.get(uid)
        if known is not None and known.units is not None:
            known.units = None
            self._unsaved = True

    def keep(self, uids: Collection[str]) -> None:
        """Drop every pod except these. Raises OSError, as `save` does."""
        gone = self._pods.keys() - set(uids)
        for uid in gone:
            del self._pods[uid]
        self._unsaved |= bool(gone)
        self.save()

    def save(self) -> None:
        """Write pending changes, if any. Raises OSError; the next call retries."""
        if not self._unsaved:
            return
        replace_file(self._path, msgspec.json.encode(_Document(_VERSION, self._pods)))
        self._unsaved = False


def _changed(known: _Pod, now: Mapping[str, str], requests: PodRequests) -> tuple[str, ...]:
    changed = [key for key in _KEYS if known.annotations.get(key) != now.get(key)]
    first = known.requests or requests
    changed += [names.GPU_COUNT] * (first.gpu_count != requests.gpu_count)
    changed += [names.EXCLUSIVE] * (first.exclusive != requests.exclusive)
    return tuple(changed)


def _load(path: Path) -> tuple[dict[str, _Pod], str]:
    try:
        text = path.read_bytes()
        version = msgspec.json.decode(text, type=_Head).version
        if version == 1:
            before = msgspec.json.decode(text, type=_DocumentOne)
            return {uid: _Pod(annotations) for uid, annotations in before.pods.items()}, ""
        if version != _VERSION:
            return {}, f"{path.name} has version {version}; expected {_VERSION}; starting with an empty journal"
        return msgspec.json.decode(text, type=_Document).pods, ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return {}, f"{path.name} cannot be read: {error}; starting with an empty journal"
