"""Specs of the Container Device Interface: one per CDI device, which says what its container gets. Pure.

Allocate answers with a device name made of the device ids, before anybody knows the container. When the container is
about to start, the spec of that device is written. It holds everything itself, copied from NVIDIA's own spec where
there is one: the name was fixed at Allocate and cannot bring in another device.

Source of the forms: SPEC.md of cncf-tags/container-device-interface; of NVIDIA's specs: `nvidia-ctk cdi generate`,
whose device names are indexes, UUIDs, or `all`.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from config.settings import plainyaml
from deviceplugin.cdi.edits import Edits, Json, combined, device_nodes, from_wire, read_only_mount
from deviceplugin.driver.cards import DriverCard

KIND: Final = "gpushare/handle"  # on the wire: our device names are of this kind
NVIDIA_KIND: Final = "nvidia.com/gpu"
SIMULATED_CARDS: Final = "/run/gpushare/cards"  # in the container

_NAME_DIGITS: Final = 16
_SHARED_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_CARD_NODE: Final = re.compile(r"(?:.*/)?nvidia(\d+)", re.ASCII)
_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})", re.ASCII)


class CdiError(Exception):
    """A card that cannot be brought into a container, or a spec that cannot be read; the message says which."""


@dataclass(frozen=True, slots=True)
class NvidiaDevice:
    """minors: of the card nodes (/dev/nvidia<minor>) that its own edits bring in."""

    name: str
    minors: frozenset[int]
    edits: Edits


@dataclass(frozen=True, slots=True)
class NvidiaSpec:
    """A spec of kind `nvidia.com/gpu`. edits: those that every device of it needs. source: its file."""

    source: str
    edits: Edits
    devices: tuple[NvidiaDevice, ...]


@dataclass(frozen=True, slots=True)
class CardEdits:
    """toolkit_missing: why a card came with its device nodes alone, without NVIDIA's libraries; "" when none did."""

    edits: Edits
    toolkit_missing: str = ""


def device_name(ids: Collection[str]) -> str:
    """The CDI device name for a set of device ids: 16 hexadecimal digits, the same in any order."""
    return hashlib.sha256("\n".join(sorted(set(ids))).encode()).hexdigest()[:_NAME_DIGITS]


def qualified(name: str) -> str:
    """What Allocate answers for a device name."""
    return f"{KIND}={name}"


def container_spec(name: str, parts: Iterable[Edits]) -> Json:
    """The spec of one device, made of `parts` in order (later ones win); together they add something."""
    edits = combined(parts)
    version = ".".join(map(str, edits.version))
    return {"cdiVersion": version, "kind": KIND, "devices": [{"name": name, "containerEdits": edits.wire()}]}


def nvidia_spec(source: str, text: str) -> NvidiaSpec | None:
    """The spec in `text` (JSON or YAML), None when it is of another kind. Raises CdiError when it cannot be read.

    source: the name of its file.
    """
    whole = _object(source, _parsed(source, text))
    if whole.get("kind") != NVIDIA_KIND:
        return None
    match = _VERSION.fullmatch(str(whole.get("cdiVersion", "")))
    if match is None:
        message = f"{source}: cdiVersion is {whole.get('cdiVersion')!r}; expected a version such as 0.5.0"
        raise CdiError(message)
    major, minor, patch = map(int, match.groups())
    version = (major, minor, patch)
    listed = whole.get("devices")
    devices = [_object(source, device) for device in listed] if isinstance(listed, list) else []
    shared = from_wire(_object(source, whole.get("containerEdits", {})), version)
    return NvidiaSpec(source, shared, tuple(_device(source, device, version) for device in devices))


def simulated_card(uuid: str, host_path: str) -> Edits:
    """A card without a device node: a read-only mount under SIMULATED_CARDS. host_path: of its description."""
    return read_only_mount(host_path, f"{SIMULATED_CARDS}/{uuid}")


def real_cards(cards: Sequence[DriverCard], specs: Sequence[NvidiaSpec], nodes: Collection[str]) -> CardEdits:
    """What brings these cards, and no other, into a container.

    cards: with a minor. specs: by priority, the highest last, as /etc/cdi before /var/run/cdi. nodes: the paths under
    /dev that exist. Raises CdiError for a card without a device node.
    """
    parts, missing = [], ""
    for card in cards:
        found = _by_toolkit(card, specs)
        if isinstance(found, str):
            missing = missing or found
            parts.append(_bare(card, nodes))
        else:
            parts += found
    return CardEdits(combined(parts), missing)


def _by_toolkit(card: DriverCard, specs: Sequence[NvidiaSpec]) -> list[Edits] | str:
    """The edits of the best spec that has the card, or why there are none.

    A spec that was written before cards were renumbered brings in another card under this one's name, so what a
    device of it brings in must be this card's node and no other.
    """
    reason = f"no CDI spec of kind {NVIDIA_KIND} names card {card.uuid}"
    for spec in reversed(specs):
        named = [device for device in spec.devices if device.name == card.uuid]
        for device in named or spec.devices:
            if device.minors == {card.minor}:
                return [spec.edits, device.edits]
        if named:
            reason = f"{spec.source} is out of date: card {card.uuid} is /dev/nvidia{card.minor} now"
    return reason


def _bare(card: DriverCard, nodes: Collection[str]) -> Edits:
    own = f"/dev/nvidia{card.minor}"
    if card.minor is None or own not in nodes:
        message = f"card {card.uuid} has no device node; expected {own if card.minor is not None else '/dev/nvidia<n>'}"
        raise CdiError(message)
    return device_nodes([own, *(node for node in _SHARED_NODES if node in nodes)])


def _device(source: str, wire: Json, version: tuple[int, int, int]) -> NvidiaDevice:
    edits = from_wire(_object(source, wire.get("containerEdits", {})), version)
    nodes = [_object(source, node) for node in edits.lists.get("deviceNodes", ())]
    matches = [_CARD_NODE.fullmatch(str(node.get("hostPath") or node.get("path", ""))) for node in nodes]
    return NvidiaDevice(str(wire.get("name", "")), frozenset(int(m.group(1)) for m in matches if m), edits)


def _parsed(source: str, text: str) -> object:
    # JSON first: a tab between its tokens is none in YAML.
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        documents = plainyaml.parse(text)
    except plainyaml.DocumentError as error:
        message = f"{source}: {error}"
        raise CdiError(message) from error
    return documents[0] if documents else {}


def _object(source: str, value: object) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    message = f"{source}: expected an object, found {str(value)[:64]!r}"
    raise CdiError(message)
