"""How many copies of a pod would fit now, where, and what stops the next."""

from msgspec.structs import replace

from scheduler.explain.answers import Explanation, Place, WhatIf
from scheduler.explain.reading import Reading
from scheduler.explain.standing import asks, judged
from scheduler.kube.port import PodKey
from scheduler.pods.pod import Pod
from scheduler.scheduling_cycle import Placement

MOST_REPLICAS = 10_000


def what_if(reading: Reading, pod: Pod, replicas: int, words: tuple[str, ...] = ()) -> WhatIf:
    """Place copies one after the other, beside the pods that have a node; those that wait are left aside.

    replicas: 1 to MOST_REPLICAS.
    """
    engine = reading.engine
    places: list[Place] = []
    stops: Explanation | None = None
    for number in range(replicas):
        copy = replace(pod, key=PodKey(pod.key.namespace, f"{pod.key.name}-{number}", f"what-if-{number}"))
        outcome = engine.attempt(copy, 0)
        if not isinstance(outcome, Placement):
            stops = judged(reading, copy, (), state="waits")
            break
        places.append(Place(node=outcome.node, cards={share.index: share.units for share in outcome.cards}))
    return WhatIf(
        pod=str(pod.key),
        words=(*words, asks(pod, reading.unit_mib)),
        replicas=replicas,
        fit=len(places),
        places=tuple(places),
        waiting=sum(engine.queue.lengths().values()),
        next=stops,
    )
