"""NVIDIA's own CDI specs: what the toolkit says that a container needs for a card. Pure.

A card is taken by its UUID: the device of that name, or, where a spec names no card by UUID, what all its devices need
with the node that the driver names for the card now. A device that bears another name is never taken for a card,
whatever its nodes are: indexes and minors may belong to another card after a reboot or the loss of a card. A spec
without the driver library is not used at all: a container with bare device nodes starts, and finds no CUDA.

Source: NVIDIA Container Toolkit, `nvidia-ctk cdi generate` (device names are indexes, UUIDs, or `all`).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from config.settings import plainyaml
from deviceplugin.cdi.edits import Edits, combined, device_nodes, from_wire
from deviceplugin.cdi.spec import CdiError
from deviceplugin.driver.cards import DriverCard

# The toolkit's own; that of NVIDIA's device plugin; that which the NVIDIA runtime makes; that which the GPU Operator
# has written for its own containers, whose only device is `all`.
KINDS: Final = (
    "nvidia.com/gpu",
    "k8s.device-plugin.nvidia.com/gpu",
    "runtime.nvidia.com/gpu",
    "management.nvidia.com/gpu",
)
# Text without it is of none of these kinds, and costs no parsing.
MARK: Final = b"nvidia.com/gpu"
GENERATE: Final = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"

_NODES: Final = "deviceNodes"
_MOUNTS: Final = "mounts"
_SHARED_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_CARD_NODE: Final = re.compile(r"(?:.*/)?nvidia(\d{1,9})", re.ASCII)
_SPEC_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})", re.ASCII)
_LIBRARY: Final = re.compile(r"(?:.*/)?libcuda\.so(?:\.(.*))?", re.ASCII)
_DRIVER_VERSION: Final = re.compile(r"\d{3,4}\.\d{1,4}(?:\.\d{1,4})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class NvidiaDevice:
    """minors: of the card nodes (/dev/nvidia<minor>) that its own edits bring in."""

    name: str
    minors: frozenset[int]
    edits: Edits


@dataclass(frozen=True, slots=True)
class NvidiaSpec:
    """A spec of one of KINDS. edits: those that every device of it needs. source: its file."""

    source: str
    edits: Edits
    devices: tuple[NvidiaDevice, ...]


def nvidia_spec(source: str, text: str) -> NvidiaSpec | None:
    """The spec in `text` (JSON or YAML), None when it is of another kind. Raises CdiError when it cannot be read.

    source: the name of its file.
    """
    whole = _object(source, _parsed(source, text))
    if whole.get("kind") not in KINDS:
        return None
    match = _SPEC_VERSION.fullmatch(str(whole.get("cdiVersion", "")))
    if match is None:
        raise CdiError(f"{source}: cdiVersion is {whole.get('cdiVersion')!r}; expected a version such as 0.5.0")
    major, minor, patch = map(int, match.groups())
    version = (major, minor, patch)
    listed = whole.get("devices")
    devices = [_object(source, device) for device in listed] if isinstance(listed, list) else []
    shared = _edits(source, whole, version)
    return NvidiaSpec(source, shared, tuple(_device(source, device, version) for device in devices))


def real_cards(
    cards: Sequence[DriverCard], specs: Sequence[NvidiaSpec], nodes: Collection[str], *, driver: str = ""
) -> Edits:
    """Edits that inject these cards alone into a container, with the driver's libraries.

    cards: as the driver names them now. specs: by priority, the highest last, as /etc/cdi before /var/run/cdi. nodes:
    the paths under /dev that exist. driver: its version, "" where it is not known. Raises CdiError with the reason.
    """
    return combined(part for card in cards for part in _of_card(card, specs, nodes, driver))


def _of_card(card: DriverCard, specs: Sequence[NvidiaSpec], nodes: Collection[str], driver: str) -> list[Edits]:
    """By the best spec that names the card; else by the best that names none."""
    reasons = []
    by_priority = list(reversed(specs))
    for take in (_named, _unnamed):
        for spec in by_priority:
            parts = take(card, spec, nodes)
            if isinstance(parts, list) and not (reason := _without_driver(spec.source, combined(parts), driver)):
                return parts
            reasons.append(parts if isinstance(parts, str) else reason)
    reason = next(filter(None, reasons), "") or f"no CDI spec of kind {KINDS[0]} is there"
    raise CdiError(f"card {card.uuid} cannot be brought into a container: {reason}")


def _named(card: DriverCard, spec: NvidiaSpec, _nodes: Collection[str]) -> list[Edits] | str:
    """The device of the card's UUID. One that was written before cards were renumbered brings in another card."""
    named = [device for device in spec.devices if device.name == card.uuid]
    if named and _minors(spec.edits) - {card.minor}:
        return f"{spec.source} brings every container another card too"
    for device in named:
        if card.minor is not None and device.minors == {card.minor}:
            return [spec.edits, device.edits]
    if named:
        now = "without a device node" if card.minor is None else f"/dev/nvidia{card.minor}"
        return f"{spec.source} is out of date: the card is {now} now; run {GENERATE}"
    return ""


