"""Audits the ledger: recounts one node after another, in rounds. Pure; `scheduler/state/audit.py` recounts.

    wait ── period ──▶ node after node ──▶ wait

A finding is returned in every round as long as it persists.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import ClassVar

from scheduler.core.agenda import BackgroundWork
from scheduler.core.effects import Audited, Effect, NodeAudited
from scheduler.state.audit import AuditRound, NodeAudit, audit_node
from scheduler.state.tables import Tables


class LedgerAudit(BackgroundWork):
    """The periodic audit."""

    rest: ClassVar[float] = 1.0

    def __init__(self, tables: Tables, *, period_s: float) -> None:
        """period_s: between two rounds; inf for none."""
        self._tables = tables
        self._period_s = period_s
        self._next_s = inf
        self._left: Iterator[str] | None = None
        self._round = AuditRound()
        self._shared: set[str] = set()

    def begin(self, now_s: float) -> None:
        """Start the first period."""
        self._next_s = now_s + self._period_s

    def due_s(self) -> float:
        return self._next_s if self._left is None else -inf

    def step(self, now_s: float) -> Sequence[Effect]:
        """Audit one node, or end the round."""
        if self._left is None:
            self._left, self._round = iter(list(self._tables.row_of)), AuditRound()
            self._shared.clear()
        name = next(self._left, None)
        if name is None:
            self._left, self._next_s = None, now_s + self._period_s
            return (Audited(replace(self._round, shared=len(self._shared))),)
        found = audit_node(self._tables, name)
        return () if found is None else self._counted(found)

    def _counted(self, found: NodeAudit) -> Sequence[Effect]:
        self._round = AuditRound(
            nodes=self._round.nodes + 1,
            differences=self._round.differences + bool(found.difference),
            overcommitted=self._round.overcommitted + len(found.overcommitted),
        )
        self._shared.update(found.shared)
        return (NodeAudited(found),) if found.difference or found.overcommitted or found.shared else ()
