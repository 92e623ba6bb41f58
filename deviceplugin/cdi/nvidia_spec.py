"""NVIDIA's own CDI specs: what a container needs for a card, according to the toolkit. Pure.

A card is looked up by its UUID, which is the device's name. If a spec does not name the card (the management spec's
only device is `all`), single device nodes are taken from its devices: the node with the card's current minor, and the
control nodes. They are taken unchanged: with a driver in a container, they are elsewhere on the host. Other edits of a
device with another name are never taken, whatever its nodes are: indexes and minors may belong to another card after a
reboot or the loss of a card. The hook that limits a card's memory is the exception, because it names the card's UUID.
Only the numbers of a node are dropped: the runtime then reads them from the host's node when the container starts.
nvidia-uvm may get another major at each boot.

A MIG instance needs its parent's node and two nodes of /dev/nvidia-caps, which alone tell it from the parent's other
instances. So exactly these two are taken. Specs that were written before the instance do not name it; then the two are
added by path, next to the parent's node.

A spec is not used if it lacks the driver library or a control node, or has a node that the host lacks: its containers
would not start, or cuInit would fail in them. Another spec is used instead, whatever its priority.

Source: NVIDIA Container Toolkit, `nvidia-ctk cdi generate` (device names are indexes, UUIDs, or `all`).
"""

import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import msgspec

from config.settings import plainyaml
from deviceplugin.cdi import limit_hooks
from deviceplugin.cdi.edits import Edits, combined, from_wire
from deviceplugin.cdi.spec import CdiError
from deviceplugin.driver.cards import DriverCard

# Of the toolkit; of NVIDIA's device plugin; of the NVIDIA runtime; and the one that the GPU Operator creates for its
# own containers, whose only device is `all`.
KINDS: Final = (
    "nvidia.com/gpu",
    "k8s.device-plugin.nvidia.com/gpu",
    "runtime.nvidia.com/gpu",
    "management.nvidia.com/gpu",
)
# Text without it is not one of these kinds; skipping it saves the parsing.
MARK: Final = b"nvidia.com/gpu"
# The first is a service of the toolkit since 1.18, which writes the same file (deployments/systemd of its source).
GENERATE: Final = (
    "systemctl restart nvidia-cdi-refresh.service, or nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
)

