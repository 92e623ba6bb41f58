"""Records how earlier plugins ended: the file exists while a plugin runs, and after one was killed.

    absent ──start──▶ killed 0 ──stop signal──▶ absent
                         └──killed, start──▶ killed 1 ──killed soon, start──▶ killed 2 ──▶ …

A killed plugin cannot ask the scheduler to wait (docs/develop/decisions/0020).
"""

import time
from pathlib import Path
from typing import Final

import msgspec
import structlog

from deviceplugin.files import replace_file

FILE: Final = "starts.json"
# The kubelet too: after this time without an end it resets its back-off (Kubernetes, "Pod Lifecycle", restart policy).
_SOON_S: Final = 600.0
_AGAIN: Final = 2
# A plugin that is always killed at about the same age must not be trusted again by then.
_LONGER: Final = 2
log = structlog.get_logger()


class _Document(msgspec.Struct, rename="camel"):
    boot_id: str
    started_s: float
    killed: int


class StartsFile:
    """File of starts in the state directory; owned by one thread."""

    def __init__(self, directory: Path, boot_id: str) -> None:
        """boot_id: changes with each boot of the machine, which ends every plugin."""
        self._path = directory / FILE
        self._boot_id = boot_id

    def started(self, now_s: float) -> float:
        """Record this start. Return for how many seconds this plugin should get no new pods.

        Returns 0 unless the two previous plugins were killed, the last one within ten minutes of its start: then twice
        the time from that start to this one, at most ten minutes. now_s: since the machine's boot. Raises OSError.
        """
        killed, lived_s = 0, 0.0
        if last := self._last():
            lived_s = now_s - last.started_s
            killed = 1 + (last.killed if 0.0 <= lived_s <= _SOON_S else 0)
        replace_file(self._path, msgspec.json.encode(_Document(self._boot_id, now_s, killed)))
        return min(_LONGER * lived_s, _SOON_S) if killed >= _AGAIN else 0.0

    def untrusted_until_s(self) -> float:
        """Record this start. Return the Unix seconds until which this plugin should get no new pods, as `started`."""
        try:
            untrusted_s = self.started(time.clock_gettime(time.CLOCK_BOOTTIME))
        except OSError as error:
            log.warning("state.write_failed", reason=str(error))
            return 0.0
        if untrusted_s:
            log.warning("plugin.killed_again", untrusted_s=round(untrusted_s, 1))
        return time.time() + untrusted_s

    def told_to_stop(self) -> None:
        """Record a regular stop. Raises OSError."""
        self._path.unlink(missing_ok=True)

    def _last(self) -> _Document | None:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_Document)
        except (OSError, msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        return found if found.boot_id == self._boot_id else None
