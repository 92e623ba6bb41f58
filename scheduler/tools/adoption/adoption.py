"""How this scheduler counts pods that other schedulers bound: `kubectl gpushare adopt`. Pure.

This module counts nothing itself: the tables hold each pod's units, as `config.protocol.booked_cards` reads them. Each
check that blocks an adoption is a word in docs/migrate.md. The pods that fail one check are listed together.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from config.protocol import names
from config.protocol.allocation import legacy_index
from scheduler.pods.gpu_request import unit_name
from scheduler.pods.pod import RUNNING, Pod
from scheduler.process.terminal import columns
from scheduler.state.cards.card_columns import Held
from scheduler.state.cards.node_inventory import GpuState, NodeInventory
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables
from scheduler.tools.adoption import whole_cards
from scheduler.tools.explain import findings
from scheduler.tools.explain.answers import Answer
from scheduler.tools.explain.findings import (
    NO_NODE,
    UNKNOWN_CARD,
    WITHOUT_CARD,
    ClusterFinding,
    Findings,
    Severity,
    holding,
    of_node,
    without_node,
)
from scheduler.tools.explain.pod_summary import own_name
from scheduler.tools.explain.reading import ClusterSnapshot
from scheduler.tools.explain.tones import Line, Tone

NO_INVENTORY: Final = "no-inventory"
NO_SUCH_CARD: Final = "no-such-card"
DOES_NOT_FIT: Final = "does-not-fit"
DISAGREES: Final = "disagrees"
UNIT: Final = "unit"
TERMINATING: Final = "terminating"
PENDING: Final = "pending"
NOT_ASSIGNED: Final = "not-assigned"
WHOLE_CARD: Final = "whole-card"
_ASSIGNED: Final = "true"
_LONGEST: Final = 64
# More than any card has: a higher number means that the units are smaller than configured.
_LARGEST_CARD_MIB: Final = 2**20


class BoundBy(StrEnum):
    """The scheduler that chose a pod's cards. EXTENDER: the legacy one, or another that writes its annotations."""

    SCHEDULER = "scheduler"
    EXTENDER = "extender"
    NOBODY = "nobody"


class AdoptionBlocker(NamedTuple):
    """A check that a pod failed. pod: with its node, if it has one. detail: about this pod, or ""."""

    check: str
    pod: str
    detail: str = ""


class _Check(NamedTuple):
    """One check. words: follow "2 pods: ". remedy: may contain `{ours}` for our schedulerName."""

    severity: Severity
    words: str
    remedy: str


_AGAIN: Final = "create them again with schedulerName: {ours}"
_EVERYWHERE: Final = "so each pod counts against every card of its node"
_FAILED: Final = Severity.FAILED
# In the order of the report.
_CHECKS: Final = {
    WITHOUT_CARD: _Check(_FAILED, f"no annotation names a card, {_EVERYWHERE}", _AGAIN),
    NO_SUCH_CARD: _Check(_FAILED, f"the annotation names a card that the node does not have, {_EVERYWHERE}", _AGAIN),
    DOES_NOT_FIT: _Check(
        _FAILED, f"the card that the annotation names has less than the pod requests, {_EVERYWHERE}", _AGAIN
    ),
    UNKNOWN_CARD: _Check(
        _FAILED, "the annotations name the UUID of a card that the node does not announce", "kubectl gpushare audit"
    ),
    UNIT: _Check(
        _FAILED, "the numbers are in a memory unit other than the node's", f"{_AGAIN}, in the unit of the node"
    ),
    DISAGREES: _Check(_FAILED, "annotations and requests differ; the requests are counted", _AGAIN),
    NO_NODE: _Check(_FAILED, "the node does not exist", "delete them"),
    TERMINATING: _Check(
        _FAILED,
        "being deleted; they still count, but the extender may already allocate their memory to others",
        "wait until they no longer exist",
    ),
    PENDING: _Check(
        _FAILED,
        "waiting for another scheduler, which assigns cards only while the extender runs",
        _AGAIN,
    ),
    NOT_ASSIGNED: _Check(
        Severity.WARNING,
        f"{names.MEM_ASSIGNED} is not `true`: the containers may use a card other than the one counted, or none",
        f"kubectl exec POD -- printenv {names.MEM_IDX}",
    ),
    WHOLE_CARD: _Check(
        Severity.WARNING,
        f"requests for all units of a card; our device plugin may announce one unit less, {_EVERYWHERE}",
        "request one unit less, or set countReservedMemory: true in the plugin's configuration (docs/migrate.md)",
    ),
}


