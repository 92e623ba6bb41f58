"""Resource columns: random histories against plain sums."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler.pods.effective_requests import MOST, PODS, Amounts
from scheduler.state.columns.arrays import FIRST_CAPACITY
from scheduler.state.columns.resources import CPU_INDEX, MEMORY_INDEX, PODS_INDEX, ResourceColumns

ROWS = st.integers(0, 3)
ALWAYS = {"cpu", "memory", "ephemeral-storage", PODS}
ALL = ALWAYS | {"hugepages-2Mi", *"abcdef"}
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "hugepages-2Mi", *"abcdef"]), st.integers(1, 2**40))


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.columns = ResourceColumns()
        self.pods: list[tuple[int, Amounts]] = []
        self.nodes: dict[int, Amounts] = {}
        self.capacity = FIRST_CAPACITY

    @rule(row=ROWS, amounts=AMOUNTS)
    def node_comes_or_changes(self, row: int, amounts: Amounts) -> None:
        self.columns.set_allocatable(row, amounts)
        self.nodes[row] = amounts

    @rule(row=ROWS, amounts=AMOUNTS)
    def pod_comes(self, row: int, amounts: Amounts) -> None:
        self.columns.add(row, amounts, self._scoring(amounts), 1)
        self.pods.append((row, amounts))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        row, amounts = self.pods.pop(data.draw(st.integers(0, len(self.pods) - 1)))
        self.columns.add(row, amounts, self._scoring(amounts), -1)

    @rule(row=ROWS)
    def node_goes(self, row: int) -> None:
        self.columns.clear(row)
        self.nodes.pop(row, None)
        self.pods = [(where, amounts) for where, amounts in self.pods if where != row]

    @rule()
    def grow(self) -> None:
        self.capacity += 3
        self.columns.grow(self.capacity)

    @invariant()
    def columns_are_sums(self) -> None:
        columns = self.columns
        assert columns.allocatable.shape == columns.requested.shape
        assert columns.scoring_requested.shape == (2, self.capacity)
        for row in range(4):
            there = [amounts for where, amounts in self.pods if where == row]
            total = sum((Counter(amounts) for amounts in there), Counter({PODS: len(there)}))
            scoring = [self._scoring(amounts) for amounts in there]
            assert columns.requested_on(row) == +total
            for name, index in columns.index.items():
                assert columns.requested[index, row] == total[name]
                assert columns.allocatable[index, row] == self.nodes.get(row, {}).get(name, 0)
            assert columns.scoring_requested[CPU_INDEX, row] == sum(cpu for cpu, _ in scoring)
            assert columns.scoring_requested[MEMORY_INDEX, row] == sum(memory for _, memory in scoring)

    @invariant()
    def only_what_a_node_offers_has_a_column(self) -> None:
        offered = {name for amounts in self.nodes.values() for name in amounts}
        assert self.columns.index.keys() == offered | ALWAYS
        assert len(set(self.columns.index.values())) == len(self.columns.index)
        # As many rows of the matrix as there were names at once, doubled: a name that goes gives its row back.
        assert self.columns.allocatable.shape[0] <= 2 * len(ALL)

    @staticmethod
    def _scoring(amounts: Amounts) -> tuple[int, int]:
        return amounts.get("cpu", 100), amounts.get("memory", 200)


TestHistories = Histories.TestCase


def test_a_thousand_absurd_pods_do_not_wrap_around_into_free_room() -> None:
    columns = ResourceColumns()
    for _ in range(1000):
        columns.add(0, {"memory": MOST}, (MOST, MOST), 1)
    assert columns.requested[MEMORY_INDEX, 0] == 1000 * MOST
    assert columns.scoring_requested[CPU_INDEX, 0] == 1000 * MOST


def test_an_absurd_node_has_less_than_an_absurd_pod_asks_and_never_less_than_nothing() -> None:
    columns = ResourceColumns()
    columns.set_allocatable(0, {"memory": 2**63 - 1, "cpu": -5, "pods": 3})
    assert columns.allocatable[MEMORY_INDEX, 0] < MOST
    assert columns.allocatable[CPU_INDEX, 0] == 0
    assert columns.allocatable[PODS_INDEX, 0] == 3


def test_names_that_no_node_offers_cost_no_column() -> None:
    columns = ResourceColumns()
    columns.add(0, {f"example.com/{number}": 1 for number in range(1000)}, (0, 0), 1)
    assert columns.allocatable.shape[0] == len(ALWAYS)
    columns.add(0, {f"example.com/{number}": 1 for number in range(1000)}, (0, 0), -1)
    assert columns.requested_on(0) == {}


def test_what_was_requested_before_a_node_offered_it_counts_from_then_on() -> None:
    columns = ResourceColumns()
    columns.add(0, {"example.com/device": 3}, (0, 0), 1)
    columns.set_allocatable(0, {"example.com/device": 4})
    assert columns.requested[columns.index["example.com/device"], 0] == 3


def test_a_column_that_nobody_needs_goes_to_the_next_resource_empty() -> None:
    columns = ResourceColumns()
    columns.set_allocatable(0, {"example.com/first": 4})
    columns.add(0, {"example.com/first": 3}, (0, 0), 1)
    first, version = columns.index["example.com/first"], columns.version
    columns.set_allocatable(0, {"example.com/second": 5})
    columns.set_allocatable(0, {"example.com/third": 5})
    assert columns.version > version
    assert columns.index["example.com/third"] == first
    assert columns.requested[first, 0] == 0
    assert columns.requested_on(0) == {PODS: 1, "example.com/first": 3}
