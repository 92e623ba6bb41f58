"""Specs of the Container Device Interface: one per CDI device, which says what its container gets. Pure.

Allocate answers with a device name made of the device ids, before anybody knows the container. When the container is
about to start, the spec of that device is written. It holds everything itself, for a real card copied from NVIDIA's
own specs (`nvidia_spec`): the name was fixed at Allocate and cannot bring in another device.

Source of the forms: SPEC.md of cncf-tags/container-device-interface.
"""

import hashlib
from collections.abc import Collection, Iterable
from typing import Final

from deviceplugin.cdi.edits import Edits, Json, combined, read_only_mount

KIND: Final = "gpushare/handle"  # on the wire: our device names are of this kind
SIMULATED_CARDS: Final = "/run/gpushare/cards"  # in the container

_NAME_DIGITS: Final = 16


class CdiError(Exception):
    """A card that cannot be brought into a container, or a spec that cannot be read; the message says which."""


def device_name(ids: Collection[str]) -> str:
    """The CDI device name for a set of device ids: 16 hexadecimal digits, the same in any order."""
    return hashlib.sha256("\n".join(sorted(set(ids))).encode()).hexdigest()[:_NAME_DIGITS]


def qualified(name: str) -> str:
    """The name in an Allocate response: kind and device name."""
    return f"{KIND}={name}"


def container_spec(name: str, parts: Iterable[Edits]) -> Json:
    """The spec of one device, made of `parts` in order (later ones win); together they add something."""
    edits = combined(parts)
    version = ".".join(map(str, edits.version))
    return {"cdiVersion": version, "kind": KIND, "devices": [{"name": name, "containerEdits": edits.wire()}]}


def simulated_card(uuid: str, host_path: str) -> Edits:
    """A card without a device node: a read-only mount under SIMULATED_CARDS. host_path: of its description."""
    return read_only_mount(host_path, f"{SIMULATED_CARDS}/{uuid}")
