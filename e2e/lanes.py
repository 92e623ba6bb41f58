"""Lanes: which tests of a run with several workers stay in one worker, in order, and which lane starts first.

A module is a lane. The modules that need the node of the run share one of two lanes, so that a run has two such nodes
and not one for each worker.
"""

from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

_FIRST_NODE: Final = "first node"
_SECOND_NODE: Final = "second node"
_NODE_SUITES: Final = Path("e2e/suites/node")
_ELSEWHERE: Final = frozenset({"test_node", "test_migration_of_a_node"})
# Nodes of their own.
_ALONE: Final = frozenset({"test_nvidia_matrix", "test_nvidia_restarts", "test_planted_faults"})
# They share a cluster with controllers.
_CONTROLLED: Final = frozenset({"test_claims", "test_workloads"})
_ON_THE_SECOND: Final = frozenset(
    {
        "test_device_plugin_health",
        "test_device_plugin_restarts",
        "test_isolation",
        "test_rejected_by_kubelet",
        "test_uninstall",
        "test_way_in",
    }
)
_LONGEST: Final = (
    "test_documents",
    _FIRST_NODE,
    _SECOND_NODE,
    "test_local_cluster",
    "test_fire",
    "test_nvidia_matrix",
    "test_policies",
    "test_two_replicas",
)


def lane(node_id: str) -> str:
    """Name of the test's lane."""
    path = Path(node_id.partition("::")[0])
    if path.stem in _ON_THE_SECOND:
        return _SECOND_NODE
    if path.stem in _CONTROLLED:
        return "controlled"
    on_first = path.parent == _NODE_SUITES or path.stem in _ELSEWHERE
    return _FIRST_NODE if on_first and path.stem not in _ALONE else path.stem


def turn(item: pytest.Item) -> int:
    """Position of the test's lane: the longest lanes start first, the others as collected."""
    return _LONGEST.index(of) if (of := lane(item.nodeid)) in _LONGEST else len(_LONGEST)


class LaneScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each worker whole lanes, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid)
