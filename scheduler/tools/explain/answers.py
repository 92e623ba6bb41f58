"""Answers of `explain`, `what-if` and other queries of the tables, in the form of their JSON.

The shape is documented in docs/explain.md; fields may be added, but never removed or changed in meaning.
"""

import msgspec


class Answer(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Amounts are memory units of the scheduler."""


class HeldUnits(Answer, frozen=True):
    """A pod on a card. pod: `namespace/name`. exclusive: it holds the card exclusively.

    nominated: it has no node yet; if its cards are unknown, it counts on each of them.
    """

    pod: str
    units: int
    exclusive: bool
    terminating: bool = False
    nominated: bool = False


class ExplainedCard(Answer, frozen=True):
    """free: >= 0. needed: of the pod, on one card. health: with the reason for it. why: "" where it would do."""

    index: int
    uuid: str
    model: str
    units: int
    free: int
    needed: int
    health: str
    why: str
    pods: tuple[HeldUnits, ...]


class RuleRejection(Answer, frozen=True):
    """A rule that rejects a node, and its reason. cause: the field of pod or node behind the reason, or ""."""

    rule: str
    reason: str
    cause: str = ""


class ExplainedNode(Answer, frozen=True):
    """rules: rejecting rules, in order; none if the node takes the pod. remedy: a way to make room, or "".

    short_units: units missing on its best cards, 0 if memory suffices. leaving: pods that would have to leave.
    """

    name: str
    rules: tuple[RuleRejection, ...]
    short_units: int
    cards: tuple[ExplainedCard, ...]
    leaving: tuple[str, ...]
    remedy: str


class ReasonGroup(Answer, frozen=True):
    """Nodes whose first rejection this is. examples: some of their names."""

    nodes: int
    rule: str
    reason: str
    examples: tuple[str, ...]


class NodeAndCards(Answer, frozen=True):
    """A node and its cards: index -> units."""

    node: str
    cards: dict[int, int]


class Preempting(Answer, frozen=True):
    """Pods of lower priority that would be evicted from a node; cards: the pod's cards then, index to units."""

    node: str
    cards: dict[int, int]
    victims: tuple[str, ...]


class Going(Answer, frozen=True):
    """A terminating pod. since: time of the deletion request, RFC 3339, or ""."""

    pod: str
    since: str


class Nominated(Answer, frozen=True):
    """Nominated node in the pod's status, and its terminating pods."""

    node: str
    terminating: tuple[Going, ...]


class ReservedPlace(Answer, frozen=True):
    """place: the cards and the node, in words.

    pod: the pod that holds the reservation. waited: how long it had waited.
    """

    place: str
    pod: str
    waited: str


class Explanation(Answer, frozen=True):
    """state: one word, see `scheduler.tools.explain.pod_summary`. words: facts and advice, in sentences.

    message: the scheduler's message on the pod, "" when it fits. place: where it is, or would go now, or None. nearest:
    the nodes that lack least, nearest first. preemption: what makes room for it, None for nothing. nominated: None
    without a nominated node. reserved: the reservation of the pod, or one that blocks it. node: the only node that was
    asked about, "" for all.
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
    """free: units of all cards that new pods can get. fragmented: units of those that typical pods cannot use."""

    free: int
    fragmented: int


class WhatIfAnswer(Answer, frozen=True):
    """places: of each replica that fits, in order. waiting: number of waiting pods, which are not counted.

    next: why one more does not fit; None when all do. before, after: without and with those that fit; None if not
    measured.
    """

    pod: str
    words: tuple[str, ...]
    replicas: int
    fit: int
    places: tuple[NodeAndCards, ...]
    waiting: int
    next: Explanation | None
    before: FreeMemory | None = None
    after: FreeMemory | None = None


def as_json(answer: object) -> str:
    """The text, indented, with a line end."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n"
