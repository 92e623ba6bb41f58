"""NodeResourcesFit and NodeResourcesBalancedAllocation: their arguments, pods with GPU memory, and the arithmetic.

What does not fit, and scores by the default arguments: `tests/differential`, the groups of resources and balance.
"""

from collections.abc import Callable
from math import isclose

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from config.protocol import names
from config.settings.scheduler import Resources
from scheduler.framework.plugin import ScorePlugin
from scheduler.plugins.node.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
    balance,
    balance_over,
    points,
)
from scheduler.plugins.node.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs, asks, is_extended
from scheduler.plugins.node.resource_allocation import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    Scale,
    by_utilization,
    least_allocated,
    mean,
    mean_over,
    most_allocated,
    requestable,
)
from scheduler.state.amounts import Amount
from scheduler.state.tables import Tables
from tests.support.builders import bound, pod, wire_node
from tests.support.judging import reasons, rejected, scored, state_of, tables_of

FIT = NodeResourcesFit(NodeResourcesFitArgs())
BALANCED = NodeResourcesBalancedAllocation()


def weighing(strategy: str = "LeastAllocated", /, **weights: int) -> NodeResourcesFit:
    """The rule with this strategy over resources of these weights."""
    resources = [{"name": name, "weight": weight} for name, weight in weights.items()]
    said = {"type": strategy, **({"resources": resources} if resources else {})}
    return NodeResourcesFit(NodeResourcesFitArgs.model_validate({"scoringStrategy": said}))


MOST = weighing("MostAllocated")


def used(tables: Tables, node: str, requests: dict[str, str]) -> Tables:
    """`tables` with a pod on `node`."""
    tables.add(bound(pod(f"on-{node}", requests=requests), node))
    return tables


def test_an_absurd_amount_fits_nowhere_and_says_so() -> None:
    tables = tables_of(wire_node("a"))
    assert set(reasons(FIT, pod("p", requests={"memory": "16Ei"}), tables)) == {"Insufficient memory"}


def test_ignored_resources_are_extended_ones() -> None:
    ignoring = NodeResourcesFit(NodeResourcesFitArgs(ignored_resources=("example.com/dev",)))
    tables = tables_of(wire_node("a", cpu="1"))
    assert rejected(ignoring, pod("p", requests={"example.com/dev": "1"}), tables) == set()
    assert reasons(ignoring, pod("p", requests={"cpu": "2"}), tables) == {"Insufficient cpu": {"a"}}


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("example.com/dev", True),
        (names.GPU_COUNT, True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("kubernetes.io/batch-cpu", False),
        ("requests.example.com/dev", False),
    ],
)
def test_which_resources_are_extended(name: str, extended: bool) -> None:  # noqa: FBT001 - a case of the table
    assert is_extended(name) is extended


def test_rejections_come_in_kube_schedulers_order() -> None:
    requests = {"x.com/b": "1", "ephemeral-storage": "1", "a.com/a": "1", "memory": "1", "cpu": "1"}
    found = [name for name, _ in asks(pod("p", requests=requests).template, frozenset())]
    assert found == ["cpu", "memory", "ephemeral-storage", "a.com/a", "x.com/b"]


def test_a_node_needs_at_least_what_the_pod_requests_of_the_native_resources() -> None:
    requests = {"cpu": "500m", "memory": "1Ki", "example.com/none": "1"}
    assert FIT.minimum_request(pod("p", requests=requests)) == {
        Amount.CPU_MILLIS: 500,
        Amount.MEMORY_BYTES: 1024,
        Amount.PODS: 1,
    }


def test_most_allocated_scores_by_what_is_requested_with_the_pod_there() -> None:
    tables = tables_of(wire_node("a", cpu="4", memory="4Gi"), wire_node("b", cpu="4", memory="4Gi"))
    used(tables, "a", {"cpu": "1", "memory": "1Gi"})
    waiting = pod("p", requests={"cpu": "1", "memory": "2Gi"})
    assert scored(MOST, waiting, tables) == {"a": 62_000, "b": 37_000}


