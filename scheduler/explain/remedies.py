"""What would make room on one node. The engine is asked after each step: what is said here was tried."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from config.protocol import names
from scheduler.engine import Engine
from scheduler.explain.answers import ExplainedCard, Objecting, listed
from scheduler.pods.pod import Pod
from scheduler.state.pod_record import PodRecord

# With more pods than this on a node, no single one is tried.
_MOST_TRIED = 256
_MOST_NAMED = 3


def remedy(
    engine: Engine, pod: Pod, node: str, rules: Sequence[Objecting], cards: Sequence[ExplainedCard]
) -> tuple[tuple[str, ...], str]:
    """(the pods that would have to go, for the node to take the pod; what would make room, in a sentence)."""
    leaving = leaving_pods(engine, pod, node)
    if leaving:
        text = f"fits once {listed(leaving, _MOST_NAMED)} {'is' if len(leaving) == 1 else 'are'} gone"
        return leaving, text
    return (), "; ".join(_by_hand(node, rules, cards)) or "no pod that leaves would make room"


def leaving_pods(engine: Engine, pod: Pod, node: str) -> tuple[str, ...]:
    """The pods of the node without which it takes the pod: the smallest one, else as few as reprieving leaves.

    Empty where even the empty node does not take it.
    """
    # Of what `what-if` has assumed nothing can leave.
    records = sorted((one for one in engine.tables.records_on(node) if not one.assumed), key=_cost)
    with _without(engine, records):
        if not engine.fits(pod, node):
            return ()
    for record in records[:_MOST_TRIED]:
        with _without(engine, [record]):
            if engine.fits(pod, node):
                return (str(record.pod.key),)
    return _reprieved(engine, pod, node, records)


def _reprieved(engine: Engine, pod: Pod, node: str, records: list[PodRecord]) -> tuple[str, ...]:
    """All leave; each comes back that may, the costliest first. kube-scheduler's selectVictimsOnNode."""
    gone = []
    with _without(engine, records) as back:
        for record in reversed(records):
            back(record)
            if not engine.fits(pod, node):
                engine.pod_gone(record.pod.key.uid)
                gone.append(str(record.pod.key))
    return tuple(sorted(gone))


@contextmanager
def _without(engine: Engine, records: Sequence[PodRecord]) -> Iterator["_Back"]:
    """Those pods are not there meanwhile."""
    for record in records:
        engine.pod_gone(record.pod.key.uid)
    back = _Back(engine)
    try:
        yield back
    finally:
        for record in records:
            if engine.tables.record(record.pod.key.uid) is None:
                back(record)


class _Back:
    """Puts a pod back where it was."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, record: PodRecord) -> None:
        self._engine.pod_assigned(record.pod)


def _cost(record: PodRecord) -> tuple[int, int, str]:
    """Of low priority first, then those that hold little."""
    return (record.pod.priority, record.written.units, str(record.pod.key))


def _by_hand(node: str, rules: Sequence[Objecting], cards: Sequence[ExplainedCard]) -> Iterator[str]:
    if any(objecting.rule == "NodeUnschedulable" for objecting in rules):
        yield f"kubectl uncordon {node}"
    states = {card.health.partition(" (")[0] for card in cards if card.why}
    if "cordoned" in states:
        yield f"lift the cordon of its cards: kubectl annotate node {node} {names.CORDON}-"
    if "listed" in states:
        yield f"take its cards out of ConfigMap {names.UNHEALTHY_NAMESPACE}/{names.UNHEALTHY_PREFIX}{node}"
    if "unhealthy" in states or "suspect" in states:
        yield f"its cards have to be healthy again: docs/node.md, and kubectl describe node {node}"