def bound_by(pod: Pod) -> BoundBy:
    """Return the scheduler that chose the pod's cards, identified by the pod's annotations."""
    written = pod.annotations
    if names.CARDS in written or names.UNIT_MIB in written:
        return BoundBy.SCHEDULER
    return BoundBy.EXTENDER if names.MEM_IDX in written or names.ALLOCATION in written else BoundBy.NOBODY


def blockers(reading: ClusterSnapshot, record: PodRecord, largest_mib: int) -> Iterator[AdoptionBlocker]:
    """Yield the blockers of a pod that has a node and holds units. largest_mib: memory of the largest card."""
    pod, held, tables = record.pod, record.held, reading.engine.tables
    told = f"pod/{pod.key} on node {record.node}"
    if held is None:
        yield AdoptionBlocker(NO_NODE, told)
        return
    announced = tables.inventory(record.node)
    for check, detail in _of_cards(record, held, announced):
        yield AdoptionBlocker(check, told, detail)
    for uuid, units in held.lost:
        yield AdoptionBlocker(UNKNOWN_CARD, told, f"{units} units of {uuid[:_LONGEST]}")
    if bound_by(pod) is BoundBy.SCHEDULER:
        return
    if pod.terminating:
        since = reading.terminating_since.get(pod.key.uid, "")
        yield AdoptionBlocker(TERMINATING, told, f"since {since}" if since else "")
    legacy = None if has_inventory(tables, record.node) else announced
    if concern := whole_cards.concern(pod.template.gpu_request, reading.unit_mib, largest_mib, legacy):
        yield AdoptionBlocker(WHOLE_CARD, told, concern)
    if bound_by(pod) is BoundBy.EXTENDER:
        yield from (AdoptionBlocker(DISAGREES, told, detail) for detail in _of_request(record))
        # On a node with one card, the legacy plugin allocates that card without an annotation.
        may_differ = len(announced.cards) > 1 and not announced.has_uuids and pod.phase == RUNNING
        if may_differ and not held.unknown and pod.annotations.get(names.MEM_ASSIGNED) != _ASSIGNED:
            yield AdoptionBlocker(NOT_ASSIGNED, told)


def waiting(reading: ClusterSnapshot, largest_mib: int) -> Iterator[AdoptionBlocker]:
    """Yield the blockers among pods that wait for another scheduler. largest_mib: memory of the largest card."""
    for pod in sorted(reading.of_others.values(), key=lambda one: str(one.key)):
        index = legacy_index(pod.annotations)
        # The extender first writes the card and then binds the pod. If binding fails, the annotation stays.
        left = "" if index is None else f"; annotated for card {index}, and not bound"
        yield AdoptionBlocker(PENDING, f"pod/{pod.key}", f"schedulerName {pod.scheduler_name[:_LONGEST]}{left}")
        if concern := whole_cards.concern(pod.template.gpu_request, reading.unit_mib, largest_mib):
            yield AdoptionBlocker(WHOLE_CARD, f"pod/{pod.key}", concern)


def of_pods(reading: ClusterSnapshot, blocked: Iterable[AdoptionBlocker]) -> Iterator[ClusterFinding]:
    """Yield one finding for each check."""
    pods: dict[str, list[str]] = {check: [] for check in _CHECKS}
    for one in blocked:
        pods[one.check].append(f"{one.pod}: {one.detail}" if one.detail else one.pod)
    for check, about in pods.items():
        if about:
            severity, words, remedy = _CHECKS[check]
            message = f"{_count(about, 'pod')}: {words}"
            remedy = remedy.format(ours=own_name(reading.engine))
            yield ClusterFinding(check=check, severity=severity, message=message, about=tuple(about), remedy=remedy)


def of_nodes(reading: ClusterSnapshot, nodes: Sequence[str]) -> Iterator[ClusterFinding]:
    """Yield findings about nodes. nodes: with cards, or with pods that hold cards."""
    tables, unit = reading.engine.tables, unit_name(reading.unit_mib)
    without = [f"node/{name}" for name in nodes if not has_inventory(tables, name)]
    if without:
        message = f"{_count(without, 'node')} without {names.INVENTORY}: our device plugin does not run there yet"
        remedy = "docs/migrate.md: the device plugin, node by node"
        yield ClusterFinding(check=NO_INVENTORY, severity=_FAILED, message=message, about=tuple(without), remedy=remedy)
    absurd = [f"node/{name}: {units} on one card" for name in nodes if (units := _absurd(tables.inventory(name)))]
    if absurd:
        message = (
            f"{_count(absurd, 'node')} with more units on a card than any card has {unit}: their units must be smaller"
        )
        remedy = "memoryUnitMiB: 1 in the configuration, as --memory-unit=MiB of the legacy device plugin"
        yield ClusterFinding(check=UNIT, severity=_FAILED, message=message, about=tuple(absurd), remedy=remedy)


