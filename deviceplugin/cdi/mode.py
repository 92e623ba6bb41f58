"""How the cards of this node come into containers, where the configuration leaves it open. Pure."""

import re
from typing import Final, Literal, TypeAlias

from config.settings.deviceplugin import Mode as ConfiguredMode

Mode: TypeAlias = Literal["cdi", "environment"]

_CONTAINERD: Final = re.compile(r"containerd://v?(\d{1,4})\.")
_CRI_O: Final = "cri-o://"
# The first major version that reads CDI documents without being told to. Source: containerd 2.0's release notes;
# 1.7 has the code behind `enable_cdi`, which is off there, so it counts only where somebody says `mode: cdi`.
_CONTAINERD_WITH_CDI: Final = 2


def mode_of(configured: ConfiguredMode, runtime_version: str) -> Mode:
    """`configured`, or what fits the node's runtime. runtime_version: the node's `nodeInfo.containerRuntimeVersion`."""
    if configured != "auto":
        return configured
    match = _CONTAINERD.match(runtime_version)
    if runtime_version.startswith(_CRI_O) or (match and int(match.group(1)) >= _CONTAINERD_WITH_CDI):
        return "cdi"
    return "environment"
