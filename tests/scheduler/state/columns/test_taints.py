"""Taint sets: random histories against a plain dict, and how often each set is judged."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scheduler.kube.objects import Taint
from scheduler.state.columns.arrays import ALL_ROWS, FIRST_CAPACITY
from scheduler.state.columns.taints import Taints, TaintSet, Verdicts

SETS = st.lists(st.builds(Taint, st.sampled_from("abc"), st.just("NoSchedule")), max_size=2).map(tuple)


def count(taints: TaintSet) -> int:
    """A verdict that tells sets apart."""
    return sum(10 ** "abc".index(taint.key) for taint in taints)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.taints = Taints()
        self.model: dict[int, TaintSet] = {}
        self.capacity = FIRST_CAPACITY
        self.early = Verdicts(count, np.int64)

    @rule(row=st.integers(0, 5), taints=SETS)
    def set_row(self, row: int, taints: TaintSet) -> None:
        self.taints.set_row(row, taints)
        self.model[row] = taints

    @rule()
    def grow(self) -> None:
        self.capacity += 3
        self.taints.grow(self.capacity)

    @invariant()
    def rows_keep_their_taints(self) -> None:
        assert [self.taints.of_row(row) for row in range(6)] == [self.model.get(row, ()) for row in range(6)]

    @invariant()
    def verdicts_kept_are_verdicts_made_anew(self) -> None:
        expected = [count(self.model.get(row, ())) for row in range(self.capacity)]
        assert self.early.over(self.taints, ALL_ROWS).tolist() == expected
        assert Verdicts(count, np.int64).over(self.taints, np.array([5, 0])).tolist() == [expected[5], expected[0]]

    @invariant()
    def sets_that_nobody_has_are_freed(self) -> None:
        assert len(self.taints.sets) <= 1 + 6 + 1


TestHistories = Histories.TestCase


def test_each_distinct_set_is_judged_once_however_many_nodes_have_it() -> None:
    taints, judged = Taints(), list[TaintSet]()

    def verdict(taint_set: TaintSet) -> bool:
        judged.append(taint_set)
        return bool(taint_set)

    verdicts, tainted = Verdicts(verdict, np.bool_), (Taint("a", "NoSchedule"),)
    for row in range(50):
        taints.set_row(row, tainted)
        assert verdicts.over(taints, ALL_ROWS).sum() == row + 1
    assert sorted(judged) == [(), tainted]


def test_a_code_that_stands_for_another_set_is_not_mistaken_for_the_old_one() -> None:
    taints, verdicts = Taints(), Verdicts(count, np.int64)
    taints.set_row(0, (Taint("a", "NoSchedule"),))
    assert verdicts.over(taints, np.array([0])).tolist() == [1]
    taints.set_row(0, ())
    taints.set_row(0, (Taint("c", "NoSchedule"),))
    assert verdicts.over(taints, np.array([0])).tolist() == [100]
