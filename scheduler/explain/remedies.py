"""What would make room on one node. The engine is asked after each step: what is said here was tried."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from config.protocol import names
from scheduler.engine import Engine
from scheduler.explain.answers import ExplainedCard, Objecting, listed
from scheduler.explain.reading import Reading, told_going
from scheduler.plugins.volume_binding import BIND_CONFLICT
from scheduler.pods.pod import Pod
from scheduler.state.pod_record import PodRecord

# With more pods than this on a node, no single one is tried.
_MOST_TRIED: Final = 256
_MOST_NAMED: Final = 3


def remedy(
    reading: Reading, pod: Pod, node: str, rules: Sequence[Objecting], cards: Sequence[ExplainedCard]
) -> tuple[tuple[str, ...], str]:
    """(the pods that would have to go, for the node to take the pod; what would make room, in a sentence)."""
    leaving = leaving_pods(reading.engine, pod, node)
    if leaving:
        return tuple(str(record.pod.key) for record in leaving), _fits_once(reading, leaving)
    return (), "; ".join(_by_hand(node, rules, cards)) or _nobody(reading.engine, pod, node)


def leaving_pods(engine: Engine, pod: Pod, node: str) -> list[PodRecord]:
    """The pods of the node without which it takes the pod.

    Of those that terminate, if that is enough; the smallest one, else as few as reprieving leaves. Empty where even the
    node without all of them does not take it.
    """
    records = sorted((one for one in engine.tables.records_on(node) if _may_leave(one, pod)), key=_cost)
    terminating = [record for record in records if record.pod.terminating]
    for those in (terminating, records):
        if found := _enough_of(engine, pod, node, those):
            return found
    return []


def _enough_of(engine: Engine, pod: Pod, node: str, records: list[PodRecord]) -> list[PodRecord]:
    """Of `records`, by cost, those that suffice."""
    if not records:
        return []
    with _without(engine, records):
        if not engine.fits(pod, node):
            return []
    for record in records[:_MOST_TRIED]:
        with _without(engine, [record]):
            if engine.fits(pod, node):
                return [record]
    return _reprieved(engine, pod, node, records)


def _reprieved(engine: Engine, pod: Pod, node: str, records: list[PodRecord]) -> list[PodRecord]:
    """All leave; each comes back that may, the costliest first. kube-scheduler's selectVictimsOnNode."""
    gone = []
    with _without(engine, records) as back:
        for record in reversed(records):
            back(record)
            if not engine.fits(pod, node):
                engine.pod_gone(record.pod.key.uid)
                gone.append(record)
    return sorted(gone, key=lambda record: str(record.pod.key))


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


def _may_leave(record: PodRecord, pod: Pod) -> bool:
    """Of what `what-if` has assumed, or what has no node yet, nothing can leave; a controller replaces its own pods."""
    if record.assumed or record.nominated:
        return False
    return record.pod.terminating or not pod.owner_uid or record.pod.owner_uid != pod.owner_uid


def _cost(record: PodRecord) -> tuple[bool, int, int, str]:
    """What is going anyway first; then of low priority, then those that hold little."""
    pod = record.pod
    return (not pod.terminating, pod.priority, record.written.units, str(pod.key))


def _fits_once(reading: Reading, leaving: Sequence[PodRecord]) -> str:
    one, going = len(leaving) == 1, tuple(reading.going(record.pod) for record in leaving if record.pod.terminating)
    named = listed([str(record.pod.key) for record in leaving], _MOST_NAMED)
    text = f"fits once {named} {'is' if one else 'are'} gone"
    if not going:
        return text
    told = told_going(going, _MOST_NAMED)
    if len(going) < len(leaving):
        return f"{text}, of which {told}"
    return f"{text}, which {told[told.index(' is ' if one else ' are ') + 1 :]}"


def _nobody(engine: Engine, pod: Pod, node: str) -> str:
    records = engine.tables.records_on(node)
    kept = sorted(str(record.pod.key) for record in records if record.nominated)
    if kept:
        are = "is" if len(kept) == 1 else "are"
        return f"room is kept there for {listed(kept, _MOST_NAMED)}, which {are} nominated to it"
    if any(record.pod.owner_uid == pod.owner_uid != "" for record in records):
        return "no pod that leaves would make room, but for pods of its own controller, which replaces them"
    return "no pod that leaves would make room"


def _by_hand(node: str, rules: Sequence[Objecting], cards: Sequence[ExplainedCard]) -> Iterator[str]:
    if any(objecting.rule == "NodeUnschedulable" for objecting in rules):
        yield f"kubectl uncordon {node}"
    for objecting in rules:
        if objecting.reason == BIND_CONFLICT:
            yield f"it needs a PersistentVolume that node {node} can use, for {objecting.cause}"
    states = {card.health.partition(" (")[0] for card in cards if card.why}
    if "cordoned" in states:
        yield f"lift the cordon of its cards: kubectl annotate node {node} {names.CORDON}-"
    if "listed" in states:
        yield f"take its cards out of ConfigMap {names.UNHEALTHY_NAMESPACE}/{names.UNHEALTHY_PREFIX}{node}"
    if "unhealthy" in states or "suspect" in states:
        yield f"its cards have to be healthy again: docs/node.md, and kubectl describe node {node}"
