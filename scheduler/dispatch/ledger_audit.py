"""Audits the ledger periodically: one node after another, for a few milliseconds at a time.

    wait ── period ──▶ audit node after node, in slices ──▶ wait

A finding is reported in every round as long as it persists.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from scheduler.core.engine import Engine
from scheduler.kube.problem import Problem
from scheduler.state.audit import AuditRound, NodeAudit

_SLICE_S: Final = 0.003
DIFFERS: Final = "LedgerDiffered"
OVERBOOKED: Final = "GPUOverbooked"
SHARED: Final = "GPUAnnouncedTwice"


class LedgerAudit:
    """The periodic audit, which runs until cancelled."""

    def __init__(
        self,
        engine: Engine,
        *,
        period_s: float,
        now_s: Callable[[], float],
        report: Callable[[Problem], None],
        done: Callable[[AuditRound], None],
    ) -> None:
        """period_s: between rounds. report: called with each finding. done: called with the result of each round."""
        self._engine = engine
        self._period_s = period_s
        self._now_s = now_s
        self._report = report
        self._done = done

    async def run(self) -> None:
        """Run a round after each period."""
        while True:
            await asyncio.sleep(self._period_s)
            self._done(await self.round())

    async def round(self) -> AuditRound:
        """Audit every existing node once."""
        nodes = differences = overcommitted = 0
        shared: set[str] = set()
        until_s = self._now_s() + _SLICE_S
        for name in list(self._engine.tables.row_of):
            found = self._engine.audit_node(name)
            if found is not None:
                nodes += 1
                differences += bool(found.difference)
                overcommitted += len(found.overcommitted)
                shared.update(found.shared)
                self._report_node(found)
            if self._now_s() >= until_s:
                await asyncio.sleep(0)
                until_s = self._now_s() + _SLICE_S
        return AuditRound(nodes=nodes, differences=differences, overcommitted=overcommitted, shared=len(shared))

    def _report_node(self, found: NodeAudit) -> None:
        if found.difference:
            self._report_finding(
                found, f"the ledger of the node was wrong and has been repaired: {found.difference}", DIFFERS
            )
        for card in found.overcommitted:
            # An Event about a node is in namespace default, whose readers may not be allowed to see the pods.
            message = f"{card.without_pods}; kubectl gpushare audit names the largest pods on it"
            self._report_finding(found, message, OVERBOOKED)
        for uuid, other in found.shared.items():
            message = f"node {other} also announces card {uuid}; at most one of the two nodes gets new pods on it"
            self._report_finding(found, message, SHARED)

    def _report_finding(self, found: NodeAudit, message: str, reason: str) -> None:
        self._report(Problem("Node", found.node, message, found.uid, reason=reason))