def test_a_resource_that_the_node_lacks_does_not_count_for_its_fit() -> None:
    tables = tables_of(wire_node("a", cpu="4", memory="0"), wire_node("b", cpu="0", memory="0"))
    waiting = pod("p", requests={"cpu": "1", "memory": "1"})
    assert scored(FIT, waiting, tables) == {"a": 75_000, "b": 0}


def test_weights_and_extended_resources() -> None:
    rule = weighing("MostAllocated", **{"cpu": 1, "example.com/dev": 3})
    tables = tables_of(wire_node("a", cpu="4", **{"example.com/dev": "4"}), wire_node("b", cpu="4"))  # type: ignore[arg-type]
    asking = pod("p", requests={"cpu": "1", "example.com/dev": "2"})
    assert scored(rule, asking, tables) == {"a": 43_000, "b": 25_000}
    # Who does not ask for it is not judged by it.
    assert scored(rule, pod("q", requests={"cpu": "1"}), tables) == {"a": 25_000, "b": 25_000}


def test_ephemeral_storage_counts_also_for_pods_that_do_not_ask_for_it() -> None:
    rule = weighing("LeastAllocated", **{"ephemeral-storage": 1})
    tables = used(tables_of(wire_node("a", ephemeral_storage="4Gi")), "a", {"ephemeral-storage": "1Gi"})
    assert scored(rule, pod("p"), tables) == {"a": 75_000}


