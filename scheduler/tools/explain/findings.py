"""Findings of `kubectl gpushare audit` and `doctor`, with their remedies. Pure.

`kubectl gpushare audit` finds problems of pods' allocations on every node of a filled engine. It counts like the
scheduler's own ledger audit (`scheduler/state/audit.py`), and also finds problems that the ledger audit cannot repair.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

from scheduler.core.engine import Engine
from scheduler.kube import objects
from scheduler.state.audit import NodeAudit
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables
from scheduler.tools.explain.answers import Answer
from scheduler.tools.explain.tones import Line, Tone

_MOST_SHOWN: Final = 20


class Severity(StrEnum):
    """Severity of a finding. FAILED sets the exit code; UNKNOWN could not be checked."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


class ClusterFinding(Answer, frozen=True):
    """A finding. check: one word, as in docs/kubectl.md. about: the objects, as `node/a` and `pod/default/p`.

    remedy: what to do, or "".
    """

    check: str
    severity: Severity
    message: str
    about: tuple[str, ...] = ()
    remedy: str = ""


class Findings(Answer, frozen=True):
    """Findings in their order of importance. looked_at: the objects read, in words."""

    looked_at: str
    findings: tuple[ClusterFinding, ...]

    @property
    def clean(self) -> bool:
        """True if nothing failed."""
        return all(one.severity is not Severity.FAILED for one in self.findings)


def of_nodes(
    check: str, severity: Severity, message: str, nodes: Sequence[objects.Node], remedy: str
) -> ClusterFinding:
    """Return a finding about each of the nodes."""
    about = tuple(f"node/{node.metadata.name}" for node in nodes)
    return ClusterFinding(check=check, severity=severity, message=message, about=about, remedy=remedy)


def count(found: Sequence[object], what: str) -> str:
    """Return text such as `1 node` or `2 nodes`."""
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}"


_TONES: Final = {
    Severity.OK: Tone.GOOD,
    Severity.WARNING: Tone.WARNING,
    Severity.FAILED: Tone.BAD,
    Severity.UNKNOWN: Tone.WARNING,
}


def lines(found: Findings) -> Iterator[Line]:
    """Yield lines for a terminal."""
    counts = [(severity, sum(one.severity is severity for one in found.findings)) for severity in Severity]
    told = ", ".join(f"{count} {severity}" for severity, count in counts if count)
    yield Line(f"{found.looked_at}. {f'Found: {told}.' if told else 'No problems found.'}")
    for one in found.findings:
        yield Line(f"{one.severity:8} {one.check}: {one.message}", _TONES[one.severity])
        # Names that are in the sentence are not repeated.
        yield from _about([name for name in one.about if name.partition("/")[2] not in one.message])
        if one.remedy:
            yield Line(f"{'':8} do: {one.remedy}")


def _about(names: Sequence[str]) -> Iterator[Line]:
    for name in names[:_MOST_SHOWN]:
        yield Line(f"{'':10} {name}")
    if len(names) > _MOST_SHOWN:
        yield Line(f"{'':10} and {len(names) - _MOST_SHOWN} more")


OVERCOMMITTED: Final = "overcommitted"
ANNOUNCED_TWICE: Final = "announced-twice"
WITHOUT_CARD: Final = "without-card"
UNKNOWN_CARD: Final = "unknown-card"
NO_NODE: Final = "no-node"
INVENTORY: Final = "inventory"
LEDGER: Final = "ledger"


def audited(engine: Engine, unread: Iterable[str] = ()) -> Findings:
    """Audit every node and every pod with a node. unread: objects that could not be read, one line each."""
    tables, found = engine.tables, list[ClusterFinding]()
    pods = 0
    for name in sorted(tables.row_of):
        on_node = engine.audit_node(name)
        if on_node is not None:
            found += of_node(tables, on_node)
        records = sorted(holding(tables.records_on(name)), key=_name)
        pods += len(records)
        for record in records:
            found += _of_pod(record)
    homeless = without_node(tables)
    pods += len(homeless)
    found += map(_on_no_node, homeless)
    found += [ClusterFinding(check="object", severity=Severity.WARNING, message=line) for line in unread]
    return Findings(looked_at=f"Nodes: {len(tables.row_of)}, pods with GPU memory: {pods}", findings=tuple(found))


def of_node(tables: Tables, found: NodeAudit) -> Iterator[ClusterFinding]:
    """Yield problems of a node itself, independent of its pods."""
    where = (f"node/{found.node}",)
    if problem := tables.inventory(found.node).problem:
        yield ClusterFinding(
            check=INVENTORY, severity=Severity.FAILED, message=f"node {found.node}: {problem}", about=where
        )
    if found.difference:
        message = f"node {found.node}: {found.difference}"
        yield ClusterFinding(check=LEDGER, severity=Severity.FAILED, message=message, remedy="report it: this is a bug")
    for card in found.overcommitted:
        remedy = "delete pods until the rest fits; the largest pods are listed"
        message = f"node {found.node}: {card}"
        yield ClusterFinding(check=OVERCOMMITTED, severity=Severity.FAILED, message=message, about=where, remedy=remedy)
    for uuid, other in found.shared.items():
        message = f"node {found.node}: node {other} also announces card {uuid}"
        remedy = "one of them has a copy of the other's inventory: delete it; that plugin then writes its own"
        yield ClusterFinding(
            check=ANNOUNCED_TWICE, severity=Severity.FAILED, message=message, about=where, remedy=remedy
        )


def _of_pod(record: PodRecord) -> Iterator[ClusterFinding]:
    held = record.held
    if held is None:
        return
    if held.unknown:
        why = f": {held.booked.problem}" if held.booked.problem else ""
        message = f"{_pod(record)} on node {record.node}: its card is unknown, so it counts against every card{why}"
        yield _failed(WITHOUT_CARD, message, record, "create it again with this scheduler's schedulerName")
    elif held.booked.problem:
        yield _failed(WITHOUT_CARD, f"{_pod(record)} on node {record.node}: {held.booked.problem}", record)
    for uuid, units in held.lost:
        message = f"{_pod(record)} holds {units} units of card {uuid}, which node {record.node} does not announce"
        remedy = "check the node's driver and the plugin's log; delete the pod if the card was removed for good"
        yield _failed(UNKNOWN_CARD, message, record, remedy)


def _failed(check: str, message: str, record: PodRecord, remedy: str = "") -> ClusterFinding:
    about = (f"pod/{record.pod.key}", f"node/{record.node}")
    return ClusterFinding(check=check, severity=Severity.FAILED, message=message, about=about, remedy=remedy)


def without_node(tables: Tables) -> list[PodRecord]:
    """Return the pods that hold units of a missing node, by name."""
    return sorted((record for record in holding(tables.records()) if record.node not in tables.row_of), key=_name)


def _on_no_node(record: PodRecord) -> ClusterFinding:
    return _failed(NO_NODE, f"{_pod(record)} is on node {record.node}, which does not exist", record)


def holding(records: Iterable[PodRecord]) -> Iterator[PodRecord]:
    """Yield the pods that hold units; nominated pods do not, but their victims still do."""
    return (record for record in records if record.written.units and not record.nominated)


def _name(record: PodRecord) -> str:
    return str(record.pod.key)


def _pod(record: PodRecord) -> str:
    return f"pod {record.pod.key}"
