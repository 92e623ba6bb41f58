"""Summary of an existing or hypothetical pod, in facts that do not depend on a node."""

import dataclasses
from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from config.protocol import names
from config.protocol.isolation import worded
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Outcome, Placement, PodEvaluation
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.preemption import Preemption
from scheduler.kube.port import DISRUPTION_BUDGETS, PodKey
from scheduler.plugins.fragmentation.measure import fragmentation_of
from scheduler.plugins.preemption.default_preemption import TERMINATING
from scheduler.plugins.volume.volume_binding import UNBOUND
from scheduler.pods.gpu_request import ComputeMode, unit_name
from scheduler.pods.mistakes import forgotten
from scheduler.pods.pod import Pod
from scheduler.queue.gangs import Standing
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables
from scheduler.tools.explain.answers import (
    ExplainedNode,
    Explanation,
    FreeMemory,
    NodeAndCards,
    Preempting,
    ReasonGroup,
    WhatIfAnswer,
)
from scheduler.tools.explain.explanation import blocking_claims, explained_node, nearest, reasons
from scheduler.tools.explain.reading import ClusterSnapshot
from scheduler.tools.explain.remedies import reserved_place, told, too_large, with_remedy

_COMPUTE: Final = {ComputeMode.MPS: " with MPS", ComputeMode.TIME_SLICING: " without MPS"}


def asks(pod: Pod, unit_mib: int) -> str:
    """Return a sentence about the pod's request and limit, such as 15 GiB on each of 2 cards, or about its error."""
    request, unit = pod.template.gpu_request, unit_name(unit_mib)
    if wrong := pod.template.gpu_request_error:
        return sentence(f"its request is invalid: {wrong}")
    if request is None:
        return "It requests no GPU memory."
    where = "on one card" if request.cards == 1 else f"{request.units_per_card} on each of {request.cards} cards"
    alone = " that no other pod uses" if request.exclusive else ""
    join = " " if request.cards == 1 else ": "
    enforced = " where memory is enforced" if request.isolated else ""
    compute = _COMPUTE[request.compute_mode] if request.compute_mode else ""
    limit = f", and may use up to {request.limit_units} while they are free" if request.limit_units is not None else ""
    return f"It requests {request.units} {unit}{join}{where}{alone}{enforced}{compute}{limit}."


def explain(reading: ClusterSnapshot, pod: Pod, node: str = "", mistaken: tuple[str, ...] = ()) -> Explanation:
    """Explain one pod of the engine.

    node: the only one to examine; KeyError if it does not exist. mistaken: probable mistakes of the pod's author.
    """
    engine = reading.engine
    ours = pod.scheduler_name in engine.scheduler_names
    words = [sentence(mistake) for mistake in mistaken]
    if pod.finished:
        return _settled(engine, pod, "finished", f"It is {pod.phase} and no longer holds any resources.")
    if pod.node_name:
        return _settled(engine, pod, "bound", _whereabouts(reading, pod), *words, place=_place(engine, pod))
    if pod.terminating:
        return _settled(engine, pod, "terminating", "It is being deleted and is no longer scheduled.")
    if not ours:
        if not (pod.template.gpu_units or pod.template.gpu_request_error):
            said = f"It belongs to scheduler {pod.scheduler_name} and requests no GPU memory: nothing to explain here."
            return _settled(engine, pod, "foreign", said)
        ours_is = own_name(engine)
        words.append(sentence(forgotten(pod.scheduler_name, ours_is)))
        pod = replace(pod, scheduler_name=ours_is)
    gate = engine.queue.gate(pod.key.uid) if pod.key.uid in engine.queue else ""
    if gate and pod.gates:
        words.append(f"It is gated and is not scheduled until the gate is removed: {gate}.")
    elif gate:
        words.append(f"It is held: {gate}.")
    if pod.gang is not None and engine.queue.gangs.standing(pod) is Standing.TOGETHER:
        gang = f"pods of {pod.gang.key}, at least {engine.queue.gangs.minimum(pod.gang.key)} in all"
        words.append(f"It starts together with other {gang}. This answer is about this pod alone.")
    words.append(asks(pod, reading.unit_mib))
    state = "gated" if gate else "waits" if ours else "foreign"
    return judged(reading, pod, tuple(words), state=state, node=node)