def test_a_line_of_ones_own_gives_points_by_utilization() -> None:
    line = {
        "shape": [{"utilization": 0, "score": 0}, {"utilization": 50, "score": 10}, {"utilization": 100, "score": 5}]
    }
    said = {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": line}
    rule = NodeResourcesFit(NodeResourcesFitArgs.model_validate({"scoringStrategy": said}))
    tables = tables_of(wire_node("a", cpu="4", memory="4Gi"), wire_node("b", cpu="4", memory="1Ti"))
    # a: cpu 25 % and memory 75 %; b: cpu 25 %, and memory that comes to 0 %, which does not count.
    assert scored(rule, pod("p", requests={"cpu": "1", "memory": "3Gi"}), tables) == {"a": 63_000, "b": 50_000}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"type": "RequestedToCapacityRatio"}, "found none"),
        ({"requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}]}}, "found one with type LeastAll"),
        ({"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": []}}, "at least 1"),
        (
            {
                "type": "RequestedToCapacityRatio",
                "requestedToCapacityRatio": {"shape": [{"utilization": 9, "score": 1}, {"utilization": 9, "score": 2}]},
            },
            "rising utilization, found 9, 9",
        ),
    ],
)
def test_a_line_that_cannot_be_followed_is_refused(said: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        NodeResourcesFitArgs.model_validate({"scoringStrategy": said})


def test_no_resources_stand_for_the_default_ones() -> None:
    said = NodeResourcesFitArgs.model_validate({"scoringStrategy": {"resources": []}})
    assert [resource.name for resource in said.scoring_strategy.resources] == ["cpu", "memory"]


def test_groups_of_resources_are_ignored_by_their_domain() -> None:
    ignoring = NodeResourcesFit(NodeResourcesFitArgs(ignored_resource_groups=("example.com",)))
    tables = tables_of(wire_node("a", cpu="1"))
    asking = pod("p", requests={"example.com/dev": "1", "example.org/dev": "1", "cpu": "2"})
    assert set(reasons(ignoring, asking, tables)) == {"Insufficient cpu", "Insufficient example.org/dev"}
    with pytest.raises(ValidationError, match="domain of extended resources"):
        NodeResourcesFitArgs(ignored_resource_groups=("example.com/dev",))


def test_a_class_that_was_judged_before_reads_the_columns_where_they_are_now() -> None:
    tables = tables_of(wire_node("a", more={"example.com/first": "4"}), wire_node("b"))
    waiting = pod("p", requests={"example.com/first": "1"})
    state = state_of(FIT, waiting, tables)
    tables.upsert_node(wire_node("a"))
    tables.upsert_node(wire_node("b", more={"example.com/second": "4"}))
    tables.upsert_node(wire_node("a", more={"example.com/first": "0"}))
    rows = np.array([tables.row_of["a"], tables.row_of["b"]])
    (rejection,) = FIT.filter(waiting, tables, state, rows)
    assert (rejection.reason, rejection.rejected.tolist()) == ("Insufficient example.com/first", [True, True])


# Points for what is allocated

SCALES: dict[str, Callable[[], Scale]] = {
    "least": lambda: LEAST_ALLOCATED,
    "most": lambda: MOST_ALLOCATED,
    "line": lambda: by_utilization([(0, 100), (100, 0)]),
    "steep": lambda: by_utilization([(30, 0), (37, 70)]),
}


@pytest.mark.parametrize(
    ("requested", "allocatable", "least", "most"),
    [
        pytest.param(1, 3, 66, 33, id="rounded down"),
        pytest.param(4, 4, 0, 100, id="full"),
        pytest.param(5, 4, 0, 100, id="over-committed"),
        pytest.param(0, 0, 0, 0, id="nothing there"),
        pytest.param(3, 0, 0, 0, id="nothing there, something asked"),
    ],
)
def test_the_points_of_one_resource(requested: int, allocatable: int, least: int, most: int) -> None:
    assert (least_allocated(requested, allocatable), most_allocated(requested, allocatable)) == (least, most)


def test_points_of_amounts_that_floats_cannot_tell_apart_are_exact() -> None:
    requested, allocatable = 7 * 10**16 - 1, 10**18

    assert most_allocated(requested, allocatable) == 6
    found = MOST_ALLOCATED.of_rows(np.array([requested, requested + 1]), np.array([allocatable, allocatable]))
    assert found.tolist() == [6, 7]


@pytest.mark.parametrize("name", ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/fpga"])
def test_what_a_container_can_request_counts(name: str) -> None:
    assert requestable(name) == name


@pytest.mark.parametrize("name", ["pods", "cpus", "hugepages-2M", "example.com/", "requests.cpu"])
def test_what_no_container_can_request_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected cpu, memory, ephemeral-storage, hugepages-<size> or domain/name"):
        requestable(name)


@pytest.mark.parametrize(
    ("shape", "utilization", "points"),
    [
        pytest.param([(20, 30), (80, 90)], 5, 30, id="before the first point"),
        pytest.param([(20, 30), (80, 90)], 95, 90, id="after the last point"),
        pytest.param([(0, 0), (100, 70)], 33, 23, id="rising, rounded down"),
        pytest.param([(0, 70), (100, 0)], 33, 47, id="falling, rounded up"),
        pytest.param([(50, 40)], 50, 40, id="one point"),
        pytest.param([(20, 30), (50, 60), (80, 0)], 100, 0, id="full"),
        pytest.param([(20, 30), (50, 60), (80, 0)], 60, 40, id="on the second line"),
    ],
)
def test_a_line_is_rounded_towards_the_earlier_point(
    shape: list[tuple[int, int]], utilization: int, points: int
) -> None:
    assert by_utilization(shape).of_row(utilization, 100) == points


def test_by_utilization_a_node_that_has_none_gets_no_points_and_does_not_count() -> None:
    scale = by_utilization([(0, 100), (100, 0)])
    assert (scale.of_row(0, 0), scale.of_row(3, 0)) == (0, 0)
    assert scale.of_rows(np.array([0, 3, 3]), np.array([0, 0, 4])).tolist() == [0, 0, 25]
    assert scale.of_used


def test_the_mean_is_rounded_down_or_over_what_has_points_to_the_nearest() -> None:
    assert mean([(33, 1), (50, 1)], of_used=False) == 41
    assert mean([(33, 1), (50, 1), (0, 5)], of_used=True) == 42
    assert mean([(0, 1)], of_used=True) == mean([], of_used=False) == 0


AMOUNT = st.one_of(st.integers(0, 12), st.integers(0, 2**53))


@given(
    name=st.sampled_from(list(SCALES)),
    rows=st.lists(st.tuples(AMOUNT, AMOUNT, AMOUNT, AMOUNT), min_size=1, max_size=5),
    weights=st.tuples(st.integers(1, 100), st.integers(1, 100)),
)
def test_one_row_and_many_rows_get_the_same_points(
    name: str, rows: list[tuple[int, int, int, int]], weights: tuple[int, int]
) -> None:
    one_by_one, scale = [], SCALES[name]()
    for first, of_first, second, of_second in rows:
        amounts = ((first, of_first, weights[0]), (second, of_second, weights[1]))
        points = [(scale.of_row(asked, there), weight) for asked, there, weight in amounts if there]
        one_by_one.append(mean(points, of_used=scale.of_used))
        assert 0 <= one_by_one[-1] <= 100
    columns = np.array(rows, dtype=np.int64).T
    shares = [
        (scale.of_rows(columns[asked], columns[there]), columns[there] > 0, weight)
        for asked, there, weight in ((0, 1, weights[0]), (2, 3, weights[1]))
    ]
    assert mean_over(shares, of_used=scale.of_used).tolist() == one_by_one


# Balance


def over(*names: str) -> NodeResourcesBalancedAllocation:
    """The rule over these resources."""
    said = {"resources": [{"name": name} for name in names]}
    return NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs.model_validate(said))


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param([], 100, id="nothing counts"),
        pytest.param([0.2, 0.4, 0.9], 70, id="three, by their standard deviation"),
    ],
)
def test_the_balance_of_a_node(shares: list[float], expected: int) -> None:
    assert balance(shares) == expected


