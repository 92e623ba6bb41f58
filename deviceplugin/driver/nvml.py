"""NVIDIA's driver as a source of cards, through its library NVML, which several threads may call at once.

Initializing NVML touches no card, and querying a card by its index or PCI address touches no other (NVML API reference,
`nvmlInit_v2`, `nvmlDeviceGetHandleByIndex_v2`, `nvmlDeviceGetHandleByPciBusId_v2`). So a hanging card blocks only the
thread that queries it. Nothing is ever closed here: to release a card, its process ends.
"""

import contextlib
import ctypes
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from config.protocol import card_uuid
from deviceplugin.driver import nvml_cards, nvml_instances, nvml_limits, nvml_links
from deviceplugin.driver.cards import CardFailed, CardKey, CardReading, DriverCard, MemoryLimits, NotOpened, Opened, Xid
from deviceplugin.driver.nvml_cards import (
    GONE,
    UNSUPPORTED,
    Handle,
    RawHandle,
    asked,
    message_of,
    text,
    text_for_people,
)

_ATTACHED: Final = Path("/sys/bus/pci/drivers/nvidia")
_MOST_EVENTS: Final = 256  # a card with a storm of errors does not keep `wait` from returning
_GATHER_S: Final = 0.1  # and does not make it return more often than this
_UUID: Final = "GPU-"
NVML: Final = "libnvidia-ml.so.1"
_NO_NVML: Final = "is the driver installed on this node? Does the NVIDIA runtime run this container?"
_LACKS: Final = "the container's image lacks a library that NVML needs"


