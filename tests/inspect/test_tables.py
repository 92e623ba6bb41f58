"""The text of `kubectl inspect gpushare`, against what the original prints."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import names
from scheduler.inspect.columns import aligned
from scheduler.inspect.tables import details, summary
from scheduler.inspect.view import Node, Pod, view
from tests.builders import card, wire_node

GOLDEN = Path(__file__).parent / "golden"


def node(name: str, units: int, count: int, address: str = "") -> Node:
    document = {
        "metadata": {"name": name},
        "status": {
            "allocatable": {names.GPU_MEM: str(units), names.GPU_COUNT: str(count)},
            "addresses": [{"type": "InternalIP", "address": address}] if address else [],
        },
    }
    return msgspec.convert(document, Node)


def pod(name: str, units: int, annotations: dict[str, str], phase: str = "Running", on: str = "gpu-node-a") -> Pod:
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": annotations},
        "spec": {"nodeName": on, "containers": [{"resources": {"limits": {names.GPU_MEM: str(units)}}}]},
        "status": {"phase": phase},
    }
    return msgspec.convert(document, Pod)


A, B = node("gpu-node-a", 30, 2, "192.168.0.71"), node("gpu-node-b", 15, 1)
BINPACK_0 = pod("binpack-0", 3, {names.MEM_IDX: "0"})
BINPACK_1 = pod("binpack-1", 4, {names.MEM_IDX: "1"})
LOST = pod("lost-0", 2, {})
MULTI = pod("multi-0", 8, {names.ALLOCATION: '{"0":{"0":4,"1":4}}'})


@pytest.mark.parametrize(
    ("golden", "show", "nodes", "pods"),
    [
        ("summary", summary, [B, A], [BINPACK_0, BINPACK_1]),
        ("details", details, [B, A], [BINPACK_1, BINPACK_0]),
        ("summary-pending", summary, [A, B], [BINPACK_0, LOST]),
        ("details-pending", details, [A, B], [BINPACK_0, LOST]),
        ("details-multi-card", details, [A], [MULTI]),
    ],
)
def test_the_text_is_the_originals_to_the_byte(golden: str, show: object, nodes: list[Node], pods: list[Pod]) -> None:
    assert callable(show)
    assert show(view(nodes, pods)) == (GOLDEN / f"{golden}.txt").read_text()


def test_finished_pods_and_pods_without_gpu_memory_do_not_count() -> None:
    others = [pod("done", 5, {}, "Succeeded"), pod("failed", 5, {}, "Failed"), pod("plain", 0, {})]
    assert view([A], [*others, BINPACK_0])[0].allocated == 3


def test_a_card_that_the_node_does_not_list_is_pending() -> None:
    (shown,) = view([A], [pod("p", 5, {names.MEM_IDX: "7"})])
    assert shown.pending == 5


def test_each_announced_card_has_its_own_total() -> None:
    wire = wire_node("gpu-node-a", [card(0, 16), card(1, 80)])
    (shown,) = view([msgspec.convert(msgspec.to_builtins(wire), Node)], [BINPACK_1])
    assert [(c.total, c.allocated, c.uuid) for c in shown.cards] == [(16, 0, "GPU-a-0"), (80, 4, "GPU-a-1")]


def test_a_big_unit_count_is_mib() -> None:
    assert "GPU Memory(MiB)" in summary(view([node("n", 32_000, 2)], []))


def test_an_empty_cluster_has_an_empty_table() -> None:
    assert summary(()).startswith("NAME  IPADDRESS  GPU Memory(GiB)\n")
    assert "0/0 (0%)" in details(())


@given(st.dictionaries(st.sampled_from([names.ALLOCATION, names.CARDS, names.MEM_IDX]), st.text()))
def test_no_annotation_breaks_the_table(annotations: dict[str, str]) -> None:
    shown = view([A], [pod("p", 5, annotations)])
    assert "p" in details(shown)
    assert summary(shown)


@given(st.lists(st.lists(st.text(alphabet="ab\u00e9", max_size=4), min_size=1, max_size=4), max_size=6))
def test_alignment_changes_blanks_only(rows: list[list[str]]) -> None:
    text = "\n".join("\t".join(cells) for cells in rows)
    assert aligned(text).replace(" ", "") == text.replace("\t", "")
