"""What `defragment` answers, as it prints it in JSON.

The shape is documented in docs/defragment.md; fields may be added, none is removed or changes its meaning.
"""

from scheduler.tools.explain.answers import Answer, NodeAndCards


class Move(Answer, frozen=True):
    """A pod that is evicted, and where its successor would go. pod, owner: `namespace/name` and `kind name`.

    why: what the move is for. gain_units: of memory, that pods as they usually come can use afterwards and could not
    before; 0.0 where the moves are for one pod.
    """

    pod: str
    owner: str
    at: NodeAndCards
    to: NodeAndCards
    why: str
    gain_units: float = 0.0


class FragmentedUnits(Answer, frozen=True):
    """Of the whole cluster, in memory units. free: of cards that may be given out. before, after: of them, unusable."""

    free: float
    before: float
    after: float


class Defragmentation(Answer, frozen=True):
    """A plan. pod: for which, "" for pods as they usually come. place: of the pod after the moves; None: there is none.

    moves: in the order in which they are to be made. words: what there is to say, in sentences. fragmentation: None
    where the moves are for one pod.
    """

    pod: str
    words: tuple[str, ...]
    most_moves: int
    place: NodeAndCards | None
    moves: tuple[Move, ...]
    fragmentation: FragmentedUnits | None = None

    @property
    def found(self) -> bool:
        """Whether there is what was asked for: room for the pod. Fragmentation that nothing lowers is no fault."""
        return self.place is not None or self.fragmentation is not None
