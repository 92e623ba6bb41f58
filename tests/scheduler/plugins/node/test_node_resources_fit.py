"""NodeResourcesFit: what does not fit and in which words, how many copies fit, and the arithmetic of the score."""

import numpy as np
import pytest
from pydantic import ValidationError

from config.protocol import names
from config.settings.scheduler import Resources
from scheduler.plugins.node.node_resources_fit import (
    NodeResourcesFit,
    NodeResourcesFitArgs,
    asks,
    is_extended,
)
from scheduler.state.amounts import Amount
from scheduler.state.tables import Tables
from tests.support.builders import bound, pod, wire_node
from tests.support.judging import reasons, rejected, scored, state_of, tables_of

FIT = NodeResourcesFit(NodeResourcesFitArgs())


def weighing(strategy: str = "LeastAllocated", /, **weights: int) -> NodeResourcesFit:
    """The rule with this strategy over resources of these weights."""
    resources = [{"name": name, "weight": weight} for name, weight in weights.items()]
    said = {"type": strategy, **({"resources": resources} if resources else {})}
    return NodeResourcesFit(NodeResourcesFitArgs.model_validate({"scoringStrategy": said}))


MOST = weighing("MostAllocated")


def used(tables: Tables, node: str, requests: dict[str, str] | None = None, *, count: int = 1) -> Tables:
    """`tables` with `count` pods on `node`."""
    for number in range(count):
        tables.add(bound(pod(f"on-{node}-{number}", requests=requests), node))
    return tables


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param({}, set(), id="nothing asked"),
        pytest.param({"cpu": "1", "memory": "1Gi"}, set(), id="just fits"),
        pytest.param({"cpu": "1001m"}, {"Insufficient cpu"}, id="cpu"),
        pytest.param({"memory": "1025Mi"}, {"Insufficient memory"}, id="memory"),
        pytest.param({"ephemeral-storage": "11Gi"}, {"Insufficient ephemeral-storage"}, id="ephemeral storage"),
        pytest.param({"hugepages-2Mi": "4Mi"}, {"Insufficient hugepages-2Mi"}, id="huge pages"),
        pytest.param({"example.com/dev": "3"}, {"Insufficient example.com/dev"}, id="an extended resource"),
        pytest.param({"example.com/none": "1"}, {"Insufficient example.com/none"}, id="one that no node has"),
        pytest.param({"cpu": "2", "memory": "2Gi"}, {"Insufficient cpu", "Insufficient memory"}, id="two at once"),
        pytest.param({"memory": "16Ei"}, {"Insufficient memory"}, id="an absurd amount"),
    ],
)
def test_what_does_not_fit_is_said_in_kube_schedulers_words(requests: dict[str, str], expected: set[str]) -> None:
    allocatable = {"ephemeral_storage": "10Gi", "hugepages-2Mi": "2Mi", "example.com/dev": "4", "memory": "2Gi"}
    tables = tables_of(wire_node("a", cpu="2", **allocatable))  # type: ignore[arg-type]
    used(tables, "a", {"cpu": "1", "memory": "1Gi", "example.com/dev": "2"})
    assert set(reasons(FIT, pod("p", requests=requests), tables)) == expected


def test_a_node_takes_as_many_pods_as_it_allows_whatever_they_ask() -> None:
    tables = used(tables_of(wire_node("a", pods="2"), wire_node("b", pods="3")), "a", count=2)
    used(tables, "b", count=2)
    assert reasons(FIT, pod("p"), tables) == {"Too many pods": {"a"}}


def test_an_over_committed_node_takes_no_more_but_still_pods_that_ask_nothing() -> None:
    tables = used(tables_of(wire_node("a", cpu="1")), "a", {"cpu": "1"}, count=2)
    assert rejected(FIT, pod("p", requests={"cpu": "1m"}), tables) == {"a"}
    assert rejected(FIT, pod("p", requests={"memory": "1"}), tables) == set()


def test_gpu_memory_is_not_judged_here() -> None:
    assert rejected(FIT, pod("p", 8), tables_of(wire_node("a"))) == set()


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


def test_nodes_are_scored_by_what_is_left_with_the_pod_on_them() -> None:
    tables = tables_of(wire_node("a", cpu="4", memory="4Gi"), wire_node("b", cpu="4", memory="4Gi"))
    used(tables, "a", {"cpu": "1", "memory": "1Gi"})
    waiting = pod("p", requests={"cpu": "1", "memory": "2Gi"})
    assert scored(FIT, waiting, tables) == {"a": 37_000, "b": 62_000}
    assert scored(MOST, waiting, tables) == {"a": 62_000, "b": 37_000}


def test_pods_that_ask_nothing_count_as_small_ones() -> None:
    tables = used(tables_of(wire_node("a", cpu="1", memory="1000Mi")), "a")
    assert scored(FIT, pod("p"), tables) == {"a": (80_000 + 60_000) // 2}


def test_pods_with_gpu_memory_are_scored_only_where_the_arguments_say_so() -> None:
    assert not FIT.scores(pod("p", 3))
    assert NodeResourcesFit(NodeResourcesFitArgs(score_gpu_pods=True)).scores(pod("p", 3))


def test_a_resource_that_the_node_lacks_does_not_count() -> None:
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


def test_gpu_memory_is_no_resource_of_this_rule() -> None:
    named = [{"name": "cpu"}, {"name": "example.com/gpu-mem"}]
    args = NodeResourcesFitArgs.model_validate({"scoringStrategy": {"resources": named}})

    assert list(args.contradicting(Resources())) == []
    ((where, message),) = args.contradicting(Resources.model_validate({"gpuMem": "example.com/gpu-mem"}))
    assert where == ("scoringStrategy", "resources", 1, "name")
    assert "found example.com/gpu-mem: GpuShare scores it" in message
