"""The text of `kubectl inspect gpushare`, against what the legacy command prints and by its rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.tools.inspect.tables import aligned, details, summary
from tests.scheduler.tools.inspect.listed import CLUSTERS, Json, cards, golden, node, pod, viewed

A = node("gpu-node-a", "30", "2", "192.168.0.71")


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_text_is_the_legacy_text_byte_for_byte(name: str) -> None:
    flags, nodes, pods = CLUSTERS[name]
    shown = viewed(nodes, pods)
    assert (details(shown) if flags else summary(shown)) == golden(name)


def test_equal_cards_in_an_inventory_give_the_legacy_text() -> None:
    _, (b, a), pods = CLUSTERS["summary"]
    announced = node("gpu-node-a", "30", "2", "192.168.0.71", inventory=cards(15, 15))
    assert announced != a
    assert summary(viewed([b, announced], pods)) == golden("summary")
    assert details(viewed([b, announced], pods)) == golden("details")


def test_cards_of_different_sizes_have_each_their_own_total() -> None:
    (_, row, *_) = summary(viewed([node("n", "96", "2", inventory=cards(16, 80))], [])).splitlines()
    assert row.split() == ["n", "unknown", "0/16", "0/80", "0/96"]


def test_a_card_stands_under_its_own_index_where_indexes_leave_gaps() -> None:
    gap = viewed([node("n", "31", "2", inventory=cards(15, None, 16))], [pod("p", "3", on="n", idx="2")])
    head, row, *_ = summary(gap).splitlines()
    assert head.split()[2:5] == [f"GPU{index}(Allocated/Total)" for index in range(3)]
    assert row.split() == ["n", "unknown", "0/15", "0/0", "3/16", "3/31"]
    assert "GPU0(Allocated)  GPU2(Allocated)" in details(gap)


# In floating point 29 / 100 * 100 is 28.999999999999996, and so in the legacy command.
@pytest.mark.parametrize(
    ("part", "whole", "percent"), [(29, 100, 28), (57, 100, 56), (2, 3, 66), (1, 3, 33), (3, 3, 100)]
)
def test_percentages_are_cut_off_like_the_legacy_floating_point(part: int, whole: int, percent: int) -> None:
    shown = viewed([node("gpu-node-a", str(whole), "1")], [pod("p", str(part), idx="0")])
    assert f"{part}/{whole} ({percent}%)  \n" in summary(shown)
    assert f"{part} ({percent}%)" in details(shown)


@pytest.mark.parametrize(
    ("nodes", "unit"),
    [
        pytest.param([("a", "200", "2")], "GiB", id="100 units a card"),
        pytest.param([("a", "202", "2")], "MiB", id="101 units a card"),
        pytest.param([("a", "15", "1"), ("b", "15360", "1")], "GiB", id="the first node decides"),
        pytest.param([("a", "15360", "0"), ("b", "15", "1")], "GiB", id="the first node that has cards"),
        pytest.param([], "GiB", id="no node"),
    ],
)
def test_the_unit_is_guessed_from_the_first_node_for_all(nodes: list[tuple[str, str, str]], unit: str) -> None:
    assert f"GPU Memory({unit})\n" in summary(viewed([node(*spec) for spec in nodes], []))


def dashes(text: str) -> list[int]:
    return [len(line) for line in text.splitlines() if set(line) == {"-"}]


def test_dashes_are_as_long_as_the_first_nodes_unpadded_rows_and_some_more() -> None:
    nodes = [A, node("gpu-node-b", "15", "1")]
    pods = [pod("p", "3", on="gpu-node-b", idx="0")]
    assert dashes(summary(viewed(nodes, pods))) == [len("gpu-node-a\t192.168.0.71\t0/15\t0/15\t0/30\n") + 20]
    assert dashes(details(viewed(nodes, pods))) == [10, 10]
    assert dashes(details(viewed(nodes[1:], pods))) == [len("p\tdefault\t3\t\n") + 10]


def test_a_cluster_without_gpu_memory_has_an_empty_table() -> None:
    tail = "Allocated/Total GPU Memory In Cluster:"
    assert summary(()) == f"NAME  IPADDRESS  GPU Memory(GiB)\n\n{tail}\n0/0 (0%)  \n"
    assert details(()) == f"\n\n{tail}  0/0 (0%)  \n"


def test_a_node_without_gpu_memory_has_no_row() -> None:
    plain: Json = {"metadata": {"name": "plain"}, "status": {}}
    shown = viewed([plain], [], with_gpu_memory_only=False)
    assert [found.name for found in shown] == ["plain"]
    assert (summary(shown), details(shown)) == (summary(()), details(()))


# What go/src/text/tabwriter printed with NewWriter(out, 0, 0, 2, ' ', 0).
@pytest.mark.parametrize(
    ("tabbed", "text"),
    [
        pytest.param("a\tb\n", "a  b\n", id="one cell and what follows it"),
        pytest.param("a\tb\t\nlonger\tc\t\n", "a       b  \nlonger  c  \n", id="a cell that ends a line is padded"),
        pytest.param("\tb\n", "  b\n", id="an empty cell is as wide as the padding"),
        pytest.param("a\tb\nplain\nlonger\tb\n", "a  b\nplain\nlonger  b\n", id="a line without tabs ends a block"),
        pytest.param("a\tb\tc\nd\te\nf\tggg\th\n", "a  b  c\nd  e\nf  ggg  h\n", id="each column has its own blocks"),
        pytest.param("é\tb\naa\tb\n", "é   b\naa  b\n", id="characters count, not bytes"),
    ],
)
def test_columns_are_aligned_as_gos_tabwriter_does(tabbed: str, text: str) -> None:
    assert aligned(tabbed) == text


@given(st.lists(st.lists(st.text(alphabet="ab\u00e9", max_size=4), min_size=1, max_size=4), max_size=6))
def test_alignment_changes_blanks_only(rows: list[list[str]]) -> None:
    text = "\n".join("\t".join(cells) for cells in rows)
    assert aligned(text).replace(" ", "") == text.replace("\t", "")
