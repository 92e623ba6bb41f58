"""NVML without a driver: cards with answers set by a test, behind functions with pynvml's names and parameters."""

import ctypes
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

MIB: Final = 1024**2
_FIRST_HANDLE: Final = 0x1000


@dataclass(slots=True)
class NvmlCard:
    """A card. answers: function -> return value, error to raise, or a function of the arguments after the handle.

    Missing functions are not supported. lost: every function raises it.
    """

    answers: dict[str, Any]
    lost: Exception | None = None
    uuid: str = field(init=False)

    def __post_init__(self) -> None:
        self.uuid = self.answers["nvmlDeviceGetUUID"]


class NvmlDouble(ModuleType):
    """The library. broken: raised by each function but nvmlShutdown. events: reported in order, or raised if an error.

    An event set with a lost card in it fails. Handles are as pynvml's: two handles of one card are not equal, and
    handles from before an nvmlInit are invalid after it.
    """

    def __init__(self, *cards: NvmlCard) -> None:
        super().__init__("nvml_double")
        self.nvml_cards = list(cards)
        self.broken: Exception | None = None
        self.events: list[Any] = []
        self.waited_ms: list[int] = []
        self.event_sets: list[list[str]] = []
        self.openings = 0
        self.is_open = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        parameters = inspect.signature(getattr(pynvml, name))

        def call(*arguments: Any) -> Any:  # noqa: ANN401 # as pynvml
            parameters.bind(*arguments)
            if self.broken is not None and name != "nvmlShutdown":
                raise self.broken
            if not self.is_open and name != "nvmlInit":
                raise pynvml.NVMLError_Uninitialized
            own = _OWN.get(name)
            return own(self, *arguments) if own else self._of_card(name, *arguments)

        call.__name__ = name
        return call

    def handle(self, index: int) -> Any:  # noqa: ANN401 # as pynvml
        """Return a new pointer to a card; index -1: to a nonexistent one."""
        address = _FIRST_HANDLE * (1 + self.openings) + index if index >= 0 else 0
        return ctypes.cast(ctypes.c_void_p(address), pynvml.c_nvmlDevice_t)

    def card_of(self, raw: Any) -> NvmlCard:  # noqa: ANN401 # as pynvml
        """Return the card of a handle."""
        index = (ctypes.cast(raw, ctypes.c_void_p).value or 0) - _FIRST_HANDLE * (1 + self.openings)
        if not 0 <= index < len(self.nvml_cards):
            raise pynvml.NVMLError_InvalidArgument
        return self.nvml_cards[index]

    def _of_card(self, name: str, raw: Any, *arguments: Any) -> Any:  # noqa: ANN401 # as pynvml
        card = self.card_of(raw)
        if card.lost is not None:
            raise card.lost
        found = card.answers.get(name, pynvml.NVMLError_NotSupported())
        if isinstance(found, Exception):
            raise found
        return found(*arguments) if callable(found) else found


def _init(double: NvmlDouble) -> None:
    double.is_open = True
    double.openings += 1


def _shutdown(double: NvmlDouble) -> None:
    double.is_open = False


def _by_index(double: NvmlDouble, index: int) -> Any:  # noqa: ANN401 # as pynvml
    lost = double.nvml_cards[index].lost
    if lost is not None:
        raise lost
    return double.handle(index)


def _by_name(double: NvmlDouble, name: str) -> Any:  # noqa: ANN401 # as pynvml
    for index, one in enumerate(double.nvml_cards):
        at = one.answers["nvmlDeviceGetPciInfo"]
        if name in {one.uuid, f"{at.domain:04x}:{at.bus:02x}:{at.device:02x}.0"}:
            return _by_index(double, index)
    raise pynvml.NVMLError_NotFound


def _event_set(double: NvmlDouble) -> object:
    double.event_sets.append([])
    return double.event_sets[-1]


def _register(double: NvmlDouble, raw: Any, kinds: int, event_set: list[str]) -> None:  # noqa: ANN401 # as pynvml
    if kinds != pynvml.nvmlEventTypeXidCriticalError:
        raise pynvml.NVMLError_InvalidArgument
    double._of_card("nvmlDeviceRegisterEvents", raw)  # noqa: SLF001 # a part of it
    event_set.append(double.card_of(raw).uuid)


def _wait(double: NvmlDouble, event_set: list[str], timeout_ms: int) -> Any:  # noqa: ANN401 # as pynvml
    double.waited_ms.append(timeout_ms)
    lost = [card.lost for card in double.nvml_cards if card.lost is not None and card.uuid in event_set]
    event = double.events.pop(0) if double.events else next(iter(lost), pynvml.NVMLError_Timeout())
    if isinstance(event, Exception):
        raise event
    return event


_OWN: Final[dict[str, Callable[..., Any]]] = {
    "nvmlInit": _init,
    "nvmlShutdown": _shutdown,
    "nvmlSystemGetDriverVersion": lambda _double: "580.95.05",
    "nvmlDeviceGetCount": lambda double: len(double.nvml_cards),
    "nvmlDeviceGetHandleByIndex": _by_index,
    "nvmlDeviceGetHandleByPciBusId": _by_name,
    "nvmlDeviceGetHandleByUUID": _by_name,
    "nvmlDeviceGetIndex": lambda double, raw: double.nvml_cards.index(double.card_of(raw)),
    "nvmlEventSetCreate": _event_set,
    "nvmlEventSetFree": lambda _double, _event_set: _event_set.clear(),
    "nvmlEventSetWait_v2": _wait,
    "nvmlDeviceRegisterEvents": _register,
}


def xid(raw: object, number: int) -> object:
    """Return an error of the handle's card."""
    return SimpleNamespace(device=raw, eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=number)


def card(number: int, **answers: object) -> NvmlCard:
    """Return an 80 GiB card on bus `number` + 7, 640 MiB of it reserved, 1 GiB used, with device node and events.

    answers: as in `NvmlCard`, in addition to these.
    """
    plain = SimpleNamespace(total=80 * 1024 * MIB, used=1664 * MIB)
    fine = SimpleNamespace(total=80 * 1024 * MIB, reserved=640 * MIB, used=1024 * MIB)
    return NvmlCard(
        {
            "nvmlDeviceGetUUID": f"GPU-{number}",
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetMinorNumber": number,
            "nvmlDeviceGetPciInfo": pci(number),
            "nvmlDeviceGetMemoryInfo": lambda version=None: fine if version == pynvml.nvmlMemory_v2 else plain,
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceRegisterEvents": None,
            **answers,
        }
    )


def pci(number: int) -> object:
    """Return the PCI address of `card(number)`."""
    return SimpleNamespace(domain=0, bus=0x07 + number, device=0)


def nvlinks(*ends: object) -> dict[str, object]:
    """Return answers of a card with active links to these, each a result of `pci` or "switch"; a last link is down."""

    def state(link: int) -> int:
        if link > len(ends):
            raise pynvml.NVMLError_InvalidArgument
        return int(link < len(ends))

    def kind(link: int) -> int:
        switch = ends[link] == "switch"
        return int(pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if switch else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU)

    return {
        "nvmlDeviceGetNvLinkState": state,
        "nvmlDeviceGetNvLinkRemoteDeviceType": kind,
        "nvmlDeviceGetNvLinkRemotePciInfo": lambda link: ends[link],
    }
