"""How a pod stands, in words: what its owner has to know before any node is looked at."""

import dataclasses

from msgspec.structs import replace

from config.protocol import names
from scheduler.engine import Engine
from scheduler.explain.answers import ExplainedNode, Explanation, Place, Preempting
from scheduler.explain.explanation import explained_node, nearest, reasons
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.preemption import Preemption
from scheduler.pods.gpu_request import unit_name
from scheduler.pods.mistakes import forgotten
from scheduler.pods.pod import Pod
from scheduler.scheduling_cycle import Placement


def asks(pod: Pod, unit_mib: int) -> str:
    """A sentence: what the pod requests, such as 15 GiB on each of 2 cards."""
    request, unit = pod.template.gpu_request, unit_name(unit_mib)
    if request is None:
        return "Its request is wrong." if pod.template.gpu_request_error else "It requests no GPU memory."
    where = "on one card" if request.cards == 1 else f"{request.units_per_card} on each of {request.cards} cards"
    alone = " that no other pod is on" if request.exclusive else ""
    join = " " if request.cards == 1 else ": "
    return f"It requests {request.units} {unit}{join}{where}{alone}."


def explain(engine: Engine, pod: Pod, unit_mib: int, node: str = "", mistaken: tuple[str, ...] = ()) -> Explanation:
    """Everything about one pod that the engine was told of. node: the only one to look at; KeyError without it.

    mistaken: what its author probably meant otherwise.
    """
    ours = pod.scheduler_name in engine.scheduler_names
    if pod.finished:
        return _settled(engine, pod, "finished", f"It is {pod.phase}, and holds nothing any more.")
    if pod.node_name:
        return _settled(engine, pod, "bound", _whereabouts(engine, pod, unit_mib), place=_place(engine, pod))
    if pod.terminating:
        return _settled(engine, pod, "terminating", "It is being deleted, and gets no place any more.")
    words = [sentence(mistake) for mistake in mistaken]
    if not ours:
        if not (pod.template.gpu_units or pod.template.gpu_request_error):
            said = (
                f"Scheduler {pod.scheduler_name} decides over it, and it requests no GPU memory: nothing to say here."
            )
            return _settled(engine, pod, "foreign", said)
        ours_is = own_name(engine)
        words.append(sentence(forgotten(pod.scheduler_name, ours_is)))
        pod = replace(pod, scheduler_name=ours_is)
    gate = engine.queue.gate(pod.key.uid) if pod.key.uid in engine.queue else ""
    if gate:
        words.append(f"It is gated, and not tried before that ends: {gate}.")
    words.append(asks(pod, unit_mib))
    return judged(engine, pod, tuple(words), state="gated" if gate else "waits" if ours else "foreign", node=node)


def sentence(clause: str) -> str:
    """With a capital and a full stop."""
    return f"{clause[:1].upper()}{clause[1:]}" + ("" if clause.endswith("?") else ".")


def own_name(engine: Engine) -> str:
    """What a pod writes as its schedulerName."""
    return names.SCHEDULER_NAME if names.SCHEDULER_NAME in engine.scheduler_names else min(engine.scheduler_names)


def judged(engine: Engine, pod: Pod, words: tuple[str, ...], *, state: str, node: str = "") -> Explanation:
    """A pod against all nodes, or against one."""
    judgement = engine.judge(pod)
    shown: tuple[ExplainedNode, ...] = ()
    if node:
        shown = (explained_node(engine, pod, judgement, node),)
    elif judgement.diagnosis is not None and not judgement.never:
        shown = nearest(engine, pod, judgement)
    place, preemption, message = None, None, ""
    if judgement.diagnosis is None:
        place = would_take(engine, pod)
        state = "fits" if state == "waits" else state
    else:
        message, preemption = _post_filtered(engine, pod, judgement.diagnosis)
    return Explanation(
        pod=str(pod.key),
        state=state,
        words=words,
        message=message,
        place=place,
        nodes=len(engine.tables.row_of),
        reasons=reasons(engine.tables, judgement) if judgement.diagnosis is not None else (),
        nearest=shown,
        preemption=preemption,
    )


def _post_filtered(engine: Engine, pod: Pod, diagnosis: Diagnosis) -> tuple[str, Preempting | None]:
    """(what the scheduler writes on the pod, whom it would make go)."""
    result = engine.preemption_for(pod)
    if isinstance(result, Preemption):
        cards = {share.index: share.units for share in result.cards}
        victims = tuple(str(victim.key) for victim in result.victims)
        return diagnosis.message, Preempting(node=result.node, cards=cards, victims=victims)
    return diagnosis.message if result is None else dataclasses.replace(diagnosis, tail=result.message).message, None


def would_take(engine: Engine, pod: Pod) -> Place | None:
    """Where the pod would go now; it does not stay there."""
    outcome = engine.attempt(pod, 0)
    if not isinstance(outcome, Placement):
        return None
    place = Place(node=outcome.node, cards={share.index: share.units for share in outcome.cards})
    engine.tables.forget(pod.key.uid)
    return place


def _settled(engine: Engine, pod: Pod, state: str, words: str, place: Place | None = None) -> Explanation:
    return Explanation(
        pod=str(pod.key),
        state=state,
        words=(words,),
        message="",
        place=place,
        nodes=len(engine.tables.row_of),
        reasons=(),
        nearest=(),
    )


def _place(engine: Engine, pod: Pod) -> Place:
    record, cards = engine.tables.record(pod.key.uid), dict[int, int]()
    row = engine.tables.row_of.get(pod.node_name)
    if record is not None and record.held is not None and row is not None and not record.held.unknown:
        slots = engine.tables.cards.slots[row]
        cards = {slots[slot].card.index: units for slot, units in record.held.places}
    return Place(node=pod.node_name, cards=cards)


def _whereabouts(engine: Engine, pod: Pod, unit_mib: int) -> str:
    cards = _place(engine, pod).cards
    where = " and ".join(f"{units} {unit_name(unit_mib)} of card {index}" for index, units in cards.items())
    if pod.template.gpu_units and not cards:
        where = "on which cards cannot be read, so its request counts against each of them"
    ending = "; it is being deleted, and holds that until it is gone" if pod.terminating else ""
    return f"It is on node {pod.node_name}" + (f", with {where}" if where else "") + f"{ending}."
