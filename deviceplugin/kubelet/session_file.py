"""The last list of devices, in a file: the next process lists the same before it knows anything else."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from deviceplugin.files import replace_file
from deviceplugin.kubelet.device_ids import Listed

FILE: Final = "session.json"
_VERSION: Final = 1


class _Document(msgspec.Struct, rename="camel"):
    version: int
    resource: str
    mode: str
    unasked: bool
    healthy: list[str]
    unhealthy: list[str]


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """mode: `cdi` or `environment`. unasked: the kubelet may have pods that it admitted without asking the plugin."""

    resource: str
    mode: str
    unasked: bool
    devices: Listed


class SessionFile:
    """In the state directory; owned by one thread."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._saved: SessionRecord | None = None

    def load(self) -> SessionRecord | None:
        """The saved record; None if it is missing or cannot be read."""
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_Document)
        except (OSError, msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        if found.version != _VERSION:
            return None
        devices = [(name, True) for name in found.healthy] + [(name, False) for name in found.unhealthy]
        return SessionRecord(found.resource, found.mode, found.unasked, tuple(devices))

    def save(self, record: SessionRecord) -> None:
        """Keep this. Raises OSError."""
        if record == self._saved:
            return
        healthy, unhealthy = ([name for name, one in record.devices if one is state] for state in (True, False))
        document = _Document(_VERSION, record.resource, record.mode, record.unasked, healthy, unhealthy)
        replace_file(self._path, msgspec.json.encode(document))
        self._saved = record