def _unnamed(card: DriverCard, spec: NvidiaSpec, nodes: Collection[str]) -> list[Edits] | str:
    """Edits shared by all devices of a spec without a card, plus the device node that the driver names for the card."""
    if any(device.name == card.uuid for device in spec.devices):
        return ""
    if _minors(spec.edits):
        return f"{spec.source} brings every container a card that it does not name"
    own = f"/dev/nvidia{card.minor}"
    if card.minor is None or own not in nodes:
        return f"it has no device node; expected {own if card.minor is not None else '/dev/nvidia<n>'}"
    there = {str(node.get("path", "")) for node in _listed(spec.edits, _NODES)}
    shared = (node for node in _SHARED_NODES if node in nodes and node not in there)
    return [spec.edits, device_nodes([own, *shared])]


def _without_driver(source: str, edits: Edits, driver: str) -> str:
    """Why these edits bring in no library of this driver; "" when they do."""
    matches = [_LIBRARY.fullmatch(str(mount.get("containerPath", ""))) for mount in _listed(edits, _MOUNTS)]
    versions = {match.group(1) or "" for match in matches if match}
    if not versions:
        return f"{source} brings in no libcuda.so: was the driver installed when it was written? Run {GENERATE}"
    told = {version for version in versions if _DRIVER_VERSION.fullmatch(version)}
    if _DRIVER_VERSION.fullmatch(driver) and told and driver not in told:
        return f"{source} is of driver {', '.join(sorted(told))}, the driver is {driver} now; run {GENERATE}"
    return ""


def _device(source: str, wire: Mapping[str, object], version: tuple[int, int, int]) -> NvidiaDevice:
    edits = _edits(source, wire, version)
    return NvidiaDevice(str(wire.get("name", "")), frozenset(_minors(edits)), edits)


def _edits(source: str, wire: Mapping[str, object], version: tuple[int, int, int]) -> Edits:
    edits = from_wire(_object(source, wire.get("containerEdits", {})), version)
    for key in (_NODES, _MOUNTS):
        for item in edits.lists.get(key, ()):
            _object(source, item)
    return edits


def _minors(edits: Edits) -> set[int]:
    paths = (str(node.get("hostPath") or node.get("path", "")) for node in _listed(edits, _NODES))
    return {int(match.group(1)) for path in paths if (match := _CARD_NODE.fullmatch(path))}


def _listed(edits: Edits, key: str) -> list[Mapping[str, object]]:
    return [item for item in edits.lists.get(key, ()) if isinstance(item, dict)]


def _parsed(source: str, text: str) -> object:
    # JSON first: YAML has no tabs between tokens.
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        documents = plainyaml.parse(text)
    except plainyaml.DocumentError as error:
        raise CdiError(f"{source}: {error}") from error
    return documents[0] if documents else {}


def _object(source: str, value: object) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    raise CdiError(f"{source}: expected an object, found {str(value)[:64]!r}")
