"""Queries to the scheduling engine: why a pod waits, remedies, and how many copies would fit.

`gpushare-scheduler explain` and `what-if` use the same code. Pods that were removed or placed are restored at the end
of each step (`scheduler.core.what_if_queries`). So an answer to `why` combines several points in time; an answer to a
what-if query covers only one.
"""

import asyncio
from collections.abc import Generator
from typing import Final

import msgspec
import numpy as np

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import PodEvaluation
from scheduler.kube import objects
from scheduler.kube.defaults import new_pod
from scheduler.plugins.card.card_choice import by_width, eligible
from scheduler.pods.gpu_request import GpuRequest, ResourceNames
from scheduler.pods.pod import Pod, PodReader
from scheduler.queue.entry import Entry
from scheduler.state.cards.card_columns import CardColumns
from scheduler.state.columns.arrays import Int64Array, RowArray, Rows
from scheduler.tools.explain.answers import Explanation
from scheduler.tools.explain.pod_summary import explain, own_name
from scheduler.tools.explain.pod_summary import what_if as placed
from scheduler.tools.explain.reading import ClusterSnapshot, answer_of
from scheduler.tools.explain.text import copies, fitting, headline, preempting, under_way
from scheduler.tools.page.rows import PIECE, Sees

MOST_NODES: Final = 5
# All copies of a what-if query are placed in one step.
MOST_REPLICAS: Final = 16
# Removing them and putting them back is also one step.
MOST_LEAVING: Final = 256


class WhatIfQuery(msgspec.Struct, kw_only=True):
    """A pod that does not exist. units: GPU memory, over all its cards. cpu, memory: as written in Kubernetes."""

    units: int
    cards: int = 1
    exclusive: bool = False
    cpu: str = ""
    memory: str = ""
    selector: dict[str, str] = {}
    namespace: str = "default"
    replicas: int = 1


class CopyCounts(msgspec.Struct, rename="camel"):
    """Number of copies that fit on one node, judged only by the free memory of its cards."""

    node: str
    copies: int


class Why(msgspec.Struct, rename="camel"):
    """Why a pod waits. headline, under_way, preempting: sentences, as the command prints them; "" for none."""

    headline: str
    under_way: tuple[str, ...]
    preempting: str
    answer: Explanation


class Fits(msgspec.Struct, rename="camel"):
    """Where copies fit. nodes: number of nodes that every rule accepts. copies: on these, judged by GPU memory alone.

    rooms: the nodes with the most room. headline, words, places: as the command prints them; places: node, cards,
    copies. next: why no further copy fits.
    """

    headline: str
    words: tuple[str, ...]
    places: list[tuple[str, str, str]]
    nodes: int
    copies: int
    rooms: list[CopyCounts]
    next: Explanation | None


async def find(engine: Engine, namespace: str, name: str) -> Entry | None:
    """Return a waiting pod; None if it does not exist."""
    for number, entry in enumerate(list(engine.queue)):
        if entry.pod.key.name == name and entry.pod.key.namespace == namespace:
            return entry
        if number % (4 * PIECE) == 0:
            await asyncio.sleep(0)
    return None


def why(engine: Engine, unit_mib: int, pod: Pod, sees: Sees) -> Generator[None, None, Why]:
    """Explain, in steps, why the pod waits and what would help."""
    answer = yield from explain(_reading(engine, unit_mib, sees), pod, most=MOST_NODES)
    return Why(f"Pod {answer.pod} {headline(answer)}", tuple(under_way(answer)), preempting(answer), answer)


def what_if(engine: Engine, reader: PodReader, unit_mib: int, wanted: WhatIfQuery, sees: Sees) -> Fits:
    """Return how many such pods would fit now. Raises QuantityError for an invalid amount."""
    pod = reader.read(_wire(wanted, own_name(engine), reader.resources))
    tables, request = engine.tables, pod.template.gpu_request
    with engine.nominations.seen_by(pod):
        rows = _taking(tables.valid, engine.queries.evaluate(pod))
        room = _copies(tables.cards, request, rows) if request is not None else np.zeros(len(rows), dtype=np.int64)
    most = np.lexsort((tables.rank[rows], -room))[: 2 * MOST_NODES]
    wrong = pod.template.gpu_request_error
    reading = _reading(engine, unit_mib, sees)
    tried = answer_of(
        placed(reading, pod, wanted.replicas, (f"{wrong}.",) if wrong else (), most=MOST_NODES, tries=False)
    )
    return Fits(
        headline=fitting(tried),
        words=tried.words,
        places=copies(tried),
        nodes=len(rows),
        copies=int(room.sum()),
        rooms=[CopyCounts(tables.names[rows[place]], int(room[place])) for place in most],
        next=tried.next,
    )


def _reading(engine: Engine, unit_mib: int, sees: Sees) -> ClusterSnapshot:
    return ClusterSnapshot(engine, unit_mib, sees=sees, most_leaving=MOST_LEAVING)


def _taking(valid: "np.typing.NDArray[np.bool_]", evaluation: PodEvaluation) -> RowArray:
    """Return the rows that no rule rejects."""
    left = valid.copy()
    for _, rejections in evaluation.rules:
        for rejection in rejections:
            left &= ~rejection.rejected
    return np.flatnonzero(left if not evaluation.unschedulable else np.zeros_like(left))


def _copies(cards: CardColumns, request: GpuRequest, rows: RowArray) -> Int64Array:
    """Return int64[rows]: how many such pods fit by free memory; an upper bound if a pod takes several cards."""

    def on(these: Rows) -> Int64Array:
        free = np.where(eligible(cards, request, these), np.maximum(cards.free[:, these], 0), 0).astype(np.int64)
        each = free // request.units_per_card
        if request.exclusive:
            each = np.minimum(each, 1)
        return np.asarray(each.sum(axis=0) // request.cards, dtype=np.int64)

    by_cards = by_width(cards, rows, on)
    return np.asarray(np.minimum(by_cards, np.maximum(cards.node_free[rows], 0) // request.units), dtype=np.int64)


def _wire(wanted: WhatIfQuery, scheduler: str, resources: ResourceNames) -> objects.PodObject:
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
    return new_pod(msgspec.json.decode(msgspec.json.encode(document), type=objects.PodObject))
