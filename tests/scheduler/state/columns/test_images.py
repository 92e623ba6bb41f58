"""Images of nodes: counted by name, with one size, as objects that nodes share."""

import tracemalloc
from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.kube.objects import ContainerImage, Node, NodeStatus
from scheduler.state.columns.images import MOST_NAMES, Images
from tests.support.builders import wire_node

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