def has_inventory(tables: Tables, node: str) -> bool:
    """Return whether our device plugin has announced the node's cards."""
    return names.INVENTORY in (tables.node(node).metadata.annotations or {})


def _absurd(announced: NodeInventory) -> int:
    """Return the units of a card that announces more than any card has; 0 if there is none."""
    largest = max((card.units for card in announced.cards), default=0)
    return largest if largest * announced.unit_mib > _LARGEST_CARD_MIB else 0


def _of_cards(record: PodRecord, held: Held, announced: NodeInventory) -> Iterator[tuple[str, str]]:
    """Yield (check, detail) for each problem with the pod's cards."""
    booked, written = held.booked, record.written
    if booked.blocks:
        yield UNIT, booked.problem
    elif held.unknown:
        yield _of_unknown(record, announced)
    elif booked.problem:
        yield DISAGREES, booked.problem
    elif held.places and booked.unit_mib != announced.unit_mib:
        yield UNIT, f"{written.units} {unit_name(booked.unit_mib)} count as {held.places[0][1]}"


def _of_unknown(record: PodRecord, announced: NodeInventory) -> tuple[str, str]:
    written, said = record.written, record.pod.annotations.get(names.MEM_IDX)
    if written.problem:
        return DISAGREES, written.problem
    if written.decided:
        missing = [index for index in written.per_card if index not in {card.index for card in announced.cards}]
        if missing:
            return NO_SUCH_CARD, f"card {missing[0]}; the node has {_count(announced.cards, 'card')}"
        return DOES_NOT_FIT, record.written.summary()
    if said is None:
        return WITHOUT_CARD, ""
    if legacy_index(record.pod.annotations) is None:
        return NO_SUCH_CARD, f"{names.MEM_IDX} is {said[:_LONGEST]!r}"
    return DISAGREES, f"{names.MEM_IDX} names one card, but the pod requests several"


def _of_request(record: PodRecord) -> Iterator[str]:
    said = record.pod.annotations.get(names.MEM_POD, "none")
    written = record.written
    if written.decided and written.index_only and said != str(written.units):
        yield f"{names.MEM_POD} is {said[:_LONGEST]}, but its containers request {written.units}"


def _count(found: Sequence[object], what: str) -> str:
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}"


_BY: Final = {BoundBy.SCHEDULER: "this scheduler", BoundBy.EXTENDER: "the extender", BoundBy.NOBODY: "nobody"}


class CountedUnits(Answer, frozen=True):
    """Units of a pod on a card, in the node's unit."""

    index: int
    units: int


class AdoptedPod(Answer, frozen=True):
    """Pod with a node. units: its request, in the unit of the request. known: whether its cards are known.

    cards: cards on which it counts; every card of the node if unknown. problems: checks that it failed.
    """

    pod: str
    by: BoundBy
    units: int
    known: bool
    terminating: bool
    cards: tuple[CountedUnits, ...]
    problems: tuple[str, ...]


class AdoptedCard(Answer, frozen=True):
    """Card of a node. uuid: "" if the node announces none. units: its total. counted: units that pods hold."""

    index: int
    uuid: str
    units: int
    counted: int


class AdoptedNode(Answer, frozen=True):
    """Node with its cards and pods. inventory: whether our device plugin has announced the cards. pods: by name."""

    node: str
    inventory: bool
    cards: tuple[AdoptedCard, ...]
    pods: tuple[AdoptedPod, ...]


class Adoption(Findings, frozen=True):
    """Result of `adopt`. nodes: those with GPU memory, or with pods that hold some, by name."""

    nodes: tuple[AdoptedNode, ...]