class NvmlSource:
    """`cards.CardSource` for a real driver."""

    def __init__(
        self,
        library: ModuleType = pynvml,
        attached: Path = _ATTACHED,
        sleep: Callable[[float], None] = time.sleep,
        load: Callable[[str], object] = ctypes.CDLL,
    ) -> None:
        """library: pynvml, or an object with its functions. attached: has an entry for each card of the driver.

        load: loads a library by its name; raises OSError with the loader's message.
        """
        self._load = load
        self._library = library
        self._attached = attached
        self._sleep = sleep
        self._seen: dict[str, nvml_links.SeenCard] = {}
        self._event_sets: dict[str, Any] = {}

    def open(self) -> Opened:
        """Initialize NVML and count the cards. Raises NotOpened."""
        try:
            self._library.nvmlInit()
            version = text_for_people(self._library.nvmlSystemGetDriverVersion)
            return Opened(version, self._library.nvmlDeviceGetCount())
        except pynvml.NVMLError_LibraryNotFound as error:
            raise NotOpened(f"the driver: NVML cannot be loaded: {self._loaders_words()}") from error
        except pynvml.NVMLError as error:
            raise NotOpened(f"the driver: {message_of(error)}") from error

    def _loaders_words(self) -> str:
        """Return the dynamic loader's error, with advice: pynvml reports any error as a missing library."""
        try:
            self._load(NVML)
        except OSError as error:
            lacks = str(error).partition(":")[0] != NVML and "cannot open" in str(error)
            advice = _LACKS if lacks else _NO_NVML if "cannot open" in str(error) else "the library is damaged"
            return f"{error}: {advice}"
        return "the loader finds it now: is the driver being installed?"

    def describe(self, key: CardKey) -> DriverCard:
        """Return the card with its instances, without its links."""
        with asked(f"card {key}"):
            raw = self._raw(key)
            index = key if isinstance(key, int) else self._library.nvmlDeviceGetIndex(raw)
            found = nvml_links.seen(self._library, Handle(index, text(self._library.nvmlDeviceGetUUID(raw)), raw))
            if found.card.mig:
                found = replace(found, card=nvml_instances.described(self._library, raw, found.card))
        if problem := card_uuid.objection(found.card.uuid):
            raise CardFailed(f"card {key}: {problem}", lost=False)
        self._seen[found.card.uuid] = found
        return found.card

    def links(self, uuids: Sequence[str]) -> dict[str, dict[str, str]]:
        with asked("links of the cards"):
            return nvml_links.links(self._library, [self._seen[uuid] for uuid in uuids if uuid in self._seen])

    def read(self, uuid: str) -> CardReading:
        """Return the current reading of the card and its instances."""
        found = self._known(uuid)
        with asked(f"card {uuid}"):
            reading = nvml_cards.read(self._library, found.raw, mig=found.card.mig)
            reading = replace(reading, attached=self._attachment(found.card.pci))
            if found.card.mig:
                instances = nvml_instances.readings(self._library, found.raw, found.card, reading)
                reading = replace(reading, instances=instances)
        return reading

    def memory_limits(self, uuid: str, cgroups: Sequence[str]) -> dict[str, MemoryLimits]:
        raw = self._known(uuid).raw
        with asked(f"card {uuid}: memory limits"):
            return nvml_limits.limits_of(self._library, raw, cgroups)

    def set_compute_mode(self, uuid: str, mode: str) -> None:
        """Set the compute mode, which requires root (NVML API reference, `nvmlDeviceSetComputeMode`)."""
        raw = self._known(uuid).raw
        with asked(f"card {uuid}"):
            self._library.nvmlDeviceSetComputeMode(raw, nvml_cards.compute_mode(mode))

    def wait(self, uuid: str, timeout_s: float) -> tuple[Xid, ...] | None:
        """Return the card's next errors; errors at about the same moment are counted together.

        Each card has its own event set: waiting on a set that contains a lost card fails at once.
        """
        raw = self._known(uuid).raw
        with asked(f"events of card {uuid}"):
            try:
                event_set = self._listening(uuid, raw)
            except UNSUPPORTED:
                return None
            counted: Counter[Xid] = Counter()
            timeout_ms = round(timeout_s * 1000)
            with contextlib.suppress(pynvml.NVMLError_Timeout):
                while counted.total() < _MOST_EVENTS:
                    event = self._library.nvmlEventSetWait_v2(event_set, timeout_ms)
                    if not counted:
                        self._sleep(_GATHER_S)
                    counted[Xid(self._uuid_of(event.device, uuid), int(event.eventData))] += 1
                    timeout_ms = 0
        return tuple(replace(xid, times=times) for xid, times in counted.items())

    def _raw(self, key: CardKey) -> RawHandle:
        if isinstance(key, int):
            return self._library.nvmlDeviceGetHandleByIndex(key)
        if key.startswith(_UUID):
            return self._library.nvmlDeviceGetHandleByUUID(key)
        return self._library.nvmlDeviceGetHandleByPciBusId(key)

    def _known(self, uuid: str) -> nvml_links.SeenCard:
        found = self._seen.get(uuid)
        if found is None:
            raise CardFailed(f"card {uuid}: the driver does not list it", lost=True)
        return found

    def _listening(self, uuid: str, raw: RawHandle) -> object:
        known = self._event_sets.get(uuid)
        if known is not None:
            return known
        event_set = self._library.nvmlEventSetCreate()
        try:
            # Except double-bit ECC errors: the driver also reports each as XID 48, and a reading counts them.
            self._library.nvmlDeviceRegisterEvents(raw, pynvml.nvmlEventTypeXidCriticalError, event_set)
        except pynvml.NVMLError:
            with contextlib.suppress(pynvml.NVMLError):
                self._library.nvmlEventSetFree(event_set)
            raise
        self._event_sets[uuid] = event_set
        return event_set

    def _uuid_of(self, raw: RawHandle, listened_to: str) -> str:
        """Return the card's UUID; "" if the driver does not name the card."""
        if not raw:
            return ""
        # A card that just fell off the bus may no longer report its UUID.
        try:
            return text(self._library.nvmlDeviceGetUUID(raw))
        except GONE:
            raise
        except (pynvml.NVMLError, UnicodeDecodeError):
            return listened_to

    def _attachment(self, pci: str) -> int | None:
        """Return the inode of the card's kernel entry, which is new each time that the driver attaches to the card."""
        try:
            return (self._attached / pci).lstat().st_ino if pci else None
        except OSError:
            return None
