"""Plan of `defragment` as JSON and as lines for a terminal. Pure.

docs/defragment.md documents the shape of the JSON. Fields may be added, but never removed or changed in meaning.
"""

from collections.abc import Iterator, Mapping

from scheduler.process.terminal import columns
from scheduler.tools.explain.answers import Answer, NodeAndCards
from scheduler.tools.explain.tones import Line, Tone


class Move(Answer, frozen=True):
    """An eviction, and the destination of the successor. pod, owner: `namespace/name` and `kind name`.

    why: purpose of the move. gain_units: memory that typical pods can use only after the move; 0.0 in a plan for one
    pod.
    """

    pod: str
    owner: str
    at: NodeAndCards
    to: NodeAndCards
    why: str
    gain_units: float = 0.0


class FragmentedUnits(Answer, frozen=True):
    """Free memory of the cluster, in units. free: on allocatable cards. before, after: useless to typical pods."""

    free: float
    before: float
    after: float


class Defragmentation(Answer, frozen=True):
    """A plan. pod: the pod to make room for, "" for typical pods. place: the pod's placement after the moves, or None.

    moves: in order. words: sentences that state the facts. fragmentation: None in a plan for one pod.
    """

    pod: str
    words: tuple[str, ...]
    most_moves: int
    place: NodeAndCards | None
    moves: tuple[Move, ...]
    fragmentation: FragmentedUnits | None = None

    @property
    def found(self) -> bool:
        """True if the plan succeeds: there is room for the pod.

        Fragmentation that cannot be reduced is not a failure.
        """
        return self.place is not None or self.fragmentation is not None


def lines(answer: Defragmentation) -> Iterator[Line]:
    """Yield the verdict, the moves as a table, and further sentences."""
    yield Line(verdict(answer), Tone.PLAIN if answer.found else Tone.WARNING)
    for words in answer.words:
        yield Line(words)
    if answer.moves:
        yield Line("")
        head = ("", "POD", "OWNER", "FROM", "TO", "FOR")
        rows = [_row(number, move) for number, move in enumerate(answer.moves, 1)]
        for number, text in enumerate(columns(head, rows, right=(0,))):
            yield Line(text, Tone.PLAIN if number else Tone.HEAD)


def units_text(units: float) -> str:
    """Return text such as `4` or `1.5`, with a decimal only if it is not 0."""
    return f"{units:.1f}".removesuffix(".0")


def verdict(answer: Defragmentation) -> str:
    """Return a sentence about the effect of the moves."""
    count = _moves(len(answer.moves))
    if answer.fragmentation is not None:
        of = answer.fragmentation
        if not answer.moves:
            none = "No move lowers the fragmentation"
            return (
                f"{none}: {units_text(of.before)} of {units_text(of.free)} free units cannot be used by typical pods."
            )
        verb = "reduces" if len(answer.moves) == 1 else "reduce"
        change = f"from {units_text(of.before)} to {units_text(of.after)} of {units_text(of.free)} free units"
        return f"{count} {verb} the memory that typical pods cannot use {change}."
    if answer.place is None:
        return f"Pod {answer.pod} does not fit, and no plan of at most {_moves(answer.most_moves)} was found."
    where = where_of(answer.place.node, answer.place.cards)
    if not answer.moves:
        return f"Pod {answer.pod} fits without moves: on {where}."
    return f"Pod {answer.pod} fits after {count}: on {where}."


def where_of(node: str, cards: Mapping[int, int]) -> str:
    """Return text such as `node n1, card 0 (8)`, or only the node."""
    return f"node {node}, card {_cards(cards)}" if cards else f"node {node}"


def _moves(count: int) -> str:
    return f"{count} move{'' if count == 1 else 's'}"


def _row(number: int, move: Move) -> tuple[str, ...]:
    places = (f"{one.node}, card {_cards(one.cards)}" if one.cards else one.node for one in (move.at, move.to))
    return (str(number), move.pod, move.owner, *places, move.why)


def _cards(cards: Mapping[int, int]) -> str:
    """Return text such as `0 (8), 1 (8)`, or `0-7 (8 each)` if all are equal."""
    indexes = sorted(cards)
    if len(indexes) > 1 and len(set(cards.values())) == 1:
        joined = indexes == list(range(indexes[0], indexes[-1] + 1))
        named = f"{indexes[0]}-{indexes[-1]}" if joined else ",".join(map(str, indexes))
        return f"{named} ({cards[indexes[0]]} each)"
    return ", ".join(f"{index} ({units})" for index, units in sorted(cards.items()))
