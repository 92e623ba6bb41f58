"""PodTopologySpread: nominated pods, classes of pods, who is woken, and the constraints of pods that have none.

Which nodes a constraint rejects or prefers: `tests/differential`, the groups of spread, and `test_spread_histories.py`.
"""

from typing import Any

import pytest
from pydantic import ValidationError

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import MAX_SCORE, Relevance
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.kube.objects import Taint
from scheduler.plugins.pod.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs
from scheduler.state.columns.selectors import equalities
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables
from tests.support.builders import pod, wire_node
from tests.support.judging import reasons
from tests.support.spreading import HOST, LACKING, SKEWED, against, hard, put, soft, waiting, zoned


def test_nominated_pods_fill_their_own_domain_and_open_no_other() -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a")
    kept = Nominations(tables)
    kept.nominate(pod("coming", labels={"app": "web"}), "b", None)
    assert against(tables, waiting(hard())) == {SKEWED: {"a"}}
    put(tables, "b")
    assert against(tables, waiting(hard())) == {SKEWED: {"b"}}


@pytest.mark.parametrize("selector", [pytest.param(None, id="matches none"), pytest.param({}, id="counts none")])
def test_nominated_pods_do_not_count_where_none_does(selector: dict[str, Any] | None) -> None:
    tables = zoned(a="east", b="west")
    Nominations(tables).nominate(pod("coming", labels={"app": "web"}), "b", None)
    assert against(tables, waiting(hard(labelSelector=selector))) == {}


@pytest.mark.parametrize(
    ("selector", "closed"),
    [
        pytest.param({"labelSelector": {}, "matchLabelKeys": ["revision"]}, set(), id="keys alone, another revision"),
        pytest.param({"labelSelector": {}, "matchLabelKeys": ["app"]}, {"a"}, id="keys alone, the same value"),
    ],
)
def test_an_empty_selector_with_label_keys_counts_pods_of_the_same_values(
    selector: dict[str, Any], closed: set[str]
) -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a", 2, labels={"revision": "1"})
    found = against(tables, waiting(hard(**selector), labels={"revision": "2"}))
    assert found == ({SKEWED: closed} if closed else {})


def test_soft_constraints_reject_nobody_and_hard_ones_prefer_nobody() -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a", 9)
    plugin = PodTopologySpread()
    assert plugin.pre_filter(waiting(soft()), tables, CycleState()) is Relevance.SKIP
    assert plugin.scores(waiting(soft()))
    assert plugin.pre_filter(waiting(hard()), tables, CycleState()) is Relevance.EVALUATE
    assert not plugin.scores(waiting(hard()))
    assert plugin.pre_filter(pod("plain"), tables, CycleState()) is Relevance.SKIP


def test_pods_are_one_class_as_long_as_a_constraint_tells_them_not_apart() -> None:
    tables, plugin = zoned(a="east"), PodTopologySpread()
    constraints = [hard(matchLabelKeys=["revision"])]

    def signature(**options: Any) -> object:  # noqa: ANN401 - as `pod`
        return plugin.signature(pod("p", topologySpreadConstraints=constraints, **options), tables)

    web = {"app": "web", "revision": "1"}
    assert signature(labels=web) == signature(labels={**web, "pod-index": "7"})
    assert signature(labels=web) != signature(labels={**web, "revision": "2"})
    assert signature(labels=web) != signature(labels={**web, "app": "db"})
    assert signature(labels=web) != signature(labels=web, namespace="other")
    assert plugin.signature(pod("p", labels=web), tables) is None


def test_what_cannot_help_asks_nobody() -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a")
    put(tables, "b", app="db")
    asking = waiting(hard())
    runtime = Runtime(Profile(pre_filter=(PodTopologySpread(),), filter=(PodTopologySpread(),)), tables)
    evaluation = runtime.evaluate(asking)
    runtime.feasible(asking, evaluation)
    tables.take_cluster_events()
    put(tables, "b", app="db")
    put(tables, "b", namespace="other")
    tables.remove("uid-default-there-1")
    tables.upsert_node(wire_node("b", labels={"zone": "west", "temperature": "34"}))
    tables.upsert_node(wire_node("b", labels={"zone": "west"}, taints=(Taint("closed", "NoSchedule"),)))
    assert not evaluation.wakes_on & tables.take_cluster_events().everywhere


# Constraints by default

HARD = {"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


def owned(tables: Tables, **selected: str) -> None:
    """A Service of these labels."""
    tables.set_selector("default", "service", equalities(selected), of_service=True)


def listed(**constraint: object) -> PodTopologySpread:
    """With one default constraint."""
    arguments = {"defaultingType": "List", "defaultConstraints": [HARD | {"topologyKey": "zone"} | constraint]}
    return PodTopologySpread(PodTopologySpreadArgs.model_validate(arguments))


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
    evaluation = runtime.evaluate(asking)
    runtime.feasible(asking, evaluation)
    tables.take_cluster_events()
    tables.set_selector("default", "service", (), of_service=True)
    assert evaluation.wakes_on & tables.take_cluster_events().everywhere


@pytest.mark.parametrize(
    ("kind", "constraints"),
    [
        pytest.param("List", [{"topologyKey": "z", "maxSkew": 1}], id="incomplete"),
        pytest.param("System", [HARD], id="listed, with System"),
        pytest.param("List", [HARD | {"maxSkew": 0}], id="no skew"),
        pytest.param("List", [HARD, HARD], id="twice"),
    ],
)
def test_arguments_that_cannot_hold_are_refused(kind: str, constraints: list[dict[str, Any]]) -> None:
    with pytest.raises(ValidationError):
        PodTopologySpreadArgs.model_validate({"defaultingType": kind, "defaultConstraints": constraints})
