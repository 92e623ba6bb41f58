"""Problems that the ledger audit found on a node, for operators."""

from collections.abc import Iterator
from typing import Final

from scheduler.kube.problem import Problem
from scheduler.state.audit import NodeAudit

DIFFERS: Final = "LedgerDiffered"
OVERBOOKED: Final = "GPUOverbooked"
SHARED: Final = "GPUAnnouncedTwice"


def problems(found: NodeAudit) -> Iterator[Problem]:
    """Yield a problem for each finding. Those about a node are in namespace default, whose readers may see no pods."""
    if found.difference:
        yield _problem(found, f"the ledger of the node was wrong and has been repaired: {found.difference}", DIFFERS)
    for card in found.overcommitted:
        message = f"{card.without_pods}; kubectl gpushare audit names the largest pods on it"
        yield _problem(found, message, OVERBOOKED)
    for uuid, other in found.shared.items():
        message = f"node {other} also announces card {uuid}; at most one of the two nodes gets new pods on it"
        yield _problem(found, message, SHARED)


def _problem(found: NodeAudit, message: str, reason: str) -> Problem:
    return Problem("Node", found.node, message, found.uid, reason=reason)
