"""Which node preemption chooses: how many it compares, by what rules want, and what it says of the others."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.engine import Engine
from scheduler.kube.port import CLAIMS, VOLUMES
from scheduler.plugins.preemption import default_preemption
from scheduler.plugins.preemption.default_preemption import NO_VICTIMS, NOT_HELPFUL
from scheduler.plugins.volume.volume_zone import REASON
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from tests.support.builders import away_from, bound, engine, pod, wire_node
from tests.support.placing import on_card
from tests.support.preempting import GUARDED, chosen, first_step, guard, next_step, no_fit, sought
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
    urgent = pod("urgent", requests={"cpu": "3"}, priority=1000, **with_claims("data"))

    found = first_step(built, no_fit(built, urgent))
    while found is None:
        looked_at.append(0)
        found = next_step(built)

    # 16 pods, and the node as much again: 8 nodes make 256, and the next one ends the step.
    assert [number for number in looked_at if number] == [8, 9, 9, 4]
    assert (found.preemption is not None) is helps


def counted(looked_at: list[int], function: Callable[..., Any]) -> Callable[..., Any]:
    """The same; adds one to the last number each time."""

    def counting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as it is called
        looked_at[-1] += 1
        return function(*args, **options)

    return counting


# Where rules want more victims than plain amounts

CHOOSY: Final = pod("urgent", requests={"cpu": "20"}, priority=100, affinity=away_from("x"))


def nodes_with(**priorities: tuple[int, int]) -> Engine:
    """On each node a pod that holds the cpu, and one that the urgent pod may not be beside: their priorities."""
    built = engine(**{name: [] for name in priorities})
    for name, (large, beside) in priorities.items():
        built.pod_assigned(bound(pod(f"{name}-large", requests={"cpu": "60"}, priority=large), name))
        built.pod_assigned(bound(pod(f"{name}-x", labels={"app": "x"}, priority=beside), name))
    return built


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param((5, 12), (8, 15), "a", id="less dear by amounts and by rules"),
        pytest.param((5, 15), (8, 12), "b", id="less dear by amounts only"),
        pytest.param((8, 15), (5, 12), "b", id="dearer by both"),
        pytest.param((5, 12), (5, 12), "a", id="as dear: by name"),
    ],
)
def test_the_node_is_chosen_by_what_the_rules_want(a: tuple[int, int], b: tuple[int, int], expected: str) -> None:
    found = chosen(nodes_with(a=a, b=b), CHOOSY)

    assert (found.node, found.victims) == (expected, (f"default/{expected}-x", f"default/{expected}-large"))


def begins(built: Engine, waiting: Pod) -> None:
    """The search has looked at the node that is the less dear one by amounts, and there is another."""
    built.budgets_listed()
    assert first_step(built, no_fit(built, waiting)) is None


def filled(built: Engine) -> None:
    built.pod_assigned(bound(pod("high", requests={"cpu": "60"}, priority=200), "a"))


@pytest.mark.parametrize(
    "changes",
    [pytest.param(filled, id="is full"), pytest.param(lambda built: built.node_gone("a"), id="is gone")],
)
def test_nobody_goes_where_the_chosen_node_has_changed_by_the_end(changes: Callable[[Engine], None]) -> None:
    built = nodes_with(a=(5, 12), b=(8, 15))
    # The better one of the two, as long as it serves.
    begins(built, CHOOSY)

    changes(built)
    found = next_step(built)

    assert found is not None
    assert found.preemption is None
    assert found.diagnosis.tail == "preemption: the pods on the chosen node have changed, trying again."


def test_a_card_that_its_node_announces_no_longer_is_left_out() -> None:
    built = engine(a=[16] * 9, b=[16])
    for name, node, card, units, priority in (
        *((f"high-{card}", "a", card, 16, 200) for card in range(8)),
        ("a-low", "a", 8, 16, 5),
        ("b-low", "b", 0, 12, 1),
        ("b-x", "b", 0, 1, 50),
    ):
        running = pod(name, units, priority=priority, labels={"app": "x"} if name == "b-x" else {})
        built.pod_assigned(bound(running, node, on_card(card, units)))
    begins(built, pod("urgent", 12, priority=100, annotations={names.CARD_ANTI_AFFINITY: "app=x"}))

    built.node_changed(wire_node("a", [16] * 8))
    found = next_step(built)

    assert found is not None
    assert found.preemption is not None
    assert [victim.key.name for victim in found.preemption.victims] == ["b-x", "b-low"]


def test_changes_of_very_long_ago_are_as_good_as_any() -> None:
    built = nodes_with(a=(5, 12), b=(8, 15))
    begins(built, CHOOSY)

    for number in range(70_000):
        built.tables.changes.note(number % 2, int(Change.PODS))
    found = next_step(built)

    assert found is not None
    assert found.preemption is not None
    assert found.preemption.node == "a"
