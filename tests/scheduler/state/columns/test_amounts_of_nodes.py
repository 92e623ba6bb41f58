"""Columns of resources, taints and images: random histories against plain sums and dicts, and what they may cost."""

import tracemalloc
from collections import Counter

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from scheduler.kube.objects import ContainerImage, Node, NodeStatus, Taint
from scheduler.pods.effective_requests import MOST, PODS, Amounts
from scheduler.state.columns.arrays import ALL_ROWS, FIRST_CAPACITY
from scheduler.state.columns.images import MOST_NAMES, Images
from scheduler.state.columns.resources import CPU_INDEX, MEMORY_INDEX, PODS_INDEX, ResourceColumns
from scheduler.state.columns.taints import Taints, TaintSet, Verdicts
from tests.support.builders import wire_node

# Resources

ROWS = st.integers(0, 3)
ALWAYS = {"cpu", "memory", "ephemeral-storage", PODS}
ALL = ALWAYS | {"hugepages-2Mi", *"abcdef"}
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "hugepages-2Mi", *"abcdef"]), st.integers(1, 2**40))


class ResourceHistories(RuleBasedStateMachine):
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


TestResourceHistories = ResourceHistories.TestCase


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


# Taint sets

SETS = st.lists(st.builds(Taint, st.sampled_from("abc"), st.just("NoSchedule")), max_size=2).map(tuple)


def count(taints: TaintSet) -> int:
    """A verdict that tells sets apart."""
    return sum(10 ** "abc".index(taint.key) for taint in taints)


class TaintHistories(RuleBasedStateMachine):
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


TestTaintHistories = TaintHistories.TestCase


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


# Images: counted by name, with one size, as objects that nodes share

BARE = wire_node("n")
REPOSITORY = "registry.example/team"
NAMES = ("a", "b", "c")


def images(*named: str, size: int = 1) -> tuple[ContainerImage, ...]:
    return tuple(ContainerImage((name,), size) for name in named)


@given(st.lists(st.tuples(st.integers(0, 4), st.lists(st.sampled_from(NAMES), max_size=4)), max_size=30))
def test_a_name_is_counted_once_for_each_node_that_has_it(steps: list[tuple[int, list[str]]]) -> None:
    columns, of_row = Images(), dict[int, set[str]]()
    for row, named in steps:
        columns.set_row(row, images(*named))
        of_row[row] = set(named)
    expected = Counter(name for named in of_row.values() for name in named)
    for name in NAMES:
        rows = columns.rows_with(name).tolist()
        assert sorted(rows) == sorted(row for row, named in of_row.items() if name in named)
        assert columns.count_and_size(name) == ((expected[name], 1) if expected[name] else (0, 0))


def test_the_size_is_that_of_the_first_node_while_any_has_the_image() -> None:
    columns = Images()
    columns.set_row(0, images("a", size=5))
    columns.set_row(1, images("a", size=9))
    assert columns.count_and_size("a") == (2, 5)
    columns.set_row(0, ())
    assert columns.count_and_size("a") == (1, 5)
    columns.set_row(1, images("a", size=7))
    assert columns.count_and_size("a") == (1, 7)
    columns.set_row(1, ())
    columns.set_row(0, images("a", size=-3))
    assert columns.count_and_size("a") == (1, 0)


def test_of_a_node_with_too_many_names_the_first_count() -> None:
    columns = Images()
    columns.set_row(0, images(*(f"i{number}" for number in range(MOST_NAMES + 1))))
    assert columns.count_and_size(f"i{MOST_NAMES - 1}") == (1, 1)
    assert columns.count_and_size(f"i{MOST_NAMES}") == (0, 0)


def test_an_image_without_names_is_nothing() -> None:
    node = msgspec.json.decode(
        b'{"metadata":{"name":"a"},"status":{"images":[{"names":null,"sizeBytes":1}]}}', type=Node
    )
    columns = Images()
    columns.set_row(0, node.status.images)
    assert columns.rows_with("").tolist() == []


def test_nodes_with_the_same_fifty_images_take_little_memory() -> None:
    """A hundred names on every node; as the watch decodes them, each node has strings of its own: 16 kB of them."""
    columns, kept = Images(), []
    line = msgspec.json.encode(
        [ContainerImage((f"{REPOSITORY}/{n}:1", f"{REPOSITORY}/{n}@{n:064}"), n) for n in range(50)]
    )
    tracemalloc.start()
    for row in range(500):
        found = msgspec.json.decode(line, type=tuple[ContainerImage, ...])
        kept.append(columns.shared(replace(BARE, status=NodeStatus(images=found))).status.images)
        columns.set_row(row, kept[-1])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert all(one is other for one, other in zip(kept[0], kept[-1], strict=True))
    assert held / 500 < 1_500


def test_what_no_kubelet_reports_goes_with_its_node() -> None:
    """A name of a megabyte, or features of as much, as somebody with a kubelet's rights may write them."""
    columns = Images()
    tracemalloc.start()
    for number in range(20):
        long = f"{number}" + "x" * 1_000_000
        columns.shared(replace(BARE, status=NodeStatus(images=images(long), declared_features=(long,))))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 3_000_000


def test_of_a_node_with_many_images_the_others_go_with_it() -> None:
    columns, kept = Images(), []
    for _ in range(2):
        many = images(*(f"{REPOSITORY}/{number}" for number in range(10_000)))
        kept.append(columns.shared(replace(BARE, status=NodeStatus(images=many))).status.images)
    assert kept[0] == kept[1]
    assert sum(one is other for one, other in zip(*kept, strict=True)) == MOST_NAMES
