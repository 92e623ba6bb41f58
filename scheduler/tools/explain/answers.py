"""What `explain` and `what-if` answer, and others that ask the tables, as they print it in JSON.

The shape is documented in docs/explain.md; fields may be added, none is removed or changes its meaning.
"""

from collections.abc import Sequence

import msgspec


class Answer(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Amounts are memory units of the scheduler."""


class HeldUnits(Answer, frozen=True):
    """A pod on a card. pod: `namespace/name`. exclusive: it shares the card with nobody.

    nominated: it has no node yet, and its place is kept; where its cards are not known, it counts on each of them.
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
    """A rule that objects to a node, and its reason. cause: what of pod and node the reason is about, or ""."""

    rule: str
    reason: str
    cause: str = ""


class ExplainedNode(Answer, frozen=True):
    """rules: those that object, in order; none where the node takes the pod. remedy: what would make room, or "".

    short_units: what its best cards lack, 0 where memory is not in the way. leaving: the pods that would have to go.
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
    """Pods of lower priority that would be removed from a node; cards: what the pod then gets, index to units."""

    node: str
    cards: dict[int, int]
    victims: tuple[str, ...]


class Going(Answer, frozen=True):
    """A pod that is being deleted. since: when that was requested, RFC 3339, or ""."""

    pod: str
    since: str


class Nominated(Answer, frozen=True):
    """For which node the pod waits, as its status says, and who is going there."""

    node: str
    terminating: tuple[Going, ...]


class ReservedPlace(Answer, frozen=True):
    """place: the cards and the node, in words. pod: for which it is kept. waited: how long that had waited by then."""

    place: str
    pod: str
    waited: str


class Explanation(Answer, frozen=True):
    """state: one word, see `scheduler.tools.explain.pod_summary`. words: what there is to say and to do, in sentences.

    message: what the scheduler writes on the pod, "" when it fits. place: where it is, or would go now; None when
    nowhere. nearest: the nodes that lack least, nearest first. preemption: what makes room for it, None for nothing.
    nominated: None for a pod whose status names no node. reserved: a place that is reserved for it, or keeps it off.
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


class FreeMemory(Answer, frozen=True):
    """free: units of all cards that new pods may be given. fragmented: of these, what the usual pod cannot use."""

    free: int
    fragmented: int


class WhatIfAnswer(Answer, frozen=True):
    """places: of each replica that fits, in order. waiting: pods that wait already and are not counted.

    next: why the one after them does not fit; None when all do. before, after: without and with those that fit; None
    where it was not measured.
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


def as_json(answer: Answer) -> str:
    """The text, indented, with a line end."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n"


def listed(entries: Sequence[str], most: int) -> str:
    """`a, b and 3 more`."""
    more = f" and {len(entries) - most} more" if len(entries) > most else ""
    return ", ".join(entries[:most]) + more
