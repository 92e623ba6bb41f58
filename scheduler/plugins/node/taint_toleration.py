"""TaintToleration: keeps pods off nodes whose taints they do not tolerate; prefers nodes with few soft taints.

Source: kube-scheduler, plugins/tainttoleration/taint_toleration.go; k8s.io/api/core/v1/toleration.go, ToleratesTaint,
with the gate TaintTolerationComparisonOperators off, which is the default.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

import numpy as np

from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    FilterPlugin,
    Normalization,
    PreFilterPlugin,
    PreFilterResult,
    Rejection,
    Relevance,
    ScorePlugin,
)
from scheduler.kube.objects import Taint, Toleration
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, Rows
from scheduler.state.columns.taints import TaintSet, Verdicts
from scheduler.state.tables import Tables

REASON: Final = "node(s) had untolerated taint(s)"
_HARD: Final = frozenset({"NoSchedule", "NoExecute"})
_SOFT: Final = "PreferNoSchedule"
_UNTOLERATED: Final[StateKey[Verdicts]] = StateKey("taint_toleration.untolerated")
_SOFT_COUNTS: Final[StateKey[Verdicts]] = StateKey("taint_toleration.soft_counts")


class TaintToleration(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Rejects nodes with taints that the pod does not tolerate; prefers nodes with fewer soft ones.

    `NoSchedule` and `NoExecute` reject, `PreferNoSchedule` is soft.

    - `node(s) had untolerated taint(s)`

    A toleration matches a taint if its effect is equal or empty, its key is equal or empty, and the operator is
    `Exists`, or `Equal` (also the default) with equal values. `Lt` and `Gt` tolerate nothing: they are behind a
    Kubernetes feature gate that is off by default. The raw score is the number of untolerated soft taints, reversed by
    the maximum. Each distinct set of taints is evaluated once per class of pods.
    Source: kube-scheduler, plugins/tainttoleration/taint_toleration.go; k8s.io/api/core/v1/toleration.go,
    ToleratesTaint.
    """

    name: ClassVar[str] = "TaintToleration"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.TAINTS
    normalization: ClassVar[Normalization] = Normalization.BY_MAX_REVERSED
    default_weight: ClassVar[int] = 3

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - nodes are judged later
        """Record, for each set of taints, whether the pod tolerates it."""
        state.write(_UNTOLERATED, Verdicts(partial(has_untolerated, tolerations=pod.template.tolerations), np.bool_))
        return Relevance.EVALUATE

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002
        """Reject nodes with a NoSchedule or NoExecute taint that the pod does not tolerate."""
        return (Rejection(state.read(_UNTOLERATED).over(tables.taints, rows), REASON),)

    def scores(self, pod: Pod) -> bool:  # noqa: ARG002 - whether any node has soft taints is not the pod's to say
        """Score every pod."""
        return True

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:
        """Return int64[rows]: the number of PreferNoSchedule taints that the pod does not tolerate."""
        return _soft_counts(pod, state).over(tables.taints, rows)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether one toleration tolerates one taint, by effect, key ("" means any) and value."""
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case _:
            return False


def tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Return whether any of `tolerations` tolerates the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def has_untolerated(taints: TaintSet, tolerations: Sequence[Toleration]) -> bool:
    """Return whether a NoSchedule or NoExecute taint is not tolerated."""
    return any(taint.effect in _HARD and not tolerated(taint, tolerations) for taint in taints)


def soft_untolerated(taints: TaintSet, tolerations: Sequence[Toleration]) -> int:
    """Return how many PreferNoSchedule taints are not tolerated."""
    return sum(taint.effect == _SOFT and not tolerated(taint, tolerations) for taint in taints)


def _soft_counts(pod: Pod, state: CycleState) -> Verdicts:
    """Return the counts, computed at the first Score, because a profile may leave out the Filter and thus PreFilter."""
    try:
        return state.read(_SOFT_COUNTS)
    except KeyError:
        counts = Verdicts(partial(soft_untolerated, tolerations=pod.template.tolerations), np.int64)
        state.write(_SOFT_COUNTS, counts)
        return counts
