"""ImageLocality: prefers nodes that already have the pod's container images.

Source: kube-scheduler, plugins/imagelocality/image_locality.go.
"""

from collections import Counter
from collections.abc import Hashable
from typing import ClassVar, Final

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import POINT, ScorePlugin
from scheduler.pods.pod import Pod, Template
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, Rows
from scheduler.state.columns.row_masks import count_of
from scheduler.state.tables import Tables

_MIB: Final = 2**20
# Small images together are not worth a point; a large image gives its user the full share.
LEAST_BYTES: Final = 23 * _MIB
MOST_BYTES_PER_IMAGE: Final = 1000 * _MIB
_FULL: Final = 100


class ImageLocality(ScorePlugin):
    """Prefers nodes that already have the images of the pod's containers and image volumes.

    Each image counts with its size times the share of all nodes that have it. So an image on few nodes counts less, and
    not all pods go there. The sum is 0 points up to 23 MiB, and 100 points from 1000 MiB for each container and image
    volume of the pod. A name without tag or digest stands for `:latest`; names are compared as written. On each node,
    only the first 512 names count.
    Source: kube-scheduler, plugins/imagelocality/image_locality.go.
    """

    name: ClassVar[str] = "ImageLocality"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.IMAGES

    def scores(self, pod: Pod) -> bool:
        """Score pods with containers, which is every pod that the API server accepted."""
        return bool(pod.template.images)

    def cache_key(self, pod: Pod, tables: Tables) -> Hashable:
        """Return the number of nodes, and how many have each image; None if no node has any: every score is 0."""
        found = [tables.images.count_and_size(name) for name in _wanted(pod.template)]
        return (len(tables.row_of), *found) if any(count for count, _ in found) else None

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:  # noqa: ARG002
        """Return int64[rows]: 0..MAX_SCORE."""
        template, images, nodes = pod.template, tables.images, len(tables.row_of)
        found = [(name, times, *images.count_and_size(name)) for name, times in Counter(_wanted(template)).items()]
        if not any(count for _, _, count, _ in found):
            return np.zeros(count_of(rows, tables.capacity), dtype=np.int64)
        size: Int64Array = np.zeros(tables.capacity, dtype=np.int64)
        for name, times, count, of_one in found:
            size[images.rows_with(name)] += times * int(of_one * (count / nodes))
        most = MOST_BYTES_PER_IMAGE * len(_wanted(template))
        points: Int64Array = (np.clip(size, LEAST_BYTES, most) - LEAST_BYTES) * _FULL // (most - LEAST_BYTES)
        return points[rows] * POINT


def _wanted(template: Template) -> tuple[str, ...]:
    return (*template.images, *template.volume_images)