_MOST_REASONS: Final = 5
_NODES: Final = "deviceNodes"
_GROUPS: Final = "additionalGids"
_MOUNTS: Final = "mounts"
# Without the first two, cuInit returns 100 (no device) or 999 (unknown).
_NEEDED_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm")
_CONTROL_NODES: Final = (*_NEEDED_NODES, "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_NUMBERS: Final = ("major", "minor")
_CARD_NODE: Final = re.compile(r"(?:.*/)?nvidia(\d{1,9})", re.ASCII)
_CAPS_NODE: Final = re.compile(r"/dev/nvidia-caps/nvidia-cap\d{1,9}", re.ASCII)
_MIG_MINORS: Final = "/proc/driver/nvidia-caps/mig-minors"
_SPEC_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})", re.ASCII)
_LIBRARY: Final = re.compile(r"(?:.*/)?libcuda\.so(?:\.(.*))?", re.ASCII)
_DRIVER_VERSION: Final = re.compile(r"\d{3,4}\.\d{1,4}(?:\.\d{1,4})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class NvidiaDevice:
    """A device of a spec. minors: minors of the card nodes (/dev/nvidia<minor>) that its own edits inject."""

    name: str
    minors: frozenset[int]
    edits: Edits


@dataclass(frozen=True, slots=True)
class NvidiaSpec:
    """A spec of one of KINDS. edits: shared by all of its devices. source: its file."""

    source: str
    edits: Edits
    devices: tuple[NvidiaDevice, ...]


def nvidia_spec(source: str, text: str) -> NvidiaSpec | None:
    """Return the spec in `text` (JSON or YAML); None if it is of another kind. Raises CdiError if it cannot be read.

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


def _nothing(_: str) -> bool:
    return False


def _unknown(_: DriverCard) -> tuple[str, ...]:
    return ()


# Tells whether the host is known to lack a device node, by its path there.
Lacks: TypeAlias = Callable[[str], bool]
# Returns the paths of the two nodes in /dev/nvidia-caps of a MIG instance; none if they are unknown.
Caps: TypeAlias = Callable[[DriverCard], Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Host:
    driver: str
    lacks: Lacks
    caps: Caps = _unknown


def real_cards(
    cards: Sequence[DriverCard],
    specs: Sequence[NvidiaSpec],
    *,
    driver: str = "",
    lacks: Lacks = _nothing,
    caps: Caps = _unknown,
) -> Edits:
    """Return edits that inject exactly these cards into a container, with the driver's libraries.

    cards: as the driver names them now. specs: by priority, the highest last. driver: its version, "" if unknown.
    Raises CdiError with the reasons.
    """
    host = _Host(driver, lacks, caps)
    return combined(part for card in cards for part in _of_card(card, specs, host))


def uncovered(
    cards: Sequence[DriverCard],
    specs: Sequence[NvidiaSpec],
    *,
    driver: str = "",
    lacks: Lacks = _nothing,
    caps: Caps = _unknown,
) -> dict[str, str]:
    """Return UUID -> why the specs do not inject the card into a container, for the cards that they do not cover."""
    reasons, host = {}, _Host(driver, lacks, caps)
    for card in cards:
        try:
            _of_card(card, specs, host)
        except CdiError as error:
            reasons[card.uuid] = str(error)
    return reasons


def hookless(
    cards: Sequence[DriverCard], specs: Sequence[NvidiaSpec], *, driver: str = "", lacks: Lacks = _nothing
) -> frozenset[str]:
    """Return the UUIDs of the cards that the specs inject without the hook that limits their memory."""
    found, host = [], _Host(driver, lacks)
    for card in cards:
        with contextlib.suppress(CdiError):
            if card.uuid not in limit_hooks.limited(combined(_of_card(card, specs, host))):
                found.append(card.uuid)
    return frozenset(found)


def _of_card(card: DriverCard, specs: Sequence[NvidiaSpec], host: _Host) -> list[Edits]:
    """Return the edits from the best spec that names the card, else from the best spec that does not."""
    if card.parent and not host.caps(card):
        raise CdiError(f"card {card.uuid} cannot be injected into containers: {_MIG_MINORS} does not list its nodes")
    reasons = []
    by_priority = list(reversed(specs))
    for take in (_named, _unnamed):
        for spec in by_priority:
            parts = take(card, spec, host)
            if isinstance(parts, list) and not (reason := _without_cuda(spec.source, combined(parts), host)):
                return parts
            reasons.append(parts if isinstance(parts, str) else reason)
    raise CdiError(f"card {card.uuid} cannot be injected into containers: {_told(reasons)}; run {GENERATE}")


def _told(reasons: Collection[str]) -> str:
    told = list(dict.fromkeys(filter(None, reasons))) or [f"there is no CDI spec of kind {KINDS[0]}"]
    more = [f"and {len(told) - _MOST_REASONS} more"] if len(told) > _MOST_REASONS else []
    return "; ".join(told[:_MOST_REASONS] + more)


def _named(card: DriverCard, spec: NvidiaSpec, host: _Host) -> list[Edits] | str:
    """Return the edits of the device with the card's UUID; "" if there is none, or why it would inject another card.

    That happens if the spec was written before cards were renumbered.
    """
    named = [device for device in spec.devices if device.name == card.uuid]
    if named and (_minors(spec.edits) - {card.minor} or (card.parent and _caps_in(spec.edits))):
        return f"{spec.source} also injects another card into every container"
    for device in named:
        if card.minor is not None and device.minors == {card.minor} and _has_own_caps(card, device, host):
            return [spec.edits, device.edits, _limiting(card, spec)]
    if named and card.parent:
        return f"{spec.source} is out of date: {card.uuid} now has other device nodes"
    if named:
        now = "without a device node" if card.minor is None else f"/dev/nvidia{card.minor}"
        return f"{spec.source} is out of date: the card is now {now}"
    return ""


def _has_own_caps(card: DriverCard, device: NvidiaDevice, host: _Host) -> bool:
    """Return whether the device injects the two nodes of its MIG instance, and no other. A whole card needs none."""
    return not card.parent or _caps_in(device.edits) == set(host.caps(card))


def _unnamed(card: DriverCard, spec: NvidiaSpec, host: _Host) -> list[Edits] | str:
    """Return the spec's shared edits, the card's nodes and the control nodes; or why it cannot inject the card."""
    if any(device.name == card.uuid for device in spec.devices):
        return ""
    if _minors(spec.edits) or (card.parent and _caps_in(spec.edits)):
        return f"{spec.source} injects a card into every container without naming it"
    nodes = [(device, node) for device in spec.devices for node in _listed(device.edits, _NODES)]
    own = [(device, node) for device, node in nodes if card.minor is not None and _minor(node) == card.minor]
    if not own:
        expected = "/dev/nvidia<n>" if card.minor is None else f"/dev/nvidia{card.minor}"
        return f"{spec.source} has no device node for the card; expected {expected}"
    parts = [(own[0][0], _beside(own[0][1], path)) for path in host.caps(card)]
    taken = [*((device, node) for device, node in nodes if node.get("path") in _CONTROL_NODES), own[0], *parts]
    # Without these groups, programs of non-root users may be unable to open restricted nodes.
    groups = [group for device, _ in taken for group in device.edits.lists.get(_GROUPS, ())]
    nodes_and_groups = Edits(lists={_NODES: [node for _, node in taken], _GROUPS: groups})
    return [spec.edits, combined([nodes_and_groups]), _limiting(card, spec)]


def _limiting(card: DriverCard, spec: NvidiaSpec) -> Edits:
    """Return the hook that limits the card's memory, from whichever device: the hook names the card by its UUID."""
    return limit_hooks.of_card(card.uuid, [spec.edits, *(device.edits for device in spec.devices)])


def _beside(card_node: Mapping[str, object], path: str) -> Mapping[str, object]:
    """Return a node like the card's at another path: a driver in a container has both below the same folder."""
    folder = _on_host(card_node).removesuffix(str(card_node.get("path", "")))
    return {**card_node, "path": path, "hostPath": f"{folder}{path}"}


def _without_cuda(source: str, edits: Edits, host: _Host) -> str:
    """Return why CUDA would not start in a container with these edits; "" if it would."""
    matches = [_LIBRARY.fullmatch(str(mount.get("containerPath", ""))) for mount in _listed(edits, _MOUNTS)]
    versions = {match.group(1) or "" for match in matches if match}
    if not versions:
        return f"{source} does not inject libcuda.so: was the driver installed when the spec was written?"
    told = {version for version in versions if _DRIVER_VERSION.fullmatch(version)}
    if _DRIVER_VERSION.fullmatch(host.driver) and told and host.driver not in told:
        return f"{source} was written for driver {', '.join(sorted(told))}; the driver is now {host.driver}"
    nodes = {str(node.get("path", "")): node for node in _listed(edits, _NODES)}
    if gone := [path for path in map(_on_host, nodes.values()) if host.lacks(path)]:
        return f"{source} names device nodes that do not exist: {', '.join(gone)}"
    missing = [path for path in _NEEDED_NODES if path not in nodes]
    # A library without a driver version belongs to a board whose driver may have other nodes, such as Jetson.
    if told and missing:
        return f"{source} does not inject {' or '.join(missing)}: run nvidia-modprobe -u -c=0"
    return ""


def _device(source: str, wire: Mapping[str, object], version: tuple[int, int, int]) -> NvidiaDevice:
    edits = _edits(source, wire, version)
    return NvidiaDevice(str(wire.get("name", "")), frozenset(_minors(edits)), edits)


def _edits(source: str, wire: Mapping[str, object], version: tuple[int, int, int]) -> Edits:
    edits = from_wire(_object(source, wire.get("containerEdits", {})), version)
    for key in (_NODES, _MOUNTS):
        for item in edits.lists.get(key, ()):
            _object(source, item)
    nodes = [{key: value for key, value in node.items() if key not in _NUMBERS} for node in _listed(edits, _NODES)]
    return replace(edits, lists={**edits.lists, _NODES: nodes}) if nodes else edits


def _minors(edits: Edits) -> set[int]:
    return {minor for node in _listed(edits, _NODES) if (minor := _minor(node)) is not None}


def _caps_in(edits: Edits) -> set[str]:
    """Return the nodes of /dev/nvidia-caps among the edits, by their paths in the container."""
    paths = (str(node.get("path", "")) for node in _listed(edits, _NODES))
    return {path for path in paths if _CAPS_NODE.fullmatch(path)}


def _minor(node: Mapping[str, object]) -> int | None:
    """Return the card's minor if this is the device node of a card; None for every other node."""
    match = _CARD_NODE.fullmatch(_on_host(node))
    return int(match.group(1)) if match else None


def _on_host(node: Mapping[str, object]) -> str:
    """Return the path of the node on the host."""
    return str(node.get("hostPath") or node.get("path", ""))


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
