"""The rows of single rules: what is counted finds what it has to find, and two of them are raced at a small size."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from e2e.bench import workload
from e2e.bench.contenders import OURS, YARDSTICK
from e2e.bench.race import disks, preempting, race, report, rule_pods
from e2e.bench.race.placed import Placed
from e2e.bench.race.rows import ROWS
from e2e.bench.workload import CARDS_PER_NODE, NAMESPACE, ZONES, Json, Size

SIZE = Size(nodes=6, pods=8, templates=2)
NODES = list(workload.nodes(SIZE))


def placed(pods: Sequence[Json], on: Sequence[int], others: Sequence[Json] = ()) -> Placed:
    """Each pod on the node of that number; every third is in the same zone."""
    for pod, number in zip(pods, on, strict=True):
        pod["metadata"]["namespace"] = NAMESPACE
        pod["spec"]["nodeName"] = NODES[number]["metadata"]["name"]
    return Placed(NODES, [*others, *pods])


@pytest.mark.parametrize(
    ("check", "pods", "on", "count"),
    [
        pytest.param(rule_pods.skewed, rule_pods.spread, [0, 0, 1, 1, 2, 2, 3, 3], 0, id="2, 1 and 1 are even"),
        pytest.param(rule_pods.skewed, rule_pods.spread, [0, 0, 1, 1, 0, 2, 3, 3], 1, id="3, 1 and 0 are not"),
        pytest.param(rule_pods.skewed, rule_pods.spread, [0, 0, 1, 1, 0, 0, 1, 1], 2, id="an empty zone counts"),
        pytest.param(rule_pods.together, rule_pods.apart, [0, 0, 1, 1, 2, 2, 3, 3], 0, id="of two templates"),
        pytest.param(rule_pods.together, rule_pods.apart, [0, 1, 0, 2, 0, 3, 3, 4], 2, id="three of one template"),
        pytest.param(rule_pods.elsewhere, rule_pods.preferring, [0, 1, 3, 4, 0, 1, 3, 4], 0, id="where they prefer"),
        pytest.param(rule_pods.elsewhere, rule_pods.preferring, [0, 1, 3, 4, 1, 1, 3, 5], 2, id="elsewhere"),
        pytest.param(disks.out_of_reach, disks.pods, [0, 1, 2, 3, 4, 5, 0, 1], 0, id="at the disk"),
        pytest.param(disks.out_of_reach, disks.pods, [0, 1, 2, 3, 4, 5, 0, 2], 1, id="in another zone than the disk"),
    ],
)
def test_a_check_counts_what_breaks_the_rule(
    check: Callable[[Placed], int], pods: Callable[[Size], list[Json]], on: list[int], count: int
) -> None:
    assert check(placed(list(pods(SIZE)), on)) == count


@pytest.mark.parametrize(("number", "nodes"), [(disks.PER_NODE, 0), (disks.PER_NODE + 1, 1)])
def test_more_disks_than_a_node_can_attach_are_counted(number: int, nodes: int) -> None:
    pods = list(disks.pods(dataclasses.replace(SIZE, pods=number)))
    assert disks.nodes_with_too_many(placed(pods, [0] * number)) == nodes


@pytest.mark.parametrize(("gone", "beyond"), [(8, 0), (11, 3)])
def test_evictions_beyond_one_per_preemptor_are_counted(gone: int, beyond: int) -> None:
    residents = [pod for path, made in preempting.before(SIZE) if path.endswith("pods") for pod in made]
    for pod in residents:
        pod["metadata"]["namespace"] = preempting.RESIDENTS
    assert len(residents) == len(NODES) * CARDS_PER_NODE
    found = placed(list(preempting.preemptors(SIZE)), [0] * 8, residents[gone:])
    assert preempting.evicted_beyond_need(found) == beyond


def test_the_zones_of_the_nodes_take_turns() -> None:
    zones = [node["metadata"]["labels"][workload.ZONE] for node in NODES]
    assert zones == [*ZONES, *ZONES]


@pytest.mark.parametrize(
    ("key", "scheduler", "size"),
    [
        pytest.param("preemption", OURS, Size(nodes=4, pods=3, templates=1), id="preemption, ours"),
        pytest.param("claims", YARDSTICK, Size(nodes=3, pods=12, templates=2), id="claims, kube-scheduler"),
    ],
)
def test_a_small_race_is_run_to_its_end(key: str, scheduler: str, size: Size) -> None:
    row = dataclasses.replace(ROWS[key], size=size)
    run = race.run(scheduler, row)
    assert report.problems(run) == []
    assert [counted.number for counted in run.counts] == [0] * len(row.checks)
    assert run.verdict.placed >= size.pods
    assert run.seconds > 0
