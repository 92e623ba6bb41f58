"""Ways to make room on one node. The rules run after each step, so every remedy has been tried."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.plugins.fragmentation.card_layouts import CardLayouts
from scheduler.plugins.volume.volume_binding import BIND_CONFLICT
from scheduler.pods.gpu_request import GpuRequest
from scheduler.pods.pod import Pod
from scheduler.process.terminal import some, typed
from scheduler.state.pod_record import PodRecord
from scheduler.tools.explain.answers import ExplainedCard, ExplainedNode, ReservedPlace, RuleRejection
from scheduler.tools.explain.reading import UNKNOWN, ClusterSnapshot, told_going

# Written by `scheduler.core.reservations.with_reservation`. Earlier versions always wrote `pod NAMESPACE/NAME`.
_SAID: Final = re.compile(
    r"\. (?P<place>(?:cards? [0-9, and]+ of|room on) node \S+) (?:is|are) reserved for "
    r"(?:this pod|pod (?P<other>\S+?)(?: of another namespace)?), which has waited (?P<waited>\w+)\."
)


def reserved_place(reading: ClusterSnapshot, pod: Pod) -> ReservedPlace | None:
    """Return the reservation in the condition of a waiting pod; None if it has none."""
    said = _SAID.search(pod.condition.message) if pod.condition is not None else None
    if said is None:
        return None
    other = _named(reading, said["other"]) if said["other"] else str(pod.key)
    return ReservedPlace(place=said["place"], pod=other, waited=said["waited"])


def _named(reading: ClusterSnapshot, other: str) -> str:
    """Return how to name the pod. other: `namespace/name`, or the uid of a pod of another namespace."""
    if "/" in other:
        return other
    kept = reading.engine.nominations.of(other)
    return UNKNOWN if kept is None else str(kept.pod.key)


def told(reserved: ReservedPlace, pod: Pod) -> str:
    """Return a sentence about the reservation, for the pod that has it or for one that it blocks."""
    if reserved.pod == str(pod.key):
        return (
            f"It has a reservation, because it waited {reserved.waited} (reserveAfter) as the first of its priority: "
            f"{reserved.place}. Smaller pods cannot take it; nothing is preempted for it. It starts there, or wherever "
            "it fits first, when enough pods have ended."
        )
    whom = reserved.pod if reserved.pod == UNKNOWN else f"pod {reserved.pod}"
    return (
        f"A reservation blocks it: {reserved.place} is reserved for {whom}, which waited {reserved.waited} "
        "(reserveAfter). When that pod starts or gives up the reservation, the rest is free again."
    )


NOTHING: Final = "no pod could make room by ending"
_MOST_CARDS: Final = 16


def too_large(engine: Engine, pod: Pod) -> Iterator[str]:
    """Yield a sentence if no card could hold the pod."""
    request, layouts = pod.template.gpu_request, CardLayouts(engine.tables)
    if request is None or request.units_per_card <= (largest := layouts.largest(request.models)):
        return
    which = "every card of the models that it accepts" if request.models else "every card"
    if not largest:
        return
    each = "" if request.cards == 1 else " on each card"
    cards = _enough_cards(request, layouts)
    spread = f", or `gpu-count` {cards}" if cards else ""
    yield f"It is larger than {which} (largest {largest}): request at most {largest}{each}{spread}."


def _enough_cards(request: GpuRequest, layouts: CardLayouts) -> int:
    """Return the fewest cards of one node that could hold the pod; 0 if none could.

    Each container is spread evenly: docs/develop/protocol.md, "Requests".
    """
    whole = [units * request.cards for units in (*request.containers, *request.init_containers)]
    for cards in range(request.cards + 1, _MOST_CARDS + 1):
        even = all(units % cards == 0 for units in whole)
        if even and layouts.hold(cards, request.units // cards, request.models):
            return cards
    return 0


# With more pods than this on a node, single pods are not tried.
_MOST_TRIED: Final = 256
_MOST_NAMED: Final = 3


def with_remedy(reading: ClusterSnapshot, pod: Pod, node: ExplainedNode) -> ExplainedNode:
    """Return the node with the pods that would have to leave, and with a remedy in a sentence."""
    if not node.rules:
        return node
    if leaving := leaving_pods(reading.engine, pod, node.name):
        named = tuple(str(record.pod.key) for record in leaving)
        return replace(node, leaving=named, remedy=_fits_once(reading, leaving))
    text = "; ".join(_by_hand(node.name, node.rules, node.cards))
    return replace(node, remedy=text or _nobody(reading, pod, node.name))


def leaving_pods(engine: Engine, pod: Pod, node: str) -> list[PodRecord]:
    """Return pods of the node without which it takes the pod.

    Prefers terminating pods, then the smallest single pod, then as few as possible. Empty if the node does not take the
    pod even without all of them.
    """
    records = sorted((one for one in engine.tables.records_on(node) if _may_leave(one, pod)), key=_cost)
    terminating = [record for record in records if record.pod.terminating]
    for those in (terminating, records):
        found = _enough_of(engine, pod, node, those)
        if found:
            return found
    return []


def _enough_of(engine: Engine, pod: Pod, node: str, records: list[PodRecord]) -> list[PodRecord]:
    """Return pods of `records` that suffice, cheapest first."""
    if not records:
        return []
    with engine.queries.without(pod, node, records) as asked:
        if not asked.fits():
            return []
    with engine.queries.without(pod, node) as asked:
        for record in records[:_MOST_TRIED]:
            asked.lift(record)
            if asked.fits():
                return [record]
            asked.put_back(record)
    return _reprieved(engine, pod, node, records)


def _reprieved(engine: Engine, pod: Pod, node: str, records: list[PodRecord]) -> list[PodRecord]:
    """Remove all pods; then put back each one that can stay, the costliest first.

    kube-scheduler's selectVictimsOnNode.
    """
    gone = {record.pod.key.uid: record for record in records}
    with engine.queries.without(pod, node, records) as asked:
        for record in records[::-1]:
            asked.put_back(record)
            if asked.fits():
                del gone[record.pod.key.uid]
            else:
                asked.lift(record)
    return sorted(gone.values(), key=lambda record: str(record.pod.key))


def _may_leave(record: PodRecord, pod: Pod) -> bool:
    """Return whether the pod may leave. Pods assumed by `what-if` and pods without a node cannot.

    A controller replaces its own pods.
    """
    if record.assumed or record.nominated:
        return False
    return record.pod.terminating or not pod.owner_uid or record.pod.owner_uid != pod.owner_uid


def _cost(record: PodRecord) -> tuple[bool, int, int, str]:
    """Return a sort key: terminating pods first, then low priority, then few units."""
    pod = record.pod
    return (not pod.terminating, pod.priority, record.written.units, str(pod.key))


def _fits_once(reading: ClusterSnapshot, leaving: Sequence[PodRecord]) -> str:
    one, going = len(leaving) == 1, tuple(reading.going(record.pod) for record in leaving if record.pod.terminating)
    named = some([str(record.pod.key) for record in leaving], _MOST_NAMED)
    text = f"fits once {named} {'has' if one else 'have'} ended"
    if not going:
        return text
    told = told_going(going, _MOST_NAMED)
    if len(going) < len(leaving):
        return f"{text}; {told}"
    return f"{text}, which {told[told.index(' is ' if one else ' are ') + 1 :]}"


def _nobody(reading: ClusterSnapshot, pod: Pod, node: str) -> str:
    records = reading.engine.tables.records_on(node)
    kept = sorted(str(record.pod.key) for record in records if record.nominated)
    if kept:
        are = "is" if len(kept) == 1 else "are"
        return f"its free room is set aside for {some(kept, _MOST_NAMED)}, which {are} nominated to the node"
    if any(record.pod.owner_uid == pod.owner_uid != "" for record in records):
        return f"{NOTHING}, except pods of its own controller, which replaces them"
    return NOTHING


def _by_hand(node: str, rules: Sequence[RuleRejection], cards: Sequence[ExplainedCard]) -> Iterator[str]:
    if any(rejection.rule == "NodeUnschedulable" for rejection in rules):
        yield typed("kubectl", "uncordon", node)
    for rejection in rules:
        if rejection.reason == BIND_CONFLICT:
            yield f"it needs a PersistentVolume that node {node} can use, for {rejection.cause}"
    # A card that is too small for the pod is useless to it in any state.
    states = {card.health.partition(" (")[0] for card in cards if card.why and card.units >= card.needed}
    if "cordoned" in states:
        yield f"lift the cordon of its cards: {typed('kubectl', 'annotate', 'node', node, f'{names.CORDON}-')}"
    if "listed" in states:
        yield f"remove its cards from ConfigMap {names.UNHEALTHY_NAMESPACE}/{names.UNHEALTHY_PREFIX}{node}"
    if "unhealthy" in states or "suspect" in states:
        described = typed("kubectl", "describe", "node", node)
        yield f"its cards have to recover: see docs/nodes-and-cards.md and {described}"
