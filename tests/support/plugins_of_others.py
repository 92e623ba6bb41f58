"""Classes that a package might offer as plugins; most of them are invalid."""

from typing import ClassVar

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import (
    Allow,
    CardFilterPlugin,
    CardRejection,
    FilterPlugin,
    PermitPlugin,
    PermitResult,
    PluginArgs,
    Rejected,
    Rejection,
    ScorePlugin,
)
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, Rows
from scheduler.state.tables import Tables


class Sound(FilterPlugin):
    """Rejects nothing."""

    name: ClassVar[str] = "Sound"
    on_by_default: ClassVar[bool] = True

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> tuple[Rejection, ...]:  # noqa: ARG002
        return ()


class Abstract(FilterPlugin):
    name: ClassVar[str] = "Abstract"


class Starred(Sound):
    name: ClassVar[str] = "*"


class Nameless(Sound):
    name: ClassVar[str] = ""


class Needy(Sound):
    name: ClassVar[str] = "Needy"

    class Args(PluginArgs):
        must: int


class Heavy(Sound, ScorePlugin):
    name: ClassVar[str] = "Heavy"
    default_weight: ClassVar[int] = 500

    def scores(self, pod: Pod) -> bool:  # noqa: ARG002
        return True

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:  # noqa: ARG002
        return np.zeros(len(tables.valid[rows]), dtype=np.int64)


class Taken(Sound):
    name: ClassVar[str] = "GpuShare"


class FarCards(CardFilterPlugin):
    """Reads other nodes, which a card rule must not do."""

    name: ClassVar[str] = "FarCards"
    depends: ClassVar[Change] = Change.CARDS | Change.DOMAINS

    def filter_cards(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> tuple[CardRejection, ...]:  # noqa: ARG002
        return ()


class FloatScores(Sound, ScorePlugin):
    """Returns float scores after the first time."""

    name: ClassVar[str] = "FloatScores"

    def scores(self, pod: Pod) -> bool:  # noqa: ARG002
        return True

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:  # noqa: ARG002
        return np.zeros(len(tables.valid[rows]))  # type: ignore[return-value]


class WideMask(Sound):
    """Rejects every node, regardless of the evaluated rows."""

    name: ClassVar[str] = "WideMask"

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> tuple[Rejection, ...]:  # noqa: ARG002
        return (Rejection(np.zeros(tables.capacity + 1, dtype=np.bool_), "wide"),)


class Permission(PermitPlugin):
    """Admits pods that have the annotation `go`."""

    name: ClassVar[str] = "Permission"

    def signature(self, pod: Pod, tables: Tables) -> str | None:  # noqa: ARG002
        return pod.annotations.get("go")

    def permit(self, pod: Pod, node: str) -> PermitResult:  # noqa: ARG002
        return Allow.ALLOW if "go" in pod.annotations else Rejected("not yet")