def adoption(reading: ClusterSnapshot, unread: tuple[str, ...] = ()) -> Adoption:
    """Return the adoption of every node and pod. unread: objects that could not be read, one line each."""
    tables, nodes, blocked = reading.engine.tables, list[AdoptedNode](), list[AdoptionBlocker]()
    largest_mib = whole_cards.largest_mib(tables)
    found = [ClusterFinding(check="object", severity=Severity.WARNING, message=line) for line in unread]
    for name in sorted(tables.row_of):
        records = sorted(holding(tables.records_on(name)), key=lambda record: str(record.pod.key))
        if tables.inventory(name).state is GpuState.NO_CARDS and not records:
            continue
        of_its_pods = {record.pod.key.uid: list(blockers(reading, record, largest_mib)) for record in records}
        blocked += [one for each in of_its_pods.values() for one in each]
        nodes.append(_node(tables, name, records, of_its_pods))
        audited = reading.engine.audit_node(name)
        found += of_node(tables, audited) if audited is not None else ()
    homeless = without_node(tables)
    blocked += [one for record in homeless for one in blockers(reading, record, largest_mib)]
    found += of_nodes(reading, [node.node for node in nodes])
    found += of_pods(reading, (*blocked, *waiting(reading, largest_mib)))
    return Adoption(looked_at=_looked_at(nodes, len(homeless)), findings=tuple(found), nodes=tuple(nodes))


def _node(
    tables: Tables, name: str, records: list[PodRecord], blocked: dict[str, list[AdoptionBlocker]]
) -> AdoptedNode:
    announced, row = tables.inventory(name), tables.row_of[name]
    cards = tuple(
        AdoptedCard(
            index=slot.card.index,
            uuid=slot.card.uuid if announced.has_uuids else "",
            units=slot.card.units,
            counted=int(tables.cards.stored.taken[number, row]),
        )
        for number, slot in enumerate(tables.cards.slots[row])
    )
    return AdoptedNode(
        node=name,
        inventory=has_inventory(tables, name),
        cards=cards,
        pods=tuple(_pod(record, cards, blocked[record.pod.key.uid]) for record in records),
    )


def _pod(record: PodRecord, cards: tuple[AdoptedCard, ...], blocked: list[AdoptionBlocker]) -> AdoptedPod:
    held = record.held
    places = () if held is None else held.places
    return AdoptedPod(
        pod=str(record.pod.key),
        by=bound_by(record.pod),
        units=record.written.units,
        known=held is not None and not held.unknown,
        terminating=record.pod.terminating,
        cards=tuple(CountedUnits(index=cards[slot].index, units=units) for slot, units in places),
        problems=tuple(one.check for one in blocked),
    )


def _looked_at(nodes: list[AdoptedNode], homeless: int) -> str:
    by = Counter(pod.by for node in nodes for pod in node.pods)
    total = sum(by.values()) + homeless
    told = ", ".join(f"{words}: {by[one]}" for one, words in _BY.items())
    return f"Nodes with GPU memory: {len(nodes)}, pods with GPU memory: {total}; cards chosen by {told}"


_HEAD: Final = ("NODE", "CARD", "UNITS", "COUNTED", "POD", "CHOSEN-BY", "HOLDS", "PROBLEM")
_RIGHT: Final = (1, 2, 3, 6)
_NONE: Final = "-"


def lines(found: Adoption) -> Iterator[Line]:
    """Yield a line for each card and pod, then the blockers, so that the end of a long answer stays visible."""
    rows = [row for node in found.nodes for row in _rows(node)]
    if rows:
        tones = (Tone.HEAD, *(Tone.BAD if bad else Tone.PLAIN for _, bad in rows))
        texts = columns(_HEAD, [cells for cells, _ in rows], _RIGHT)
        yield from (Line(text, tone) for text, tone in zip(texts, tones, strict=True))
        yield Line("")
    yield from findings.lines(found)


def _rows(node: AdoptedNode) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield (cells, whether something is wrong)."""
    on: dict[int, list[tuple[AdoptedPod, int]]] = {card.index: [] for card in node.cards}
    for pod in node.pods:
        for share in pod.cards:
            on[share.index].append((pod, share.units))
    for card in node.cards:
        for pod, units in on[card.index]:
            yield (node.node, *_of_card(card), *_of_pod(pod, units)), _is_overcommitted(card) or bool(pod.problems)
        if not on[card.index]:
            yield (node.node, *_of_card(card), *[_NONE] * 3, ""), False
    for pod in node.pods:
        if not pod.cards:
            yield (node.node, *[_NONE] * 3, *_of_pod(pod, pod.units)), True


def _of_card(card: AdoptedCard) -> tuple[str, str, str]:
    return str(card.index), str(card.units), str(card.counted)


def _of_pod(pod: AdoptedPod, units: int) -> tuple[str, str, str, str]:
    return pod.pod, pod.by, str(units), ", ".join(pod.problems)


def _is_overcommitted(card: AdoptedCard) -> bool:
    return card.counted > card.units
