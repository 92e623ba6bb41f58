"""What goes, what stays and why, given what is there. Pure.

    the node object   ours, once no unit is allocatable; gpu-mem, once the kubelet has forgotten the plugin's devices
    files             ours; while live pods hold cards the CDI specs of their containers and the state directory stay
    last              the lock and the state directory, when nothing waits: the lock keeps a new plugin away till then

What is somebody else's stays whatever happens: labels and cordons of operators, files that the plugin does not write.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from config.protocol import names
from deviceplugin.uninstall.facts import Installed, NodeObject, StateDirectory
from scheduler.process.terminal import typed

# The first two are the plugin's; the others are orders to it, which it takes away when it has obeyed.
_ANNOTATIONS: Final = (names.INVENTORY, names.HELD_UNTIL, names.CLEAR_HEALTH, names.RELEASE)
_OF_OPERATORS: Final = (names.CORDON, names.MAX_SHARERS)
_OFFERS: Final = "the kubelet has not noticed yet that the plugin has ended, or another plugin serves them"
_FORGETS: Final = "the kubelet forgets the plugin's devices 5 minutes after its end"


class RemovalKind(StrEnum):
    """Each is removed in its own way. MODES: a file; the compute modes in it are given back to their cards first."""

    RESOURCE = "resource"
    ANNOTATION = "annotation"
    MODES = "modes"
    FILE = "file"
    TREE = "tree"
    FOLDER = "folder"  # an empty directory


class Until(StrEnum):
    """What something stays for."""

    PODS = "pods"  # those that hold cards have ended
    KUBELET = "kubelet"  # it has noticed
    ANSWER = "answer"  # it is known which pods there are
    EVER = "ever"  # it is not the plugin's


@dataclass(frozen=True, slots=True)
class Removal:
    """name: a path, or a key on the node object."""

    kind: RemovalKind
    name: str

    def __str__(self) -> str:
        """For people."""
        return f"{self.kind} {self.name}" if self.kind in {RemovalKind.RESOURCE, RemovalKind.ANNOTATION} else self.name


@dataclass(frozen=True, slots=True)
class Stay:
    """why: for people."""

    what: str
    until: Until
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """remove: in this order. last: once all of `remove` is gone."""

    remove: tuple[Removal, ...] = ()
    last: tuple[Removal, ...] = ()
    stays: tuple[Stay, ...] = ()

    @property
    def waits(self) -> tuple[Stay, ...]:
        """What of the plugin stays for now."""
        return tuple(one for one in self.stays if one.until is not Until.EVER)


_Part: TypeAlias = Removal | Stay


def plan(facts: Installed, *, force: bool) -> Plan:
    """force: as if no live pod held cards."""
    needed = None if force else _needed(facts)
    parts = [*_of_node(facts), *_beside_the_state(facts, needed), *_of_the_state(facts, needed)]
    found = Plan(
        remove=tuple(one for one in parts if isinstance(one, Removal)),
        stays=tuple(one for one in parts if isinstance(one, Stay)),
    )
    return found if found.waits else Plan(found.remove, tuple(_last(facts)), found.stays)


def _needed(facts: Installed) -> tuple[Until, str] | None:
    """Why files of containers stay; None when nobody needs them."""
    if facts.unknown:
        return Until.ANSWER, f"it is not known which pods hold cards: {facts.unknown}"
    if facts.holders.pods:
        return Until.PODS, facts.holders.told
    return None


def _of_node(facts: Installed) -> Iterator[_Part]:
    node, of = facts.node, facts.resources
    if node is None:
        if facts.unknown:
            yield Stay(f"node {facts.node_name}", Until.ANSWER, facts.unknown)
        return
    ours = [Removal(RemovalKind.RESOURCE, one) for one in (of.gpu_count, of.gpu_core) if one in _listed(node)]
    ours += [Removal(RemovalKind.ANNOTATION, key) for key in _ANNOTATIONS if key in node.annotations]
    if units := node.allocatable.get(of.gpu_mem, 0):
        # Without an inventory these units would be equal cards to the scheduler: docs/protocol.md, "Inventory".
        why = f"{units} {of.gpu_mem} are allocatable: {_OFFERS}"
        yield from (Stay(str(one), Until.KUBELET, why) for one in ours)
    else:
        yield from ours
    if of.gpu_mem in _listed(node):
        gpu_mem = Removal(RemovalKind.RESOURCE, of.gpu_mem)
        # What it still lists it writes again, and what is not 0 yet it has not let go of.
        waits = facts.listed or node.capacity.get(of.gpu_mem, 0)
        yield Stay(str(gpu_mem), Until.KUBELET, _FORGETS) if waits else gpu_mem
    yield from _of_operators(facts.node_name, node)


def _listed(node: NodeObject) -> set[str]:
    return {*node.capacity, *node.allocatable}


def _of_operators(name: str, node: NodeObject) -> Iterator[Stay]:
    for key in _OF_OPERATORS:
        if key in node.annotations:
            yield Stay(
                f"annotation {key}",
                Until.EVER,
                f"an operator's: {typed('kubectl', 'annotate', 'node', name, f'{key}-')}",
            )
    label, selects = names.NODE_LABEL
    if node.labels.get(label) == selects:
        yield Stay(
            f"label {label}", Until.EVER, f"an operator's: {typed('kubectl', 'label', 'node', name, f'{label}-')}"
        )


def _beside_the_state(facts: Installed, needed: tuple[Until, str] | None) -> Iterator[_Part]:
    yield from (Removal(RemovalKind.FILE, path) for path in facts.sockets)
    devices = None if facts.unknown else facts.holders.devices
    for path, device in sorted(facts.specs.items()):
        if needed and (devices is None or device in devices):
            yield Stay(path, *needed)
        else:
            yield Removal(RemovalKind.FILE, path)
    for path in facts.mps:
        yield Stay(path, *needed) if needed else Removal(RemovalKind.TREE, path)


def _of_the_state(facts: Installed, needed: tuple[Until, str] | None) -> Iterator[_Part]:
    state = facts.state
    if needed and state.entries:
        yield Stay(state.path, *needed)
        return
    for name, is_directory in sorted(state.entries.items()):
        path = _in(state, name)
        if name not in state.ours:
            yield Stay(path, Until.EVER, "the plugin does not write it")
        elif path == facts.modes:
            yield Removal(RemovalKind.MODES, path)
        elif name != state.lock:
            yield Removal(RemovalKind.TREE if is_directory else RemovalKind.FILE, path)
    if state.mounted:
        yield Stay(
            state.path, Until.EVER, "a mount of this container, or a link: nothing of the plugin's is left in it"
        )


def _last(facts: Installed) -> Iterator[Removal]:
    state = facts.state
    if state.lock in state.entries:
        yield Removal(RemovalKind.FILE, _in(state, state.lock))
    if state.there and not state.mounted and set(state.entries) <= state.ours:
        yield Removal(RemovalKind.FOLDER, state.path)


def _in(state: StateDirectory, name: str) -> str:
    return f"{state.path.rstrip('/')}/{name}"
