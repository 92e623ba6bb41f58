"""Answers of `defragment`, in the form of its JSON.

The shape is documented in docs/defragment.md; fields may be added, but never removed or changed in meaning.
"""

from scheduler.tools.explain.answers import Answer, NodeAndCards


class Move(Answer, frozen=True):
    """An evicted pod, and the place of its successor. pod, owner: `namespace/name` and `kind name`.

    why: purpose of the move. gain_units: memory that typical pods can use only after the move; 0.0 for moves for one
    pod.
    """

    pod: str
    owner: str
    at: NodeAndCards
    to: NodeAndCards
    why: str
    gain_units: float = 0.0


class FragmentedUnits(Answer, frozen=True):
    """Fragmentation of the cluster, in memory units. free: of allocatable cards. before, after: unusable part of it."""

    free: float
    before: float
    after: float


class Defragmentation(Answer, frozen=True):
    """A plan. pod: the one to make room for, "" for typical pods. place: of the pod after the moves, or None.

    moves: in their order. words: facts, in sentences. fragmentation: None for moves for one pod.
    """

    pod: str
    words: tuple[str, ...]
    most_moves: int
    place: NodeAndCards | None
    moves: tuple[Move, ...]
    fragmentation: FragmentedUnits | None = None

    @property
    def found(self) -> bool:
        """Whether the plan succeeds: there is room for the pod. Irreducible fragmentation is not a failure."""
        return self.place is not None or self.fragmentation is not None
