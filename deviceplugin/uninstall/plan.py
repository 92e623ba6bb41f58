"""Items of the plugin on a node: which to remove, which to keep and why. Pure.

    node object   removed when no unit is allocatable; gpu-mem when the kubelet has forgotten the plugin's devices
    files         removed when no live pod holds cards
    last          the lock and the state directory, when nothing else waits: the lock keeps a new plugin away until then

Labels and cordons of operators, and files that the plugin does not write, stay and are listed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from config.protocol import names
from config.protocol.quantity import whole
from config.settings.scheduler import Resources
from deviceplugin.allocation.pods import MIRROR, NodePod
from deviceplugin.kubelet.checkpoint import CheckpointEntry, KubeletContainer
from scheduler.kube import objects
from scheduler.process.terminal import one_line, printable, some, typed

# The first two are the plugin's; the others are requests to it, which it removes once served.
_ANNOTATIONS: Final = (names.INVENTORY, names.HELD_UNTIL, names.CLEAR_HEALTH, names.RELEASE)
_OFFERS: Final = "the kubelet has not noticed yet that the plugin has stopped, or another plugin provides them"
_FORGETS: Final = "the kubelet drops the plugin's devices 5 minutes after the plugin stops"
POD_HOLDS: Final = "pods hold cards"
_MOST_NAMED: Final = 3


class ItemKind(StrEnum):
    """How an item is removed. MODES: a file of compute modes, which are restored to their cards first."""

    NAMED = "named"  # only listed
    UNREADABLE = "unreadable"  # only listed, and later rounds do not expect to read it
    RESOURCE = "resource"
    ANNOTATION = "annotation"
    MODES = "modes"
    FILE = "file"
    TREE = "tree"
    FOLDER = "folder"  # an empty directory


@dataclass(frozen=True, slots=True)
class Item:
    """A thing on the node. name: a path, or a key on the node object. stays: why it stays. theirs: not the plugin's."""

    kind: ItemKind
    name: str
    stays: str = ""
    theirs: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.kind in {ItemKind.RESOURCE, ItemKind.ANNOTATION} else self.name


@dataclass(frozen=True, slots=True)
class Found:
    """All items, in the order of removal. last: the lock and the state directory. pods: live pods that hold cards."""

    items: tuple[Item, ...] = ()
    last: tuple[Item, ...] = ()
    pods: tuple[str, ...] = ()

    @property
    def waits(self) -> list[Item]:
        """Items of the plugin that have to stay for now."""
        return [item for item in self.items if item.stays and not item.theirs]

    def problem(self, failed: Sequence[str]) -> str:
        """Return one line for the probe; "" if the node is clean. failed: why items could not be removed."""
        stay = [f"{item} stays: {item.stays}" for item in self.waits]
        if any(item.stays == POD_HOLDS for item in self.waits):
            return one_line(f"{POD_HOLDS}: {some(self.pods, _MOST_NAMED)}")
        return one_line([*failed, *stay, ""][0])

    def report(self, first: Iterable[str], end: str = "") -> str:
        """Return text for users: the lines of `first`, the items that stay with the reasons, then `end`."""
        lines = [*first, *(f"{item} stays: {item.stays}" for item in self.items if item.stays)]
        if self.pods:
            lines += ["Pods that hold cards:", *(f"  {pod}" for pod in self.pods)]
        return printable([*lines, *filter(None, [end])])


def node_items(node: objects.Node, of: Resources, *, registered: bool) -> Iterator[Item]:
    """Yield the node object's items. registered: the kubelet lists the plugin's devices. Raises QuantityError."""
    capacity, allocatable = node.status.capacity or {}, node.status.allocatable or {}
    annotations, listed = node.metadata.annotations or {}, {*capacity, *allocatable}
    # Without an inventory, the scheduler would see these units as equal cards: docs/develop/protocol.md, "Inventory".
    units = whole(str(allocatable.get(of.gpu_mem, 0)))
    offered = f"{units} {of.gpu_mem} are allocatable: {_OFFERS}" if units else ""
    yield from (Item(ItemKind.RESOURCE, one, offered) for one in (of.gpu_count, of.gpu_core) if one in listed)
    yield from (Item(ItemKind.ANNOTATION, key, offered) for key in _ANNOTATIONS if key in annotations)
    if of.gpu_mem in listed:
        # The kubelet restores a resource that it still lists, and has not released one that is not 0 yet.
        waits = registered or whole(str(capacity.get(of.gpu_mem, 0)))
        yield Item(ItemKind.RESOURCE, of.gpu_mem, _FORGETS if waits else "")
    label, selects = names.NODE_LABEL
    theirs: list[tuple[str, str, str]]
    theirs = [("annotation", "annotate", key) for key in (names.CORDON, names.MAX_SHARERS) if key in annotations]
    theirs += [("label", "label", label)] if (node.metadata.labels or {}).get(label) == selects else []
    for what, verb, key in theirs:
        undo = typed("kubectl", verb, "node", node.metadata.name, f"{key}-")
        yield Item(ItemKind.NAMED, f"{what} {key}", f"set by an operator; to remove it: {undo}", theirs=True)


def holders(
    pods: Sequence[NodePod], recorded: Sequence[CheckpointEntry], listed: Iterable[KubeletContainer] | None
) -> tuple[str, ...]:
    """Return names of live pods that hold cards, from the API server, and from the kubelet if that has others.

    pods: this node's, including finished ones. recorded: checkpoint entries of our resource, which include dead pods
    until the next allocation. listed: containers that the kubelet lists; None if it does not answer. A listed container
    is matched by its device IDs, because its name proves little: an old answer of the API server may have an earlier
    pod of the same StatefulSet.
    """
    found = {f"{pod.namespace}/{pod.name}" for pod in pods if not pod.finished and pod.asking()}
    strangers = unknown_to(pods, recorded)
    if listed is None:
        found |= {f"UID {uid}" for uid in strangers}
    known = {one.ids for one in recorded if one.pod_uid not in strangers}
    found |= {f"{one.namespace}/{one.pod}" for one in listed or () if one.ids and one.ids not in known}
    return tuple(sorted(found))


def unknown_to(pods: Iterable[NodePod], recorded: Iterable[CheckpointEntry]) -> frozenset[str]:
    """Return the checkpoint's UIDs that none of these pods has. A mirror pod has another UID in the checkpoint."""
    return frozenset(one.pod_uid for one in recorded) - {pod.annotations.get(MIRROR, pod.uid) for pod in pods}
