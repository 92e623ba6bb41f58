"""Which container images the nodes have: per name the rows, and its size.

A node has some hundred names of images, and pods ask for few of all these: a pair of name and node costs 4 bytes, and a
name one entry. Nodes report the same images: those that read alike are one object.
Where nodes report several sizes under one name, that of the first counts, for as long as some node has the name.
Source of that: kube-scheduler, backend/cache/cache.go, addNodeImageStates.
"""

from array import array
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from scheduler.kube.objects import ContainerImage, Node
from scheduler.state.columns.arrays import RowArray

MOST_NAMES: Final = 512
"""Of the images of a node: a kubelet reports 50 images, the largest, with at most 5 names each."""
# No image is larger: sums over the containers of a pod never wrap.
_LARGEST_BYTES: Final = 2**45
# Images of 5,000 nodes that have ten of their own each; beyond that the table starts over.
_MOST_KNOWN: Final = 65_536
# Characters of an image name or feature. Longer ones are not shared: only their node keeps them.
_LONGEST_KNOWN: Final = 1024


class Images:
    """Names that no node has cost nothing."""

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
        """Replace the images of `row`; none for a row that leaves."""
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
        """How many nodes have it, and how many bytes it has."""
        holders = self._holders.get(name)
        return (0, 0) if holders is None else (len(holders.rows), holders.size)

    def rows_with(self, name: str) -> RowArray:
        """intp[holders]: the rows that have the image, each once, in any order."""
        holders = self._holders.get(name)
        return np.array(() if holders is None else holders.rows, dtype=np.intp)


class _Holders:
    """rows: rows that have an image of one name, in any order. size: in bytes, as the first of them reported."""

    __slots__ = ("rows", "size")

    def __init__(self, size: int) -> None:
        self.rows = array("i")
        self.size = size

    def remove(self, row: int) -> None:
        # `array.index` would make a number of every entry.
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
