"""The injection mode of this node, chosen by what the node supports. Pure.

`auto` tries, in this order: CDI if NVIDIA's specs cover every card; the environment if the NVIDIA runtime reads it; CDI
for the covered cards; no mode. Without driver libraries, a container would start but find no CUDA. A node whose
containers got their cards through CDI keeps CDI: its specs may appear late after a reboot.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

from config.settings.deviceplugin import Mode as ConfiguredMode

Mode: TypeAlias = Literal["cdi", "environment"]

_CONTAINERD: Final = re.compile(r"containerd://v?(\d{1,4})\.")
_UNKNOWN: Final = "://Unknown"  # source: pkg/kubelet/nodestatus/setters.go, VersionInfo
_CRI_O: Final = "cri-o://"
# The first major version that reads CDI specs by default. Source: containerd 2.0's release notes; 1.7 has the code
# behind `enable_cdi`, which is off there, so it counts only with an explicit `mode: cdi`.
_CONTAINERD_WITH_CDI: Final = 2
_MOUNT_POINT: Final = 4
_NVML: Final = "libnvidia-ml.so"
_REQUESTS: Final = "nvidia-container-devices"
# Where a container mounts /dev/null for each card that it requests. Source: the toolkit's internal/config/image.
VOLUME_MOUNTS: Final = f"/var/run/{_REQUESTS}"


class Injection(Protocol):
    """Port: how containers get cards now, see `injection.InjectionMode`."""

    @property
    def chosen(self) -> Mode | None:
        """The mode; None until one is chosen."""
        ...

    @property
    def withheld(self) -> str:
        """Why containers get no card at all, once that is certain; otherwise ""."""
        ...

    @property
    def uncovered(self) -> Mapping[str, str]:
        """UUID -> why containers cannot get that card, while they get others."""
        ...


class NoInjectionMode(Exception):
    """Cards cannot be injected into containers; the message says what is missing, and what to do."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of the node's cards by NVIDIA's CDI specs.

    lacking: why some card is not covered; "" if all are. uncovered: UUID -> why the card is not covered. some: whether
    the specs cover at least one card, or no card is shared.
    """

    lacking: str = ""
    uncovered: Mapping[str, str] = field(default_factory=dict)
    some: bool = True

    @classmethod
    def of(cls, cards: int, uncovered: Mapping[str, str], lacking: str) -> "Coverage":
        """Return the coverage, for this number of cards."""
        return cls(lacking, uncovered, len(uncovered) < cards or not cards)


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionSupport:
    """Injection modes that the node supports.

    runtime_version: the node's `nodeInfo.containerRuntimeVersion`. lacking, some: as in `Coverage`. nvidia_runtime:
    whether it has mounted NVML into the plugin's own container. real: False for simulated cards, which need no NVIDIA
    components. last: the previously chosen mode, None if unknown.
    """

    runtime_version: str
    lacking: str
    nvidia_runtime: bool
    real: bool = True
    some: bool = False
    last: Mode | None = None


def mode_of(configured: ConfiguredMode, support: InjectionSupport) -> Mode:
    """Return the configured mode, or the one that the node supports. Raises NoInjectionMode."""
    if configured != "auto":
        return configured
    readable = reads_cdi(support.runtime_version)
    if readable is None:
        return _of_before(support)
    if readable and (not support.real or not support.lacking or support.last == "cdi"):
        return "cdi"
    if support.nvidia_runtime or not support.real:
        return "environment"
    if readable and support.some:
        return "cdi"
    missing = (
        support.lacking if readable else f"{support.runtime_version} does not read CDI specs by default (see mode: cdi)"
    )
    message = f"no injection mode is available: {missing}; and the NVIDIA runtime does not run this pod"
    raise NoInjectionMode(message)


def reads_cdi(runtime_version: str) -> bool | None:
    """Return whether the runtime reads CDI specs by default.

    None if the kubelet does not know the version, for example while containerd restarts (`containerd://Unknown`).
    """
    if runtime_version.startswith(_CRI_O):
        return True
    if not runtime_version or runtime_version.endswith(_UNKNOWN):
        return None
    match = _CONTAINERD.match(runtime_version)
    return bool(match and int(match.group(1)) >= _CONTAINERD_WITH_CDI)


def _of_before(support: InjectionSupport) -> Mode:
    """Return the previous mode, which was chosen when the version was known."""
    if support.last is not None:
        return support.last
    message = f"the node does not report a container runtime version yet ({support.runtime_version or 'empty'})"
    raise NoInjectionMode(f"{message}: is the runtime running?")


def brings_nvml(mountinfo: str) -> bool:
    """Return whether a runtime has mounted NVML into the container of this /proc/self/mountinfo, as NVIDIA's does.

    A mounted host folder that contains the library does not count. Source of the format: proc_pid_mountinfo(5).
    """
    return any(point.rpartition("/")[2].startswith(_NVML) for point in _mount_points(mountinfo))


def takes_volume_mounts(mountinfo: str) -> bool:
    """Return whether the container of this /proc/self/mountinfo requests all cards by a mount in VOLUME_MOUNTS.

    True with `devicePlugin.driverAccess=volume-mounts`, where the NVIDIA runtime ignores NVIDIA_VISIBLE_DEVICES.
    """
    return any(point.endswith(f"/{_REQUESTS}/all") for point in _mount_points(mountinfo))


def _mount_points(mountinfo: str) -> list[str]:
    return [fields[_MOUNT_POINT] for line in mountinfo.splitlines() if len(fields := line.split()) > _MOUNT_POINT]
