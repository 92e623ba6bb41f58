"""The injection mode of this node, chosen by what the node supports. Pure.

`auto` takes CDI if NVIDIA's specs cover every card, else the environment if the NVIDIA runtime reads it, else no mode:
a container without driver libraries would start, and find no CUDA.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from config.settings.deviceplugin import Mode as ConfiguredMode

Mode: TypeAlias = Literal["cdi", "environment"]

_CONTAINERD: Final = re.compile(r"containerd://v?(\d{1,4})\.")
_CRI_O: Final = "cri-o://"
# The first major version that reads CDI documents without being told to. Source: containerd 2.0's release notes;
# 1.7 has the code behind `enable_cdi`, which is off there, so it counts only where somebody says `mode: cdi`.
_CONTAINERD_WITH_CDI: Final = 2
_MOUNT_POINT: Final = 4
_NVML: Final = "libnvidia-ml.so"


class NoInjectionMode(Exception):
    """Cards cannot be injected into containers; the message says what is missing, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionSupport:
    """Injection modes that the node supports.

    runtime_version: the node's `nodeInfo.containerRuntimeVersion`. lacking: why NVIDIA's CDI specs do not bring every
    card into containers, "" where they do. nvidia_runtime: it has brought NVML into the plugin's own container.
    real: False for simulated cards, which need no NVIDIA components.
    """

    runtime_version: str
    lacking: str
    nvidia_runtime: bool
    real: bool = True


def mode_of(configured: ConfiguredMode, support: InjectionSupport) -> Mode:
    """The configured mode, or the one that the node supports. Raises NoInjectionMode."""
    if configured != "auto":
        return configured
    readable = reads_cdi(support.runtime_version)
    if readable and not (support.real and support.lacking):
        return "cdi"
    if support.nvidia_runtime or not support.real:
        return "environment"
    runtime = support.runtime_version or "the container runtime"
    missing = support.lacking if readable else f"{runtime} does not read CDI specs by itself (see mode: cdi)"
    message = f"no way to bring cards into containers: {missing}; and the NVIDIA runtime does not run this pod"
    raise NoInjectionMode(message)


def reads_cdi(runtime_version: str) -> bool:
    """Whether it is known to read CDI specs without being told to."""
    match = _CONTAINERD.match(runtime_version)
    return runtime_version.startswith(_CRI_O) or bool(match and int(match.group(1)) >= _CONTAINERD_WITH_CDI)


def brings_nvml(mountinfo: str) -> bool:
    """Whether a runtime has mounted NVML into the container of this /proc/self/mountinfo: what the NVIDIA runtime does.

    A mounted host folder that contains the library does not count. Source of the form: proc_pid_mountinfo(5).
    """
    points = (fields[_MOUNT_POINT] for line in mountinfo.splitlines() if len(fields := line.split()) > _MOUNT_POINT)
    return any(point.rpartition("/")[2].startswith(_NVML) for point in points)
