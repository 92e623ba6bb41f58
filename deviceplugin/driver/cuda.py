"""CUDA's answer for one card, and explanations of its failures. Pure.

Source of the codes: cuda.h, `CUresult`; of the causes: the checks in cuInit of NVIDIA's user-space driver.
"""

from dataclasses import dataclass
from typing import Final

_STARTS: Final = 0
# CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA starts, but the compute mode keeps this process out, as with MPS.
_UNAVAILABLE: Final = 46
# The first word of the reason why a card is out of use.
_REASON: Final = "cuda-"
_SILENT: Final = f"{_REASON}silent"
# The reason of a card whose NVSwitch fabric is not ready, followed by the fabric's state.
FABRIC: Final = "fabric-"
# Why CUDA cannot be tried: a limit of the plugin's own container, not a fault of the card.
NO_MEMORY: Final = "the plugin's container has too little memory for CUDA"
# The reason of a card for which CUDA has not been tried yet.
UNTRIED: Final = f"{_REASON}untried"


@dataclass(frozen=True, slots=True)
class CudaAnswer:
    """Answer of cuInit in a process that sees one card.

    code: CUDA's code: 0 if it starts, 46 if it starts only for others; None if there is no answer. detail: why there is
    no answer. lacking: why CUDA cannot be tried from here, which says nothing about the card; "" if it was tried.
    """

    code: int | None = None
    detail: str = ""
    lacking: str = ""

    @property
    def starts(self) -> bool:
        return self.code in {_STARTS, _UNAVAILABLE}

    @property
    def reason(self) -> str:
        """Why the card is out of use, in one word such as `cuda-999`; "" if CUDA starts or cannot be tried."""
        if self.starts or self.lacking:
            return ""
        return _SILENT if self.code is None else f"{_REASON}{self.code}"


@dataclass(frozen=True, slots=True)
class Cause:
    """Cause of a CUDA failure. what: the cause in words. remedy: what to do next."""

    what: str
    remedy: str


_DELETE: Final = "delete the plugin's pod to recreate its container"
_LOG: Final = "on the node, run dmesg | grep -e NVRM -e nvidia-uvm"
_CAUSES: Final = {
    100: Cause(
        "CUDA finds no card: /dev/nvidiactl or the card's device node is missing or cannot be opened",
        f"on the node, run ls -l /dev/nvidia*, then nvidia-smi, which creates missing ones; then {_DELETE}",
    ),
    101: Cause("CUDA finds another card under this UUID", f"on the node, run nvidia-smi -L; then {_DELETE}"),
    304: Cause("the kernel denied a call by CUDA", f"check seccomp, SELinux and the device cgroup; {_LOG}"),
    802: Cause(
        "the NVSwitch fabric is not ready: the fabric manager is not running, or its version differs from the driver's",
        "on the node, run systemctl status nvidia-fabricmanager, then systemctl restart nvidia-fabricmanager",
    ),
    803: Cause(
        "libcuda and the kernel module have different versions",
        f"reload the modules or reboot the node; then {_DELETE}",
    ),
    999: Cause(
        "/dev/nvidia-uvm is missing or has the major number of an earlier boot",
        f"on the node, run nvidia-modprobe -u -c=0 and regenerate the CDI specs; then {_DELETE}",
    ),
}


def cause_of(reason: str) -> Cause | None:
    """Return the cause behind a card's reason; None if the reason comes from neither CUDA nor the fabric."""
    if reason.startswith(FABRIC):
        return _CAUSES[802]
    if not reason.startswith(_REASON):
        return None
    number = reason.removeprefix(_REASON)
    if number == "untried":
        return Cause("CUDA is still being tested on it", "")
    if number == "silent":
        return Cause("cuInit did not return, or its process died", f"see card.cuda in the plugin's log; {_LOG}")
    known = _CAUSES.get(int(number)) if number.isdecimal() else None
    return known or Cause(f"cuInit returned {number[:16]}", _LOG)


def sentence(reason: str) -> str:
    """Return the cause behind a reason and its remedy as a sentence; "" if the reason does not come from CUDA."""
    cause = cause_of(reason)
    if cause is None:
        return ""
    return f"{cause.what}; {cause.remedy}" if cause.remedy else cause.what
