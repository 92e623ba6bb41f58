"""NodeResourcesBalancedAllocation: who is scored, the arithmetic, and one row like many."""

from math import isclose

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from config.settings.scheduler import Resources
from scheduler.plugins.node.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
    balance,
    balance_over,
    points,
)
from tests.support.builders import bound, pod, wire_node
from tests.support.judging import scored, tables_of

BALANCED = NodeResourcesBalancedAllocation()


def over(*names: str) -> NodeResourcesBalancedAllocation:
    """The rule over these resources."""
    said = {"resources": [{"name": name} for name in names]}
    return NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs.model_validate(said))


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param([], 100, id="nothing counts"),
        pytest.param([0.3], 100, id="one resource is always like itself"),
        pytest.param([0.5, 0.5], 100, id="alike"),
        pytest.param([1.0, 0.0], 50, id="as unlike as can be"),
        pytest.param([0.75, 0.5], 87, id="two, rounded down"),
        pytest.param([0.2, 0.4, 0.9], 70, id="three, by their standard deviation"),
    ],
)
def test_the_balance_of_a_node(shares: list[float], expected: int) -> None:
    assert balance(shares) == expected


def test_the_score_is_by_how_much_the_pod_betters_the_balance() -> None:
    assert (points(100, 50), points(80, 80), points(50, 100)) == (100, 75, 50)


def test_a_pod_goes_where_it_evens_out_what_is_in_use() -> None:
    tables = tables_of(wire_node("a", cpu="4", memory="4Gi"), wire_node("b", cpu="4", memory="4Gi"))
    tables.add(bound(pod("on-a", requests={"cpu": "2"}), "a"))
    assert scored(BALANCED, pod("p", requests={"memory": "2Gi"}), tables) == {"a": 87_000, "b": 62_000}


def test_pods_that_request_none_of_the_resources_are_not_scored() -> None:
    assert not BALANCED.scores(pod("p"))
    assert not BALANCED.scores(pod("p", requests={"example.com/dev": "1"}))
    assert over("cpu", "example.com/dev").scores(pod("p", requests={"example.com/dev": "1"}))


def test_pods_with_gpu_memory_are_scored_only_where_the_arguments_say_so() -> None:
    asks = pod("p", 3, requests={"cpu": "1"})
    assert not BALANCED.scores(asks)
    assert NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs(score_gpu_pods=True)).scores(asks)


def test_what_a_container_is_assumed_to_request_does_not_count() -> None:
    tables = tables_of(wire_node("a", cpu="1", memory="1Gi"))
    tables.add(bound(pod("on-a"), "a"))
    assert scored(BALANCED, pod("p", requests={"cpu": "1", "memory": "1Gi"}), tables) == {"a": 75_000}


def test_what_the_node_lacks_does_not_count_nor_an_extended_resource_that_the_pod_does_not_request() -> None:
    rule = over("cpu", "memory", "example.com/dev")
    tables = tables_of(
        wire_node("a", cpu="4", memory="0"), wire_node("b", cpu="4", memory="4Gi", more={"example.com/dev": "4"})
    )
    assert scored(rule, pod("p", requests={"cpu": "2"}), tables) == {"a": 75_000, "b": 62_000}
    asking = pod("q", requests={"cpu": "2", "memory": "2Gi", "example.com/dev": "2"})
    assert scored(rule, asking, tables) == {"a": 75_000, "b": 75_000}


def test_weights_are_one_as_in_kube_scheduler() -> None:
    with pytest.raises(ValidationError):
        NodeResourcesBalancedAllocationArgs.model_validate({"resources": [{"name": "cpu", "weight": 2}]})
    with pytest.raises(ValidationError, match="more than once: cpu"):
        over("cpu", "cpu")
    assert [resource.name for resource in over().args.resources] == ["cpu", "memory"]


SHARE = st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.0, 0.25, 1.0]))


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[SHARE] * n), min_size=1, max_size=4)))
def test_one_row_and_many_rows_have_the_same_balance(rows: list[tuple[float | None, ...]]) -> None:
    columns = list(zip(*rows, strict=True))
    shares = [np.array([share or 0.0 for share in column]) for column in columns]
    there = [np.array([share is not None for share in column]) for column in columns]
    together = balance_over(shares, there).tolist()
    assert together == [balance([share for share in row if share is not None]) for row in rows]
    assert all(50 <= each <= 100 or isclose(each, 50) for each in together)


def test_gpu_memory_is_no_resource_of_this_rule() -> None:
    named = [{"name": "cpu"}, {"name": "example.com/gpu-mem"}]
    args = NodeResourcesBalancedAllocationArgs.model_validate({"resources": named})

    assert list(args.contradicting(Resources())) == []
    ((where, message),) = args.contradicting(Resources.model_validate({"gpuMem": "example.com/gpu-mem"}))
    assert where == ("resources", 1, "name")
    assert "found example.com/gpu-mem: GpuShare scores it" in message


def test_a_resource_that_no_node_has_changes_no_balance() -> None:
    tables = tables_of(wire_node("a"), wire_node("b", cpu="4"))

    found = scored(over("example.com/fpga"), pod("p", requests={"example.com/fpga": "1"}), tables)

    assert found == dict.fromkeys("ab", points(100, 100) * 1000)
