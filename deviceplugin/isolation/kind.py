"""The isolation kind of the node: the configured one, or with `auto` the best that the node supports.

    undecided ──▶ kind ──▶ another kind, as soon as no pod of the node requests GPU memory

A container keeps what it got when it was created, so two kinds at once would leave some containers of a card without a
limit. The kind is kept in a file: the next plugin may be configured differently. Owned by the event loop.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from config.protocol.isolation import DRIVER, MPS, OWN
from config.settings.isolation import AUTO, NONE, IsolationMechanism
from deviceplugin.files import replace_file

NOTHING: Final = "none"
FILE: Final = "isolation.json"
_VERSION: Final = 1
log = structlog.get_logger()


class _Document(msgspec.Struct):
    version: int
    kind: str


class KindFile:
    """The file with the node's kind, in the state directory. Blocks on the disk, for a few bytes."""

    def __init__(self, state: Path) -> None:
        self._path = state / FILE

    def load(self) -> str:
        """Return the kept kind; "" if there is none or the file cannot be read."""
        try:
            document = msgspec.json.decode(self._path.read_bytes(), type=_Document)
        except FileNotFoundError:
            return ""
        except (OSError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
            log.warning("state.unreadable", reason=f"{FILE} cannot be read: {error}; starting without a kept isolation")
            return ""
        return document.kind if document.version == _VERSION else ""

    def save(self, kind: str) -> None:
        """Keep the kind; a failure is logged, because the next plugin can decide again."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, msgspec.json.encode(_Document(_VERSION, kind)))
        except OSError as error:
            log.warning("state.write_failed", reason=str(error))


class NodeKind:
    """The kind of the node. now: "" while undecided. problem: why it differs from the configured one, or ""."""

    def __init__(
        self, configured: str, fallback: str, mechanisms: Mapping[str, IsolationMechanism], file: KindFile
    ) -> None:
        """mechanisms: by kind, of every kind that this plugin can provide; the kept one is missing if it cannot."""
        self._configured, self._fallback, self._mechanisms, self._file = configured, fallback, mechanisms, file
        kept = file.load()
        self.now, self.problem = kept if kept in mechanisms else "", ""
        if not self.now and configured != AUTO:
            self._take(configured)

    @property
    def mechanism(self) -> IsolationMechanism:
        """Additions to containers, in addition to their cards and to limits by the driver."""
        return self._mechanisms.get(self.now, NONE)

    @property
    def may_be_mps(self) -> bool:
        """Whether this plugin may run MPS daemons."""
        return any(mechanism.preparation == MPS for mechanism in self._mechanisms.values())

    def settle(self, *, limits: bool, possible: bool, holders: int) -> bool:
        """Choose the kind. Return whether it has changed.

        limits: the driver can enforce shares of at least one card now. possible: as `limits`, without regard to what
        may return soon, such as a CDI spec. holders: pods of the node that request GPU memory.
        """
        wanted = self._wanted(limits=limits, possible=possible)
        before = self.now
        if not before and holders:
            # Their containers may run without limits, whatever was configured for them.
            self._take(self._fallback)
        elif wanted != before and not holders:
            self._take(wanted)
        pods = f"its {holders} pods with GPU memory have" if holders != 1 else "its pod with GPU memory has"
        how = "supported" if self._configured == AUTO else "configured"
        kept = f"isolation {wanted} is {how}; the node keeps {self.now} until {pods} ended"
        self.problem = kept if wanted != self.now else ""
        return self.now != before

    def of_card(self) -> str:
        """Return the inventory's word for a card that this kind isolates; "" if the kind isolates none."""
        if self.now.startswith("/"):
            return OWN
        return "" if self.now == NOTHING else self.now

    def _wanted(self, *, limits: bool, possible: bool) -> str:
        if self._configured != AUTO:
            return self._configured
        # A spec may be written again in a moment: a node whose driver enforces shares does not leave that for it.
        return DRIVER if limits or (possible and self.now == DRIVER) else self._fallback

    def _take(self, kind: str) -> None:
        self.now = kind
        self._file.save(kind)
        log.info("isolation", mechanism=kind, configured=self._configured)
