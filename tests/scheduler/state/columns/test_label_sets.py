"""Which sets of labels a selector accepts, as label by label."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.state.columns.label_sets import LabelSets
from scheduler.state.columns.selectors import Expression, Operator, match

KEYS = [f"k{number}" for number in range(20)]
VALUES = [f"v{number}" for number in range(24)]
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=20)
MANY = st.frozensets(st.sampled_from(VALUES), min_size=1)
EXPRESSIONS = st.one_of(
    st.builds(Expression, st.sampled_from(KEYS), st.sampled_from([Operator.IN, Operator.NOT_IN]), MANY),
    st.builds(Expression, st.sampled_from(KEYS), st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
)


@given(st.lists(st.tuples(LABELS, st.booleans()), min_size=1, max_size=40), st.lists(EXPRESSIONS, max_size=4))
@settings(deadline=None)
def test_sets_that_come_and_go_are_accepted_as_their_labels_are(
    steps: list[tuple[dict[str, str], bool]], selector: list[Expression]
) -> None:
    sets = LabelSets()
    there: dict[int, dict[str, str]] = {}
    for labels, stays in steps:
        code = sets.take(labels)
        assert (sets.code(labels), sets.labels(code)) == (code, labels)
        there[code] = labels
        if not stays:
            sets.drop(code)
            there = {code: labels for code, labels in there.items() if sets.code(labels) == code}
    codes = np.array(list(there), dtype=np.int32)
    assert sets.accepted(tuple(selector), codes).tolist() == [
        match(tuple(selector), labels) for labels in there.values()
    ]


def test_a_key_with_more_values_than_are_compared_one_by_one() -> None:
    sets = LabelSets()
    codes = np.array([sets.take({"k": value}) for value in VALUES] + [sets.take({})], dtype=np.int32)
    assert sets.accepted((Expression("k", Operator.EXISTS),), codes).sum() == len(VALUES)
    wanted = Expression("k", Operator.IN, frozenset(VALUES[:20]))
    assert sets.accepted((wanted,), codes).tolist() == [True] * 20 + [False] * 5
