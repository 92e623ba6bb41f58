"""How many copies of a pod would fit now, where, and what stops the next."""

from collections.abc import Generator

from msgspec.structs import replace

from scheduler.explain.answers import Explanation, Place, WhatIf
from scheduler.explain.explanation import MOST_NODES
from scheduler.explain.reading import Reading
from scheduler.explain.standing import asks, judged, place_of
from scheduler.kube.port import PodKey
from scheduler.pods.pod import Pod

MOST_REPLICAS = 10_000


def what_if(
    reading: Reading,
    pod: Pod,
    replicas: int,
    words: tuple[str, ...] = (),
    *,
    most: int = MOST_NODES,
    tries: bool = True,
) -> Generator[None, None, WhatIf]:
    """Place copies one after the other, beside the pods that have a node; those that wait are left aside.

    The copies are there until the last step; whoever shares the tables takes all steps at once.
    replicas: 1 to MOST_REPLICAS. most, tries: as `judged`, of the copy that does not fit.
    """
    places: list[Place] = []
    stops: Explanation | None = None
    with reading.engine.questions.placing() as placing:
        for number in range(replicas):
            copy = replace(pod, key=PodKey(pod.key.namespace, f"{pod.key.name}-{number}", f"what-if-{number}"))
            place = place_of(placing.attempt(copy))
            if place is None:
                stops = yield from judged(reading, copy, (), state="waits", most=most, tries=tries)
                break
            places.append(place)
    return WhatIf(
        pod=str(pod.key),
        words=(*words, asks(pod, reading.unit_mib)),
        replicas=replicas,
        fit=len(places),
        places=tuple(places),
        waiting=sum(reading.engine.queue.lengths().values()),
        next=stops,
    )
