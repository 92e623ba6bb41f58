"""Why a pod waits, and whether one like it would fit: asked of the engine that schedules, so nothing is tried out.

`gpushare-scheduler explain` and `what-if` say more: what would help, and how many copies fit beside each other. They
take pods away and put others there, in tables of their own. Here the rules are asked once, which changes nothing.
"""

import asyncio
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from config.protocol import names
from scheduler.engine import Engine
from scheduler.explain.answers import ExplainedNode, Explanation, ReasonGroup
from scheduler.explain.explanation import nearest, reasons
from scheduler.explain.reading import Reading
from scheduler.explain.standing import asks, own_name
from scheduler.kube import objects
from scheduler.page.rows import PIECE, Sees
from scheduler.plugins.card_choice import by_width, eligible
from scheduler.pods.gpu_request import GpuRequest, ResourceNames
from scheduler.pods.pod import Pod, PodReader
from scheduler.queue.entry import Entry
from scheduler.scheduling_cycle import Judgement
from scheduler.simulation.defaults import new_pod
from scheduler.state.cards.card_columns import CardColumns
from scheduler.state.columns.arrays import Int64Array, RowArray, Rows

MOST_NODES: Final = 5
_HIDDEN: Final = "a pod of another namespace"


class Wanted(msgspec.Struct, kw_only=True):
    """A pod that does not exist. units: of GPU memory, of all its cards. cpu, memory: as Kubernetes writes them."""

    units: int
    cards: int = 1
    exclusive: bool = False
    cpu: str = ""
    memory: str = ""
    selector: dict[str, str] = {}
    namespace: str = "default"


class Room(msgspec.Struct, rename="camel"):
    """copies: for how many such pods the free memory of a node's cards is enough."""

    node: str
    copies: int


class Fits(msgspec.Struct, rename="camel"):
    """nodes: that every rule lets take one now. copies: on them, by GPU memory alone. rooms: those with most room."""

    words: tuple[str, ...]
    nodes: int
    copies: int
    rooms: list[Room]
    message: str
    reasons: tuple[ReasonGroup, ...]
    nearest: tuple[ExplainedNode, ...]


async def find(engine: Engine, namespace: str, name: str) -> Entry | None:
    """A pod that waits; None when there is none."""
    for number, entry in enumerate(list(engine.queue)):
        if entry.pod.key.name == name and entry.pod.key.namespace == namespace:
            return entry
        if number % (4 * PIECE) == 0:
            await asyncio.sleep(0)
    return None


def why(engine: Engine, unit_mib: int, entry: Entry, sees: Sees) -> Explanation:
    """Why the pod waits, at this moment."""
    pod, reading = entry.pod, Reading(engine, unit_mib)
    words = (f"It is gated, and not tried before that ends: {entry.gate}.",) if entry.gate else ()
    with engine.nominations.seen_by(pod):
        judgement = engine.judge(pod)
        message, groups, nodes = _against(reading, pod, judgement, sees)
    return Explanation(
        pod=str(pod.key),
        state="gated" if entry.gate else "waits" if message else "fits",
        words=(*words, asks(pod, unit_mib)),
        message=message,
        place=None,
        nodes=len(engine.tables.row_of),
        reasons=groups,
        nearest=nodes,
    )


def what_if(engine: Engine, reader: PodReader, unit_mib: int, wanted: Wanted, sees: Sees) -> Fits:
    """Whether such a pod would fit now. Raises QuantityError for an amount that is none."""
    pod = reader.read(_wire(wanted, own_name(engine), reader.resources))
    tables, request = engine.tables, pod.template.gpu_request
    with engine.nominations.seen_by(pod):
        judgement = engine.judge(pod)
        rows = _taking(tables.valid, judgement)
        room = _copies(tables.cards, request, rows) if request is not None else np.zeros(len(rows), dtype=np.int64)
        message, groups, nodes = _against(Reading(engine, unit_mib), pod, judgement, sees)
    most = np.lexsort((tables.rank[rows], -room))[: 2 * MOST_NODES]
    wrong = pod.template.gpu_request_error
    return Fits(
        words=(f"{wrong}.",) if wrong else (asks(pod, unit_mib),),
        nodes=len(rows),
        copies=int(room.sum()),
        rooms=[Room(tables.names[rows[place]], int(room[place])) for place in most],
        message=message,
        reasons=groups,
        nearest=nodes,
    )


def _against(
    reading: Reading, pod: Pod, judgement: Judgement, sees: Sees
) -> tuple[str, tuple[ReasonGroup, ...], tuple[ExplainedNode, ...]]:
    """(what the scheduler writes on the pod, nodes by reason, the nearest nodes); nothing for a pod that fits."""
    if judgement.diagnosis is None:
        return "", (), ()
    groups = reasons(reading.engine.tables, judgement)
    near = () if judgement.never else nearest(reading, pod, judgement, MOST_NODES, remedies=False)
    return judgement.diagnosis.message, groups, tuple(_masked(node, sees) for node in near)


def _masked(node: ExplainedNode, sees: Sees) -> ExplainedNode:
    """Without the names of pods that are not shown."""
    cards = tuple(
        replace(
            card, pods=tuple(one if sees(one.pod.partition("/")[0]) else replace(one, pod=_HIDDEN) for one in card.pods)
        )
        for card in node.cards
    )
    return replace(node, cards=cards)


def _taking(valid: "np.typing.NDArray[np.bool_]", judgement: Judgement) -> RowArray:
    """Rows to which no rule objects."""
    left = valid.copy()
    for _, objections in judgement.rules:
        for objection in objections:
            left &= ~objection.rejected
    return np.flatnonzero(left if not judgement.never else np.zeros_like(left))


def _copies(cards: CardColumns, request: GpuRequest, rows: RowArray) -> Int64Array:
    """int64[rows]: for how many such pods the free memory is enough; an upper bound where one takes several cards."""

    def on(these: Rows) -> Int64Array:
        free = np.where(eligible(cards, request, these), np.maximum(cards.free[:, these], 0), 0).astype(np.int64)
        each = free // request.units_per_card
        if request.exclusive:
            each = np.minimum(each, 1)
        return np.asarray(each.sum(axis=0) // request.cards, dtype=np.int64)

    by_cards = by_width(cards, rows, on)
    return np.asarray(np.minimum(by_cards, np.maximum(cards.node_free[rows], 0) // request.units), dtype=np.int64)


def _wire(wanted: Wanted, scheduler: str, resources: ResourceNames) -> objects.Pod:
    limits = {resources.gpu_mem: str(wanted.units)} if wanted.units else {}
    limits |= {name: amount for name, amount in (("cpu", wanted.cpu), ("memory", wanted.memory)) if amount}
    annotations = {names.EXCLUSIVE: "true"} if wanted.exclusive else {}
    annotations |= {resources.gpu_count: str(wanted.cards)} if wanted.cards > 1 else {}
    document = {
        "metadata": {"name": "what-if", "namespace": wanted.namespace, "uid": "what-if", "annotations": annotations},
        "spec": {
            "schedulerName": scheduler,
            "nodeSelector": wanted.selector,
            "containers": [{"name": "main", "resources": {"limits": limits}}],
        },
    }
    return new_pod(msgspec.json.decode(msgspec.json.encode(document), type=objects.Pod))