def test_pods_that_request_none_of_the_resources_are_not_scored() -> None:
    assert not BALANCED.scores(pod("p"))
    assert not BALANCED.scores(pod("p", requests={"example.com/dev": "1"}))
    assert over("cpu", "example.com/dev").scores(pod("p", requests={"example.com/dev": "1"}))


@pytest.mark.parametrize(
    ("by_default", "as_asked"),
    [
        (FIT, NodeResourcesFit(NodeResourcesFitArgs(score_gpu_pods=True))),
        (BALANCED, NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs(score_gpu_pods=True))),
    ],
    ids=["fit", "balance"],
)
def test_pods_with_gpu_memory_are_scored_only_where_the_arguments_say_so(
    by_default: ScorePlugin, as_asked: ScorePlugin
) -> None:
    asking = pod("p", 3, requests={"cpu": "1"})
    assert (by_default.scores(asking), as_asked.scores(asking)) == (False, True)


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


@pytest.mark.parametrize(
    ("args", "said", "where"),
    [
        (
            NodeResourcesFitArgs,
            lambda named: {"scoringStrategy": {"resources": named}},
            ("scoringStrategy", "resources"),
        ),
        (NodeResourcesBalancedAllocationArgs, lambda named: {"resources": named}, ("resources",)),
    ],
    ids=["fit", "balance"],
)
def test_gpu_memory_is_no_resource_of_these_rules(
    args: type[NodeResourcesFitArgs | NodeResourcesBalancedAllocationArgs],
    said: Callable[[object], object],
    where: tuple[str, ...],
) -> None:
    found = args.model_validate(said([{"name": "cpu"}, {"name": "example.com/gpu-mem"}]))

    assert list(found.contradicting(Resources())) == []
    ((at, message),) = found.contradicting(Resources.model_validate({"gpuMem": "example.com/gpu-mem"}))
    assert at == (*where, 1, "name")
    assert "found example.com/gpu-mem: GpuShare scores it" in message


def test_a_resource_that_no_node_has_changes_no_balance() -> None:
    tables = tables_of(wire_node("a"), wire_node("b", cpu="4"))

    found = scored(over("example.com/fpga"), pod("p", requests={"example.com/fpga": "1"}), tables)

    assert found == dict.fromkeys("ab", points(100, 100) * 1000)
