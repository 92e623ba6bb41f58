"""Label columns against plain dicts, sets of labels as label by label, selectors over columns as each object reads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scheduler.kube.objects import LabelSelector, Requirement
from scheduler.state.columns.arrays import ALL_ROWS, FIRST_CAPACITY
from scheduler.state.columns.label_sets import LabelSets
from scheduler.state.columns.labels import ABSENT, Labels, integer
from scheduler.state.columns.selectors import Expression, Matcher, Operator, match, of_label_selector, parsed

KEYS = st.sampled_from(["zone", "arch", "gpu"])
ROWS = st.integers(0, 5)
LABELS = st.dictionaries(KEYS, st.sampled_from(["", "a", "-7", "12"]))


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.labels = Labels()
        self.model: dict[int, dict[str, str]] = {}
        self.capacity = FIRST_CAPACITY
        self.asked: set[str] = set()

    @rule(row=ROWS, labels=LABELS)
    def set_row(self, row: int, labels: dict[str, str]) -> None:
        self.labels.set_row(row, labels)
        self.model[row] = dict(labels)

    @rule(key=KEYS)
    def ask(self, key: str) -> None:
        self.asked.add(key)

    @rule()
    def grow(self) -> None:
        self.capacity += 3
        self.labels.grow(self.capacity)

    @invariant()
    def columns_say_what_the_rows_say(self) -> None:
        for key in self.asked:
            column = self.labels.column(key)
            assert len(column.codes) == self.capacity
            read = [None if code == ABSENT else column.values.value(code) for code in column.codes.tolist()]
            assert read == [self.model.get(row, {}).get(key) for row in range(self.capacity)]

    @invariant()
    def values_are_counted_and_freed(self) -> None:
        for key in self.asked:
            values = self.labels.column(key).values
            in_use = [labels[key] for labels in self.model.values() if key in labels]
            assert {value: values.uses(value) for value, _ in values.items()} == {v: in_use.count(v) for v in in_use}
            assert len(values) <= 6

    @invariant()
    def integers_are_those_that_the_values_write(self) -> None:
        for key in self.asked:
            column = self.labels.column(key)
            numbers, written = column.integers()
            for value, code in column.values.items():
                assert (int(numbers[code]) if written[code] else None) == integer(value)

    @invariant()
    def rows_keep_their_labels(self) -> None:
        assert all(self.labels.of_row(row) == labels for row, labels in self.model.items())


TestHistories = Histories.TestCase


def test_a_key_that_no_node_has_gets_no_column_however_many_pods_ask() -> None:
    labels = Labels()
    columns = {id(labels.column(f"tenant/{number}")) for number in range(100)}
    assert len(columns) == 1
    assert np.all(labels.column("tenant/0").codes == ABSENT)


def test_a_key_that_the_last_node_loses_gives_its_column_back_and_may_come_again() -> None:
    labels = Labels()
    labels.set_row(0, {"zone": "a"})
    assert labels.column("zone").codes[0] != ABSENT
    labels.set_row(0, {})
    assert labels.column("zone") is labels.column("never seen")
    labels.set_row(1, {"zone": "b"})
    column = labels.column("zone")
    assert column.values.value(int(column.codes[1])) == "b"


def test_the_vocabulary_moves_only_when_a_code_stands_for_another_value() -> None:
    labels = Labels()
    labels.set_row(0, {"zone": "a"})
    values = labels.column("zone").values
    before = values.version
    labels.set_row(1, {"zone": "a"})
    assert values.version == before
    labels.set_row(1, {"zone": "b"})
    assert values.version > before


# Sets of labels

MANY_KEYS = [f"k{number}" for number in range(20)]
MANY_VALUES = [f"v{number}" for number in range(24)]
MANY_LABELS = st.dictionaries(st.sampled_from(MANY_KEYS), st.sampled_from(MANY_VALUES), max_size=20)
MANY = st.frozensets(st.sampled_from(MANY_VALUES), min_size=1)
EXPRESSIONS = st.one_of(
    st.builds(Expression, st.sampled_from(MANY_KEYS), st.sampled_from([Operator.IN, Operator.NOT_IN]), MANY),
    st.builds(Expression, st.sampled_from(MANY_KEYS), st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
)


@given(st.lists(st.tuples(MANY_LABELS, st.booleans()), min_size=1, max_size=40), st.lists(EXPRESSIONS, max_size=4))
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
    codes = np.array([sets.take({"k": value}) for value in MANY_VALUES] + [sets.take({})], dtype=np.int32)
    assert sets.accepted((Expression("k", Operator.EXISTS),), codes).sum() == len(MANY_VALUES)
    wanted = Expression("k", Operator.IN, frozenset(MANY_VALUES[:20]))
    assert sets.accepted((wanted,), codes).tolist() == [True] * 20 + [False] * 5


# Selectors
#
# What each operator accepts: `tests/differential`, groups node_affinity and those of affinity.


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        pytest.param("In", (), id="In of nothing"),
        pytest.param("NotIn", (), id="NotIn of nothing"),
        pytest.param("Exists", ("a",), id="Exists with a value"),
        pytest.param("DoesNotExist", ("a",), id="DoesNotExist with a value"),
        pytest.param("Gt", (), id="Gt of nothing"),
        pytest.param("Gt", ("1", "2"), id="Gt of two"),
        pytest.param("Gt", ("abc",), id="Gt of text"),
        pytest.param("Lt", ("1_000",), id="Lt of what only Python reads as a number"),
        pytest.param("Lt", ("9223372036854775808",), id="Lt beyond int64"),
        pytest.param("In", ("no good",), id="no label value"),
        pytest.param("In", ("a" * 64,), id="a label value that is too long"),
        pytest.param("NotIn", ("a", "-b"), id="one of two is no label value"),
        pytest.param("in", ("a",), id="unknown operator"),
    ],
)
def test_what_is_not_valid_is_told_apart(operator: str, values: tuple[str, ...]) -> None:
    assert parsed(Requirement("k", operator, values)) is None


@pytest.mark.parametrize("value", ["9223372036854775808", "-", "\u0665"])
def test_a_value_on_the_object_that_is_no_number_is_neither_greater_nor_less(value: str) -> None:
    for operator in ("Gt", "Lt"):
        expression = parsed(Requirement("k", operator, ("5",)))
        assert expression is not None
        assert not expression.accepts(value)


@pytest.mark.parametrize(
    "requirement", [Requirement("b", "Gt", ("1",)), Requirement("b", "In")], ids=["Gt", "In of none"]
)
def test_a_label_selector_that_is_not_valid_matches_nothing(requirement: Requirement) -> None:
    assert of_label_selector(LabelSelector(None, (requirement,))) is None


SOME_VALUES = st.sampled_from(["", "a", "b", "3", "9"])
REQUIREMENTS = st.one_of(
    st.builds(
        Requirement, st.just("k"), st.sampled_from(["In", "NotIn"]), st.lists(SOME_VALUES, min_size=1).map(tuple)
    ),
    st.builds(Requirement, st.just("k"), st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(Requirement, st.just("k"), st.sampled_from(["Gt", "Lt"]), st.sampled_from([("2",), ("5",)])),
)
CHANGES = st.lists(
    st.tuples(st.integers(0, 4), st.dictionaries(st.sampled_from(["k", "other"]), SOME_VALUES)), max_size=12
)


@given(requirement=REQUIREMENTS, changes=CHANGES)
def test_columns_give_the_same_answer_as_each_objects_labels(
    requirement: Requirement, changes: list[tuple[int, dict[str, str]]]
) -> None:
    labels, expression = Labels(), parsed(requirement)
    assert expression is not None
    matcher = Matcher(expression)
    for row, new in changes:
        labels.set_row(row, new)
        some = np.array([row, 0], dtype=np.intp)
        everywhere = [expression.accepts(labels.of_row(each).get("k")) for each in range(64)]
        assert matcher.over(labels, some).tolist() == [everywhere[row], everywhere[0]]
        assert matcher.over(labels, ALL_ROWS).tolist() == everywhere


def test_what_was_worked_out_of_other_labels_is_not_taken_for_these() -> None:
    matcher = Matcher(Expression("k", Operator.IN, frozenset({"a"})))
    for values, expected in ((("a", "b"), [0]), (("b", "a"), [1])):
        labels = Labels()
        for row, value in enumerate(values):
            labels.set_row(row, {"k": value})
        assert np.flatnonzero(matcher.over(labels, ALL_ROWS)).tolist() == expected
