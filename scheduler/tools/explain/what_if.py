"""How many copies of a pod would fit now, where, and why one more does not."""

from collections.abc import Callable, Generator
from functools import partial

from msgspec.structs import replace

from scheduler.kube.port import PodKey
from scheduler.pods.pod import Pod
from scheduler.state.packing.fragmentation import measured
from scheduler.state.tables import Tables
from scheduler.tools.explain.answers import Explanation, FreeMemory, NodeAndCards, WhatIfAnswer
from scheduler.tools.explain.explanation import MOST_NODES
from scheduler.tools.explain.pod_summary import asks, judged, place_of
from scheduler.tools.explain.reading import ClusterSnapshot

MOST_REPLICAS = 10_000


def what_if(
    reading: ClusterSnapshot,
    pod: Pod,
    replicas: int,
    words: tuple[str, ...] = (),
    *,
    most: int = MOST_NODES,
    tries: bool = True,
    measures: bool = False,
) -> Generator[None, None, WhatIfAnswer]:
    """Place copies one at a time, next to the pods that have a node; waiting pods are ignored.

    The copies exist until the last step; a caller that shares the tables runs all steps at once.
    replicas: 1 to MOST_REPLICAS. most, tries: as in `judged`, for the copy that does not fit. measures: whether to
    measure the remaining memory, which takes tens of milliseconds on a large cluster.
    """
    places: list[NodeAndCards] = []
    stops: Explanation | None = None
    left: Callable[[], FreeMemory | None] = partial(_left, reading.engine.tables) if measures else _not_measured
    before = left()
    with reading.engine.queries.placing() as placing:
        for number in range(replicas):
            copy = replace(pod, key=PodKey(pod.key.namespace, f"{pod.key.name}-{number}", f"what-if-{number}"))
            place = place_of(placing.attempt(copy))
            if place is None:
                stops = yield from judged(reading, copy, (), state="waits", most=most, tries=tries)
                break
            places.append(place)
        after = left()
    return WhatIfAnswer(
        pod=str(pod.key),
        words=(*words, asks(pod, reading.unit_mib)),
        replicas=replicas,
        fit=len(places),
        places=tuple(places),
        waiting=sum(reading.engine.queue.lengths().values()),
        next=stops,
        before=before,
        after=after,
    )


def _left(tables: Tables) -> FreeMemory:
    free, unusable = measured(tables, tables.target.usual()).total()
    return FreeMemory(free=round(free), fragmented=round(unusable))


def _not_measured() -> None:
    return None
