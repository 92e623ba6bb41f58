"""Container images of the nodes: for each image name, the rows that have it and its size.

A node has a few hundred image names, and pods request only a few of them. A pair of name and node costs 4 bytes; a name
costs one entry. Many nodes report the same images, so equal lists share one object. If nodes report different sizes for
one name, the first one counts as long as some node has the name.
Source of that rule: kube-scheduler, backend/cache/cache.go, addNodeImageStates.
"""

from array import array
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from scheduler.kube.objects import ContainerImage, Node
from scheduler.state.columns.arrays import RowArray

MOST_NAMES: Final = 512
"""Names per node: a kubelet reports the 50 largest images, with at most 5 names each."""
# No image is larger, so sums over a pod's containers cannot overflow.
_LARGEST_BYTES: Final = 2**45
# Enough for 5,000 nodes with ten images of their own each; beyond this the table starts over.
_MOST_KNOWN: Final = 65_536
# Maximum characters of an image name or feature. Longer ones are not shared: only their node stores them.
_LONGEST_KNOWN: Final = 1024


class Images:
    """Images by name; a name that no node has costs nothing."""

    def __init__(self) -> None:
        self._of_row: dict[int, tuple[ContainerImage, ...]] = {}
        self._holders: dict[str, _Holders] = {}
        self._known: dict[Any, Any] = {}

    def shared(self, node: Node) -> Node:
        """The node, sharing equal images and declared features with other nodes."""
        status = node.status
        if not status.images and not status.declared_features:
            return node
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        known = self._known.setdefault
        # If a node reports more, the others are ignored, and not shared.
        first, others = status.images[:MOST_NAMES], status.images[MOST_NAMES:]
        images = (*(known(image, image) if _is_short(image.names) else image for image in first), *others)
        features = status.declared_features
        if _is_short(features):
            features = known(features, features)
        return replace(node, status=replace(status, images=images, declared_features=features))

    def set_row(self, row: int, images: tuple[ContainerImage, ...]) -> None:
        """Replace the images of `row`; empty for a row that is released."""
        old = self._of_row.get(row, ())
        if old == images:
            return
        before, after = _sizes(old), _sizes(images)
        for name in before.keys() - after.keys():
            holders = self._holders[name]
            holders.remove(row)
            if not holders.rows:
                del self._holders[name]
        for name, size in after.items():
            holders = self._holders.setdefault(name, _Holders(size))
            if name not in before:
                holders.rows.append(row)
            elif len(holders.rows) == 1:
                holders.size = size
        if images:
            self._of_row[row] = images
        else:
            self._of_row.pop(row, None)

    def count_and_size(self, name: str) -> tuple[int, int]:
        """Number of nodes that have the image, and its size in bytes."""
        holders = self._holders.get(name)
        return (0, 0) if holders is None else (len(holders.rows), holders.size)

    def rows_with(self, name: str) -> RowArray:
        """intp[holders]: the rows that have the image, each once, in any order."""
        holders = self._holders.get(name)
        return np.array(() if holders is None else holders.rows, dtype=np.intp)


class _Holders:
    """Nodes with images of one name. rows: in any order. size: bytes, as the first of them reported it."""

    __slots__ = ("rows", "size")

    def __init__(self, size: int) -> None:
        self.rows = array("i")
        self.size = size

    def remove(self, row: int) -> None:
        # `array.index` would create a Python number for every entry.
        place = int((np.frombuffer(self.rows, dtype=np.int32) == row).argmax())
        last = self.rows.pop()
        if place < len(self.rows):
            self.rows[place] = last


def _is_short(texts: tuple[str, ...] | None) -> bool:
    return texts is None or sum(map(len, texts)) <= _LONGEST_KNOWN


def _sizes(images: Iterable[ContainerImage]) -> dict[str, int]:
    """Name -> bytes, for the first names; of a duplicate name, the first counts."""
    sizes: dict[str, int] = {}
    for image in images:
        for name in image.names or ():
            if len(sizes) == MOST_NAMES:
                return sizes
            sizes.setdefault(name, min(max(0, image.size_bytes), _LARGEST_BYTES))
    return sizes
