"""PodTopologySpread by default: the constraints of pods that have none, and the arguments that say which."""

from typing import Any

import pytest
from pydantic import ValidationError

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import MAX_SCORE, POINT
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.plugins.pod.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs
from scheduler.state.columns.selectors import equalities
from scheduler.state.tables import Tables
from tests.support.builders import pod, wire_node
from tests.support.judging import reasons, tables_of
from tests.support.spreading import HOST, LACKING, SKEWED, against, points, put, soft, waiting, zoned


def owned(tables: Tables, **selected: str) -> None:
    """A Service of these labels."""
    tables.set_selector("default", "service", equalities(selected), of_service=True)


def listed(**constraint: object) -> PodTopologySpread:
    """With one default constraint."""
    asked = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **constraint}
    arguments = {"defaultingType": "List", "defaultConstraints": [asked]}
    return PodTopologySpread(PodTopologySpreadArgs.model_validate(arguments))


def test_pods_of_a_service_that_say_nothing_are_rather_on_other_nodes_and_in_other_zones() -> None:
    labels = {"topology.kubernetes.io/zone": "e"}
    tables = tables_of(wire_node("a", labels=labels), wire_node("b", labels=labels), wire_node("c"))
    put(tables, "a", 3)
    asking = pod("p", labels={"app": "web"})
    assert points(tables, asking) is None
    owned(tables, app="web")
    # Three nodes weigh log(5); two zones, e and none, log(4). Raw scores 3 · 1.61 + 2 + 3 · 1.39 + 4, 6 + 4.16, and 2.
    assert points(tables, asking) == {"a": 13 * POINT, "b": 46 * POINT, "c": MAX_SCORE}
    assert against(tables, asking) == {}


def test_a_pod_with_constraints_of_its_own_gets_none_by_default() -> None:
    tables = zoned(a="east", b="west")
    owned(tables, app="web")
    put(tables, "a", 2)
    asking = waiting(soft(topologyKey="rack"))
    assert reasons(listed(), asking, tables) == {}
    assert reasons(listed(), pod("p", labels={"app": "web"}), tables) == {SKEWED: {"a"}}


def test_listed_constraints_hold_for_pods_that_something_selects() -> None:
    tables = zoned(a="east", b="west", c="")
    put(tables, "a", 2)
    asking = pod("p", labels={"app": "web"})
    assert reasons(listed(), asking, tables) == {}
    owned(tables, app="web")
    assert reasons(listed(), asking, tables) == {SKEWED: {"a"}, LACKING: {"c"}}
    assert reasons(listed(maxSkew=3), asking, tables) == {LACKING: {"c"}}
    assert reasons(listed(minDomains=3, topologyKey=HOST), asking, tables) == {SKEWED: {"a"}}
    assert (
        reasons(PodTopologySpread(PodTopologySpreadArgs.model_validate({"defaultingType": "List"})), asking, tables)
        == {}
    )


def test_with_listed_soft_constraints_a_node_without_the_label_gets_no_points() -> None:
    tables = zoned(a="east", b="west", c="")
    put(tables, "a", 2)
    owned(tables, app="web")
    plugin, asking = listed(whenUnsatisfiable="ScheduleAnyway"), pod("p", labels={"app": "web"})
    scores = plugin.score_domains(asking, tables, CycleState(), tables.valid)
    assert scores is not None
    assert [int(scores[tables.row_of[name]]) for name in "abc"] == [0, MAX_SCORE, 0]


def test_pods_that_other_services_select_are_other_classes() -> None:
    tables, plugin = zoned(a="east"), PodTopologySpread()
    before = plugin.signature(pod("p", labels={"app": "web"}), tables)
    owned(tables, app="web")
    web = plugin.signature(pod("p", labels={"app": "web"}), tables)
    assert before is None
    assert web is not None
    assert web == plugin.signature(pod("q", labels={"app": "web", "index": "7"}), tables)
    assert plugin.signature(pod("p", labels={"app": "db"}), tables) is None


def test_who_waits_by_a_listed_constraint_is_asked_again_when_the_service_goes() -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a", 2)
    owned(tables, app="web")
    plugin, asking = listed(), pod("p", labels={"app": "web"})
    runtime = Runtime(Profile(pre_filter=(plugin,), filter=(plugin,)), tables)
    evaluation = runtime.evaluate(asking, runtime.signature(asking))
    runtime.feasible(asking, evaluation)
    tables.take_cluster_events()
    tables.set_selector("default", "service", (), of_service=True)
    assert evaluation.wakes_on & tables.take_cluster_events().everywhere


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"defaultConstraints": [{"topologyKey": "z", "maxSkew": 1}]}, id="incomplete"),
        pytest.param(
            {"defaultConstraints": [{"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
            id="listed, with System",
        ),
        pytest.param(
            {
                "defaultingType": "List",
                "defaultConstraints": [{"topologyKey": "z", "maxSkew": 0, "whenUnsatisfiable": "DoNotSchedule"}],
            },
            id="no skew",
        ),
        pytest.param(
            {
                "defaultingType": "List",
                "defaultConstraints": [{"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}] * 2,
            },
            id="twice",
        ),
    ],
)
def test_arguments_that_cannot_hold_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PodTopologySpreadArgs.model_validate(arguments)
