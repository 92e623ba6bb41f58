"""Evaluates one rule for a pod on every node: the starting point of plugin tests."""

from collections.abc import Mapping

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, PreFilterPlugin, Rejected, Relevance, ScorePlugin
from scheduler.kube.objects import Node
from scheduler.plugins.fragmentation.target_workload import TargetWorkload
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.columns.arrays import ALL_ROWS, Rows
from scheduler.state.tables import Tables


def tables_of(*nodes: Node) -> Tables:
    """Return tables with these nodes."""
    tables = Tables(ResourceNames())
    tables.fact(TargetWorkload)
    for node in nodes:
        tables.upsert_node(node)
    return tables


def state_of(plugin: PreFilterPlugin, pod: Pod, tables: Tables) -> CycleState:
    """Return the state after a PreFilter that did not reject."""
    state = CycleState()
    assert not isinstance(plugin.pre_filter(pod, tables, state), Rejected)
    return state


def reasons(plugin: FilterPlugin, pod: Pod, tables: Tables, state: CycleState | None = None) -> dict[str, set[str]]:
    """Return reason -> nodes that the rule rejects. Evaluates all rows at once and row by row: both must agree."""
    skipped = isinstance(plugin, PreFilterPlugin) and _skips(plugin, pod, tables)
    if state is None:
        state = state_of(plugin, pod, tables) if isinstance(plugin, PreFilterPlugin) else CycleState()
    everywhere = {} if skipped else _against(plugin, pod, tables, state, ALL_ROWS)
    one_by_one: dict[str, set[str]] = {}
    for row in () if skipped else tables.row_of.values():
        for reason, nodes in _against(plugin, pod, tables, state, np.array([row], dtype=np.intp)).items():
            one_by_one.setdefault(reason, set()).update(nodes)
    assert everywhere == one_by_one
    return everywhere


def rejected(plugin: FilterPlugin, pod: Pod, tables: Tables) -> set[str]:
    """Return the nodes that the rule rejects, for any reason."""
    return set().union(*reasons(plugin, pod, tables).values())


def scored(plugin: ScorePlugin, pod: Pod, tables: Tables) -> Mapping[str, int]:
    """Return node -> raw score; over all rows, over some and row by row, which must agree."""
    if not plugin.scores(pod):
        return dict.fromkeys(tables.row_of, 0)
    state = CycleState()
    everywhere = plugin.score(pod, tables, state, ALL_ROWS)
    found = {name: int(everywhere[row]) for name, row in tables.row_of.items()}
    for name, row in tables.row_of.items():
        for alone in (np.array([row], dtype=np.intp), slice(row, row + 1)):
            assert plugin.score(pod, tables, state, alone).tolist() == [found[name]]
    return found


def _skips(plugin: PreFilterPlugin, pod: Pod, tables: Tables) -> bool:
    return plugin.pre_filter(pod, tables, CycleState()) is Relevance.SKIP


def _against(plugin: FilterPlugin, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> dict[str, set[str]]:
    judged = np.arange(tables.capacity)[rows]
    found: dict[str, set[str]] = {}
    for rejection in plugin.filter(pod, tables, state, rows):
        against = judged[rejection.rejected]
        nodes = {tables.names[row] for row in against.tolist()} - {""}
        if nodes:
            found.setdefault(rejection.reason, set()).update(nodes)
    return found
