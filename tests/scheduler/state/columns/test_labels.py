"""Label columns against plain dicts: random histories of nodes, and columns asked for at any time."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scheduler.state.columns.arrays import FIRST_CAPACITY
from scheduler.state.columns.labels import ABSENT, Labels, integer

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
