"""Order of the kinds of work: hints, then the best rank; equals take turns."""

from collections.abc import Sequence

from scheduler.core.agenda import Agenda, Rank, Work
from scheduler.core.effects import Effect


class Pile(Work):
    """Work with these ranks, one for each step; None in place of a rank: the step finds nothing."""

    def __init__(self, log: list[str], name: str, *ranks: Rank, hollow: bool = False) -> None:
        self.log, self.name, self.ranks, self.hollow = log, name, list(ranks), hollow

    def rank(self, now_s: float) -> Rank | None:  # noqa: ARG002
        return self.ranks[0] if self.ranks else None

    def step(self, now_s: float, now_ns: int) -> Sequence[Effect] | None:  # noqa: ARG002
        if self.hollow or not self.ranks:
            return None
        self.ranks.pop(0)
        self.log.append(self.name)
        return ()


def run(agenda: Agenda) -> None:
    while agenda.step(0.0, 0) is not None:
        pass


def test_hints_come_before_everything_else() -> None:
    log: list[str] = []
    run(Agenda(Pile(log, "hint", 0, 0), [Pile(log, "decide", 9, 9)]))
    assert log == ["hint", "hint", "decide", "decide"]


def test_the_higher_priority_comes_first_and_equals_take_turns() -> None:
    log: list[str] = []
    run(Agenda(Pile(log, "hint"), [Pile(log, "decide", 5, 5, 5, 2), Pile(log, "search", 7, 5, 5, 3)]))
    assert log == ["search", "decide", "search", "decide", "search", "decide", "search", "decide"]


def test_three_kinds_of_equal_rank_all_have_their_turn() -> None:
    log: list[str] = []
    run(Agenda(Pile(log, "hint"), [Pile(log, name, -1, -1) for name in ("a", "b", "c")]))
    assert log == ["a", "b", "c", "a", "b", "c"]


def test_work_that_finds_nothing_to_do_leaves_the_turn_to_the_next() -> None:
    log: list[str] = []
    run(Agenda(Pile(log, "hint"), [Pile(log, "hollow", 9, hollow=True), Pile(log, "decide", 1)]))
    assert log == ["decide"]
