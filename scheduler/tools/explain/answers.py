"""Answers of `explain`, `what-if` and other queries of the tables, in the form of their JSON.

docs/explain.md documents the shape. Fields may be added, but never removed or changed in meaning.
"""

import msgspec


class Answer(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Answer of a query. Amounts are memory units of the scheduler."""


class HeldUnits(Answer, frozen=True):
    """Units that a pod holds on a card. pod: `namespace/name`. exclusive: it holds the card exclusively.

    nominated: it has no node yet; if its cards are unknown, it counts on each of them.
    """

    pod: str
    units: int
    exclusive: bool
    terminating: bool = False
    nominated: bool = False


class ExplainedCard(Answer, frozen=True):
    """Card of a node, for one pod. free: >= 0. needed: by the pod, on one card. health: with its reason.

    why: why the card cannot be used, or "". isolation: kind that enforces shares of its memory, "" if nothing does.
    """

    index: int
    uuid: str
    model: str
    units: int
    free: int
    needed: int
    health: str
    why: str
    pods: tuple[HeldUnits, ...]
    isolation: str = ""


class RuleRejection(Answer, frozen=True):
    """Rule that rejects a node, and its reason. cause: the field of pod or node behind the reason, or ""."""

    rule: str
    reason: str
    cause: str = ""


class ExplainedNode(Answer, frozen=True):
    """A node, for one pod. rules: rejecting rules, in order; none if the node takes the pod.

    short_units: units missing on its best cards, 0 if memory suffices. leaving: pods that would have to leave. remedy:
    a way to make room, or "".
    """

    name: str
    rules: tuple[RuleRejection, ...]
    short_units: int
    cards: tuple[ExplainedCard, ...]
    leaving: tuple[str, ...]
    remedy: str


class ReasonGroup(Answer, frozen=True):
    """Nodes whose first rejection has this reason. examples: some of their names."""

    nodes: int
    rule: str
    reason: str
    examples: tuple[str, ...]


class NodeAndCards(Answer, frozen=True):
    """A node and its cards: index -> units."""

    node: str
    cards: dict[int, int]


class Preempting(Answer, frozen=True):
    """Pods that would be evicted from a node for the pod. cards: cards that the pod then gets, index to units."""

    node: str
    cards: dict[int, int]
    victims: tuple[str, ...]


class Going(Answer, frozen=True):
    """A terminating pod. since: time of the deletion request, RFC 3339, or ""."""

    pod: str
    since: str


class Nominated(Answer, frozen=True):
    """Nominated node in the pod's status, and the pods that are terminating there."""

    node: str
    terminating: tuple[Going, ...]


class ReservedPlace(Answer, frozen=True):
    """A reservation. place: the cards and the node, in words.

    pod: the pod that holds the reservation. waited: how long it had waited.
    """

    place: str
    pod: str
    waited: str


class Explanation(Answer, frozen=True):
    """Explanation of a pod. state: one word, see `scheduler.tools.explain.pod_summary`. words: facts and advice.

    message: the scheduler's message on the pod, "" when it fits. place: its node and cards, or those that it would get
    now; None if it fits nowhere. nearest: nodes that come closest to fitting, best first. preemption: the preemption
    that would make room, or None. nominated: its nominated node, or None. reserved: its reservation, or one that blocks
    it. node: the only node that the query names, "" for all.
    """

    pod: str
    state: str
    words: tuple[str, ...]
    message: str
    place: NodeAndCards | None
    nodes: int
    reasons: tuple[ReasonGroup, ...]
    nearest: tuple[ExplainedNode, ...]
    preemption: Preempting | None = None
    nominated: Nominated | None = None
    reserved: ReservedPlace | None = None
    node: str = ""


class FreeMemory(Answer, frozen=True):
    """Free memory. free: units of all cards that new pods can get.

    fragmented: the part that typical pods cannot use.
    """

    free: int
    fragmented: int


class WhatIfAnswer(Answer, frozen=True):
    """What-if answer. places: one for each replica that fits, in order.

    waiting: number of waiting pods, which are ignored. next: why one more does not fit; None if all do. before, after:
    without and with the replicas that fit.
    """

    pod: str
    words: tuple[str, ...]
    replicas: int
    fit: int
    places: tuple[NodeAndCards, ...]
    waiting: int
    next: Explanation | None
    before: FreeMemory
    after: FreeMemory


def as_json(answer: object) -> str:
    """Return indented JSON with a final line end."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n"