def sentence(clause: str) -> str:
    """Turn the clause into a sentence, with a capital and a full stop."""
    return f"{clause[:1].upper()}{clause[1:]}" + ("" if clause.endswith("?") else ".")


def own_name(engine: Engine) -> str:
    """Return the schedulerName that a pod must have."""
    return names.SCHEDULER_NAME if names.SCHEDULER_NAME in engine.scheduler_names else min(engine.scheduler_names)


def judged(reading: ClusterSnapshot, pod: Pod, words: tuple[str, ...], *, state: str, node: str = "") -> Explanation:
    """Explain a pod for one node, or for all nodes, showing those that come closest to fitting."""
    engine = reading.engine
    found = _against(reading, pod, node)
    diagnosis = found.evaluation.diagnosis
    shown = tuple(with_remedy(reading, pod, one) for one in found.shown)
    goes, preemption, message = None, None, ""
    kept = reading.nominated(pod)
    reserved = reserved_place(reading, pod) if diagnosis is not None else None
    if diagnosis is None:
        goes = would_take(engine, pod)
        state = "fits" if state == "waits" else state
    else:
        is_under_way = kept is not None and bool(kept.terminating)
        message, preemption = _post_filtered(reading, pod, diagnosis, is_under_way=is_under_way)
        words += (*too_large(engine, pod), *_more(reading, pod, found.evaluation, preempts=preemption is not None))
        words += () if reserved is None else (told(reserved, pod),)
    return Explanation(
        pod=str(pod.key),
        state=state,
        words=words,
        message=message,
        place=goes,
        nodes=len(engine.tables.row_of),
        reasons=found.groups,
        nearest=shown,
        preemption=preemption,
        nominated=kept,
        reserved=reserved,
        node=node,
    )


class _Against(NamedTuple):
    evaluation: PodEvaluation
    groups: tuple[ReasonGroup, ...]
    shown: tuple[ExplainedNode, ...]


def _against(reading: ClusterSnapshot, pod: Pod, node: str) -> _Against:
    """Evaluate the pod. node: see `judged`."""
    engine, groups = reading.engine, tuple[ReasonGroup, ...]()
    shown: tuple[ExplainedNode, ...] = ()
    with engine.nominations.seen_by(pod):
        evaluation = engine.queries.evaluate(pod)
        if evaluation.diagnosis is not None:
            groups = reasons(engine.tables, evaluation)
        if node:
            shown = (explained_node(reading, pod, evaluation, node),)
        elif evaluation.diagnosis is not None and not evaluation.unschedulable:
            shown = nearest(reading, pod, evaluation)
    return _Against(evaluation, groups, shown)


def _post_filtered(
    reading: ClusterSnapshot, pod: Pod, diagnosis: Diagnosis, *, is_under_way: bool
) -> tuple[str, Preempting | None]:
    """Return (the scheduler's message on the pod, its victims). is_under_way: its victims are already terminating."""
    result = reading.engine.queries.preemption_for(pod)
    if isinstance(result, Preemption) and is_under_way:
        # A scheduler that has just started would find the same victims again; one that has chosen them waits.
        return dataclasses.replace(diagnosis, tail=f"preemption: {TERMINATING}").message, None
    if isinstance(result, Preemption):
        cards = {share.index: share.units for share in result.cards}
        victims = tuple(str(victim.key) for victim in result.victims)
        return diagnosis.message, Preempting(node=result.node, cards=cards, victims=victims)
    return diagnosis.message if result is None else dataclasses.replace(diagnosis, tail=result.message).message, None


