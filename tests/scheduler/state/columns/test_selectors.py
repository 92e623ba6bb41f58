"""Selectors: each operator as a table, and the columns against the plain reading of one object."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.kube.objects import LabelSelector, Requirement
from scheduler.state.columns.arrays import ALL_ROWS
from scheduler.state.columns.labels import Labels
from scheduler.state.columns.selectors import Expression, Matcher, Operator, match, of_label_selector, parsed


def accepted(operator: str, *values: str) -> set[str | None]:
    """Which of these values of the key the requirement takes; None: the key is absent."""
    expression = parsed(Requirement("k", operator, values))
    assert expression is not None
    return {value for value in (None, "", "a", "b", "5", "07", "12", "x12") if expression.accepts(value)}


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        pytest.param("In", ("a", "b", "z"), {"a", "b"}, id="In"),
        pytest.param("In", ("",), {""}, id="In the empty value"),
        pytest.param("NotIn", ("a", "5", "07", "12", "x12"), {None, "", "b"}, id="NotIn takes the key's absence"),
        pytest.param("Exists", (), {"", "a", "b", "5", "07", "12", "x12"}, id="Exists"),
        pytest.param("DoesNotExist", (), {None}, id="DoesNotExist"),
        pytest.param("Gt", ("5",), {"07", "12"}, id="Gt compares as numbers, and takes no text"),
        pytest.param("Lt", ("12",), {"5", "07"}, id="Lt"),
    ],
)
def test_operators(operator: str, values: tuple[str, ...], expected: set[str | None]) -> None:
    assert accepted(operator, *values) == expected


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
    ("selector", "labels", "matches"),
    [
        pytest.param(LabelSelector(), {}, True, id="empty takes all"),
        pytest.param(None, {}, False, id="absent takes none"),
        pytest.param(LabelSelector({"a": "1"}), {"a": "1", "b": "2"}, True, id="labels"),
        pytest.param(LabelSelector({"a": "1", "b": "1"}), {"a": "1", "b": "2"}, False, id="labels are ANDed"),
        pytest.param(
            LabelSelector({"a": "1"}, (Requirement("b", "Exists"),)), {"a": "1"}, False, id="and with expressions"
        ),
        pytest.param(LabelSelector(None, (Requirement("b", "NotIn", ("1",)),)), {}, True, id="NotIn without the key"),
        pytest.param(
            LabelSelector(None, (Requirement("b", "Gt", ("1",)),)), {"b": "2"}, False, id="Gt is not for these"
        ),
        pytest.param(LabelSelector(None, (Requirement("b", "In"),)), {"b": "2"}, False, id="not valid"),
    ],
)
def test_label_selectors(selector: LabelSelector | None, labels: dict[str, str], matches: bool) -> None:  # noqa: FBT001 - a case of the table
    expressions = of_label_selector(selector)
    assert (expressions is not None and match(expressions, labels)) is matches


VALUES = st.sampled_from(["", "a", "b", "3", "9"])
REQUIREMENTS = st.one_of(
    st.builds(Requirement, st.just("k"), st.sampled_from(["In", "NotIn"]), st.lists(VALUES, min_size=1).map(tuple)),
    st.builds(Requirement, st.just("k"), st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(Requirement, st.just("k"), st.sampled_from(["Gt", "Lt"]), st.sampled_from([("2",), ("5",)])),
)
CHANGES = st.lists(st.tuples(st.integers(0, 4), st.dictionaries(st.sampled_from(["k", "other"]), VALUES)), max_size=12)


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


def test_a_key_that_comes_later_is_seen() -> None:
    labels, matcher = Labels(), Matcher(Expression("k", Operator.EXISTS))
    assert not matcher.over(labels, ALL_ROWS).any()
    labels.set_row(3, {"k": "v"})
    assert np.flatnonzero(matcher.over(labels, ALL_ROWS)).tolist() == [3]


@pytest.mark.parametrize(("operator", "expected"), [(Operator.GT, [6]), (Operator.LT, [4])])
def test_the_bound_itself_is_neither_greater_nor_less(operator: Operator, expected: list[int]) -> None:
    labels, matcher = Labels(), Matcher(Expression("k", operator, bound=5))
    for row in (4, 5, 6):
        labels.set_row(row, {"k": str(row)})
    assert np.flatnonzero(matcher.over(labels, ALL_ROWS)).tolist() == expected


def test_what_was_worked_out_of_other_labels_is_not_taken_for_these() -> None:
    matcher = Matcher(Expression("k", Operator.IN, frozenset({"a"})))
    for values, expected in ((("a", "b"), [0]), (("b", "a"), [1])):
        labels = Labels()
        for row, value in enumerate(values):
            labels.set_row(row, {"k": value})
        assert np.flatnonzero(matcher.over(labels, ALL_ROWS)).tolist() == expected
