"""Selectors by the labels they name: those that are found are those that match, whatever came and went."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.state.columns.selectors import Expression, Expressions, Operator, match
from scheduler.state.facts.label_index import LabelIndex

VALUES = st.frozensets(st.sampled_from("xyz"), min_size=1, max_size=3)
KEYS = st.sampled_from("abc")
EXPRESSIONS = st.one_of(
    st.builds(Expression, KEYS, st.sampled_from([Operator.IN, Operator.NOT_IN]), VALUES),
    st.builds(Expression, KEYS, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
)
SELECTORS = st.lists(EXPRESSIONS, max_size=3).map(tuple)
LABELS = st.dictionaries(KEYS, st.sampled_from("xyz"), max_size=3)
# What is done with each slot in turn: given a selector, or freed (None).
HISTORIES = st.lists(st.tuples(st.integers(0, 40), st.none() | SELECTORS), max_size=30)


@given(HISTORIES, st.lists(LABELS, min_size=1, max_size=4))
def test_what_is_found_is_what_matches(
    history: list[tuple[int, Expressions | None]], asked: list[dict[str, str]]
) -> None:
    index = LabelIndex()
    there: dict[int, Expressions] = {}
    for slot, selector in history:
        if slot in there:
            index.discard(slot, there.pop(slot))
        if selector is not None:
            index.add(slot, selector)
            there[slot] = selector
    assert bool(index) == bool(there)
    for labels in asked:
        assert index.matches(labels).tolist() == sorted(slot for slot, each in there.items() if match(each, labels))


@given(st.lists(SELECTORS, max_size=40))
def test_nothing_is_left_of_what_is_gone(selectors: list[Expressions]) -> None:
    index = LabelIndex()
    for slot, selector in enumerate(selectors):
        index.add(slot, selector)
    for slot, selector in enumerate(selectors):
        index.discard(slot, selector)
    assert not index
    assert index.matches({"a": "x"}).tolist() == []
