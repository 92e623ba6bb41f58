"""Which nodes preemption compares where there are more than it compares, and what it says of the others."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit
from scheduler.kube.port import CLAIMS, VOLUMES
from scheduler.plugins.preemption import default_preemption
from scheduler.plugins.preemption.default_preemption import NO_VICTIMS, NOT_HELPFUL
from scheduler.plugins.volume.volume_zone import REASON
from tests.support.builders import bound, pod, wire_node
from tests.support.placing import NOW_NS
from tests.support.preempting import GUARDED, chosen, guard, sought
from tests.support.volumes import ZONE, claim, show, volume, with_claims
from tests.support.volumes import bound as of_volume

FPGA: Final = "example.com/fpga"


def comparing(absolute: int, percentage: int = 0) -> Engine:
    """An engine without nodes."""
    args = {"minCandidateNodesAbsolute": absolute, "minCandidateNodesPercentage": percentage}
    profile = {"pluginConfig": [{"name": "DefaultPreemption", "args": args}]}
    built, _ = build_engine(SchedulerConfiguration.model_validate({"profiles": [profile]}))
    return built


def full(
    built: Engine,
    number: int,
    priority: int,
    *,
    guarded: bool = False,
    cores: int = 4,
    cpu: str = "4",
    **options: Any,  # noqa: ANN401 - as `wire_node`
) -> None:
    """A node with one pod, whose priority it is. guarded: a disruption budget is about it. cores: that it asks."""
    name, labels = f"n{number:03}", GUARDED if guarded else {}
    built.node_changed(wire_node(name, cpu=cpu, **options))
    asked = {"cpu": str(cores)}
    built.pod_assigned(bound(pod(f"on-{name}", requests=asked, priority=priority, labels=labels), name))


URGENT = pod("urgent", requests={"cpu": "3"}, priority=1000)


@pytest.mark.parametrize(
    ("absolute", "percentage", "nodes", "compared"),
    [
        pytest.param(5, 0, 20, 5, id="so many"),
        pytest.param(0, 25, 20, 5, id="a share"),
        pytest.param(5, 50, 20, 10, id="the share, where that is more"),
        pytest.param(5, 10, 20, 5, id="so many, where that is more"),
        pytest.param(0, 0, 20, 1, id="one at least"),
        pytest.param(100, 10, 110, 100, id="by default"),
        pytest.param(100, 10, 20, 20, id="all of a few"),
    ],
)
def test_the_cheapest_of_the_first_nodes_by_name_is_chosen(
    absolute: int, percentage: int, nodes: int, compared: int
) -> None:
    built = comparing(absolute, percentage)
    for number in range(nodes):
        full(built, number, priority=nodes - number)

    assert chosen(built, URGENT).node == f"n{compared - 1:03}"


def test_nodes_are_compared_until_one_is_found_whose_victims_no_budget_protects() -> None:
    built = comparing(3)
    for number in range(12):
        full(built, number, priority=12 - number, guarded=number < 7)
    guard(built, 0)

    assert chosen(built, URGENT).node == "n007"


def test_one_node_whose_victims_no_budget_protects_is_enough_wherever_it_comes() -> None:
    built = comparing(3)
    for number in range(8):
        full(built, number, priority=8 - number, guarded=number != 3)
    guard(built, 0)

    assert chosen(built, URGENT).node == "n003"


def test_nodes_where_places_are_kept_for_others_are_compared_last() -> None:
    built = comparing(2)
    for number in range(4):
        full(built, number, priority=4 - number)
    for number in range(2):
        built.nominations.nominate(pod(f"kept-{number}", priority=2000), f"n{number:03}", None)

    assert chosen(built, URGENT).node == "n003"


@pytest.mark.parametrize(
    ("absolute", "asks", "expected"),
    [
        pytest.param(
            100, {}, f"1 {NOT_HELPFUL}, 2 {NO_VICTIMS}, 3 Insufficient cpu, 5 {REASON}", id="each by what its rules say"
        ),
        pytest.param(
            2, {}, f"2 {NO_VICTIMS}, 2 {REASON}, 3 Insufficient cpu, 4 {NOT_HELPFUL}", id="rules are asked about two"
        ),
        pytest.param(
            100,
            {FPGA: "1"},
            f"3 Insufficient cpu, 3 Insufficient {FPGA}, 3 {NOT_HELPFUL}, 5 {REASON}",
            id="where plain amounts do not say all",
        ),
        pytest.param(
            7,
            {FPGA: "1"},
            f"2 Insufficient {FPGA}, 3 Insufficient cpu, 3 {NOT_HELPFUL}, 5 {REASON}",
            id="where they do not say all, rules are asked about seven",
        ),
    ],
)
def test_every_node_is_told_of_where_none_is_helped(absolute: int, asks: dict[str, str], expected: str) -> None:
    built = comparing(absolute)
    show(built.tables, VOLUMES, volume("pv", labels={ZONE: "z1"}))
    show(built.tables, CLAIMS, of_volume(claim("data"), "pv"))
    for number in range(5):
        full(built, number, priority=1, labels={ZONE: "z2"}, more={FPGA: "1"})
    for number in range(5, 8):
        full(built, number, priority=1, cores=2, labels={ZONE: "z1"}, more={FPGA: "1"})
        built.pod_assigned(bound(pod(f"high-{number}", requests={"cpu": "2"} | asks, priority=2000), f"n{number:03}"))
    for number in range(8, 10):
        full(built, number, priority=2000, labels={ZONE: "z1"})
    full(built, 10, priority=1, cpu="2", labels={ZONE: "z1"})

    found = sought(built, pod("urgent", requests={"cpu": "3"} | asks, priority=1000, **with_claims("data")))

    assert found.diagnosis.tail == f"preemption: 0/11 nodes are available: {expected}."


@pytest.mark.parametrize("helps", [pytest.param(True, id="with victims"), pytest.param(False, id="in vain")])
def test_a_step_looks_at_a_bounded_number_of_nodes(*, helps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    built, looked_at = comparing(100), [0]
    show(built.tables, VOLUMES, volume("pv", labels={ZONE: "z1"}))
    show(built.tables, CLAIMS, of_volume(claim("data"), "pv"))
    for number in range(30):
        name = f"n{number:03}"
        built.node_changed(wire_node(name, cpu="4", labels={ZONE: "z1" if helps else "z2"}))
        for small in range(16):
            running = pod(f"on-{name}-{small}", requests={"cpu": "250m"}, priority=number * 16 + small)
            built.pod_assigned(bound(running, name))
    for function in ("by_amounts", "without_all"):
        monkeypatch.setattr(default_preemption, function, counted(looked_at, vars(default_preemption)[function]))
    built.budgets_listed()
    built.pod_waiting(pod("urgent", requests={"cpu": "3"}, priority=1000, **with_claims("data")), 0.0)
    decision = built.decide(0.0, NOW_NS)
    assert decision is not None
    assert isinstance(decision.outcome, NoFit)

    found = built.post_filter(decision.outcome, 0.0)
    while found is None:
        looked_at.append(0)
        found = built.post_filter_next(0.0)

    # 16 pods, and the node as much again: 8 nodes make 256, and the next one ends the step.
    assert [number for number in looked_at if number] == [8, 9, 9, 4]
    assert (found.preemption is not None) is helps


def counted(looked_at: list[int], function: Callable[..., Any]) -> Callable[..., Any]:
    """The same; adds one to the last number each time."""

    def counting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as it is called
        looked_at[-1] += 1
        return function(*args, **options)

    return counting
