"""Specs of the Container Device Interface: one per CDI device, with everything that its container gets. Pure.

Allocate returns a random device name before the container is known; the kubelet records it. When the container is about
to start, the spec of that device is written. The spec is complete, and copies a real card's part from NVIDIA's own
specs (`nvidia_spec`): the name was fixed at Allocate and cannot refer to another device. No two containers ever have
the same name: a runtime may still cache the spec of an earlier container.

Source of the format: SPEC.md of cncf-tags/container-device-interface.
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
    """A card cannot be injected into a container, or a spec cannot be read; the message names the card or the spec."""


def qualified(name: str) -> str:
    """Return the full name of our CDI device for an Allocate response. name: 16 hexadecimal digits."""
    return f"{KIND}={name}"


def device_names(qualified_names: Iterable[str]) -> frozenset[str]:
    """Return the names of our devices among the qualified names of an Allocate response."""
    return frozenset(match.group(1) for name in qualified_names if (match := _HANDLE.fullmatch(name)))


def container_spec(name: str, parts: Iterable[Edits]) -> Json:
    """Return the spec of one device, made of `parts` in order (later ones win); together they must add something."""
    edits = combined(parts)
    version = ".".join(map(str, edits.version))
    return {"cdiVersion": version, "kind": KIND, "devices": [{"name": name, "containerEdits": edits.wire()}]}


def simulated_card(uuid: str, host_path: str) -> Edits:
    """Return the edits for a simulated card: no device node, only a read-only mount under SIMULATED_CARDS.

    host_path: where the card's description is on the host.
    """
    return read_only_mount(host_path, f"{SIMULATED_CARDS}/{uuid}")
