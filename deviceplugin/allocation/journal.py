"""The first allocation seen of each pod, so that a later change of its annotations is reported and not followed.

    unknown --seen with an allocation--> KNOWN (first value, for good) --keep without it--> unknown

Kept in one small file, replaced by rename. It is not synced to disk at each change: after a loss of power an older
journal, or none, is all that is left, and the annotations are believed once more.
Owned by one thread. Every method blocks for as long as the disk takes to write some kilobytes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from config.protocol import names
from deviceplugin.files import replace_file

# Without those that change in a pod's life: _ASSIGNED, and _ASSUME_TIME by the legacy device plugin.
_KEYS: Final = (
    names.ALLOCATION,
    names.INIT_ALLOCATION,
    names.CARDS,
    names.MEM_IDX,
    names.MEM_POD,
    names.MEM_DEV,
)
_DECIDING: Final = (names.ALLOCATION, names.MEM_IDX)
_VERSION: Final = 1
_FILE: Final = "journal.json"


@dataclass(frozen=True, slots=True)
class First:
    """annotations: the pod's, with its first allocation. changed: the keys that say something else now."""

    annotations: Mapping[str, str]
    changed: tuple[str, ...] = ()


class _Document(msgspec.Struct):
    version: int
    pods: dict[str, dict[str, str]]


class Journal:
    """problem: why the file on disk was not used; "" when it was, or when there was none."""

    def __init__(self, directory: Path) -> None:
        """Read what is there. Raises OSError when `directory` cannot be made."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = directory / _FILE
        self._pods, self.problem = _load(self._path)
        self._unsaved = False

    def first(self, uid: str, annotations: Mapping[str, str]) -> First:
        """The pod's annotations as they were when it was first seen with an allocation; remembers it if this is then.

        `save` has to be called before anything is done by it.
        """
        now = {key: annotations[key] for key in _KEYS if key in annotations}
        known = self._pods.get(uid)
        if known is None:
            if any(key in now for key in _DECIDING):
                self._pods[uid] = now
                self._unsaved = True
            return First(annotations)
        changed = tuple(key for key in _KEYS if known.get(key) != now.get(key))
        others = {key: value for key, value in annotations.items() if key not in _KEYS}
        return First({**others, **known}, changed)

    def keep(self, uids: Collection[str]) -> None:
        """Forget every pod but these. Raises OSError as `save` does."""
        gone = self._pods.keys() - set(uids)
        for uid in gone:
            del self._pods[uid]
        self._unsaved |= bool(gone)
        self.save()

    def save(self) -> None:
        """Write what has changed since the last time, if anything has. Raises OSError; the next call tries again."""
        if not self._unsaved:
            return
        replace_file(self._path, msgspec.json.encode(_Document(_VERSION, self._pods)))
        self._unsaved = False


def _load(path: Path) -> tuple[dict[str, dict[str, str]], str]:
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except FileNotFoundError:
        return {}, ""
    except (OSError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return {}, f"{path.name} cannot be read: {error}; it starts empty"
    if document.version != _VERSION:
        return {}, f"{path.name} has version {document.version}; expected {_VERSION}; it starts empty"
    return document.pods, ""