def _more(reading: ClusterSnapshot, pod: Pod, evaluation: PodEvaluation, *, preempts: bool) -> Iterator[str]:
    """Yield further sentences about an unschedulable pod. preempts: whether it would preempt."""
    if evaluation.unschedulable == UNBOUND:
        yield from blocking_claims(reading.engine.tables, pod)
    if not pod.preempts:
        yield "It preempts no other pods: its preemptionPolicy is Never."
    if preempts and DISRUPTION_BUDGETS.name in reading.unread:
        yield "The PodDisruptionBudgets cannot be read: preemption may spare pods that one of them protects."


def would_take(engine: Engine, pod: Pod) -> NodeAndCards | None:
    """Return the node and cards that the pod would get now, or is being bound to; the placement is undone."""
    record = engine.tables.record(pod.key.uid)
    if record is not None:
        return NodeAndCards(node=record.node, cards=cards_of(engine.tables, record))
    with engine.queries.placing() as placing:
        return place_of(placing.attempt(pod))


def place_of(outcome: Outcome) -> NodeAndCards | None:
    """Return the node and cards of an outcome; None for an unschedulable pod."""
    if not isinstance(outcome, Placement):
        return None
    return NodeAndCards(node=outcome.node, cards={share.index: share.units for share in outcome.cards})


def _settled(engine: Engine, pod: Pod, state: str, *words: str, place: NodeAndCards | None = None) -> Explanation:
    return Explanation(
        pod=str(pod.key),
        state=state,
        words=words,
        message="",
        place=place,
        nodes=len(engine.tables.row_of),
        reasons=(),
        nearest=(),
    )


def _place(engine: Engine, pod: Pod) -> NodeAndCards:
    record = engine.tables.record(pod.key.uid)
    return NodeAndCards(node=pod.node_name, cards={} if record is None else cards_of(engine.tables, record))


def cards_of(tables: Tables, record: PodRecord) -> dict[int, int]:
    """Return the cards that a booked pod is on, index to units; {} if they are unknown."""
    row = tables.row_of.get(record.node)
    if record.held is None or row is None or record.held.unknown:
        return {}
    slots = tables.cards.slots[row]
    return {slots[slot].card.index: units for slot, units in record.held.places}


def _isolation(tables: Tables, pod: Pod) -> dict[int, str]:
    """Return by index what enforces shares of memory on the cards of the pod's node."""
    row = tables.row_of.get(pod.node_name)
    return {} if row is None else {slot.card.index: slot.card.isolation for slot in tables.cards.slots[row]}


def _whereabouts(reading: ClusterSnapshot, pod: Pod) -> str:
    cards = _place(reading.engine, pod).cards
    unit = unit_name(reading.unit_mib)
    told = f"It is on node {pod.node_name}"
    if cards:
        kinds = _isolation(reading.engine.tables, pod)
        parts = (f"{units} {unit} of card {index} ({worded(kinds[index])})" for index, units in cards.items())
        told += ", with " + " and ".join(parts)
    elif pod.template.gpu_units:
        told += "; its cards cannot be read, so its request counts against each of them"
    if pod.terminating:
        told += "; it is being deleted and holds them until it ends"
    return f"{told}."


def what_if(reading: ClusterSnapshot, pod: Pod, replicas: int, words: tuple[str, ...] = ()) -> WhatIfAnswer:
    """Place copies one at a time, next to the pods that have a node; waiting pods are ignored."""
    places: list[NodeAndCards] = []
    stops: Explanation | None = None
    before = _left(reading.engine)
    with reading.engine.queries.placing() as placing:
        for number in range(replicas):
            copy = replace(pod, key=PodKey(pod.key.namespace, f"{pod.key.name}-{number}", f"what-if-{number}"))
            place = place_of(placing.attempt(copy))
            if place is None:
                stops = judged(reading, copy, (), state="waits")
                break
            places.append(place)
        after = _left(reading.engine)
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


def _left(engine: Engine) -> FreeMemory:
    free, unusable = fragmentation_of(engine.tables).total()
    return FreeMemory(free=round(free), fragmented=round(unusable))
