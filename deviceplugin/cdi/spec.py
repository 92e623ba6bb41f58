"""Specs of the Container Device Interface: one per CDI device, which says what its container gets. Pure.

Allocate answers with a random device name, before anybody knows the container; the kubelet records it. When the
container is about to start, the spec of that device is written. It holds everything itself, for a real card copied
from NVIDIA's own specs (`nvidia_spec`): the name was fixed at Allocate and cannot bring in another device. No two
containers ever have the same name: a runtime may still have the spec of an earlier container in its cache.

Source of the forms: SPEC.md of cncf-tags/container-device-interface.
"""

import re
from collections.abc import Iterable
from typing import Final

from deviceplugin.cdi.edits import Edits, Json, combined, read_only_mount

KIND: Final = "gpushare/handle"  # on the wire: our device names are of this kind
SIMULATED_CARDS: Final = "/run/gpushare/cards"  # in the container

NAME_BYTES: Final = 8
_HANDLE: Final = re.compile(rf"{KIND}=([0-9a-f]{{16}})", re.ASCII)


class CdiError(Exception):
    """A card that cannot be brought into a container, or a spec that cannot be read; the message says which."""


def qualified(name: str) -> str:
    """The name in an Allocate response: kind and device name, 16 hexadecimal digits."""
    return f"{KIND}={name}"


def device_names(qualified_names: Iterable[str]) -> frozenset[str]:
    """Device names of ours among the qualified names of an Allocate response."""
    return frozenset(match.group(1) for name in qualified_names if (match := _HANDLE.fullmatch(name)))


def container_spec(name: str, parts: Iterable[Edits]) -> Json:
    """The spec of one device, made of `parts` in order (later ones win); together they add something."""
    edits = combined(parts)
    version = ".".join(map(str, edits.version))
    return {"cdiVersion": version, "kind": KIND, "devices": [{"name": name, "containerEdits": edits.wire()}]}


def simulated_card(uuid: str, host_path: str) -> Edits:
    """A card without a device node: a read-only mount under SIMULATED_CARDS. host_path: of its description."""
    return read_only_mount(host_path, f"{SIMULATED_CARDS}/{uuid}")
