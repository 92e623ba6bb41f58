"""PodTopologySpread: which nodes a constraint rejects, in kube-scheduler's words, and which it prefers."""

from typing import Any

import pytest

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import MAX_SCORE, POINT, Relevance
from scheduler.kube.objects import Taint
from scheduler.plugins.pod.pod_topology_spread import PodTopologySpread
from scheduler.state.nominations import Nominations
from tests.support.builders import pod, wire_node
from tests.support.judging import tables_of
from tests.support.spreading import HOST, LACKING, SKEWED, WEB, against, hard, points, put, soft, waiting, zoned


def test_a_domain_that_would_exceed_the_emptiest_by_more_than_max_skew_is_closed() -> None:
    tables = zoned(a="east", b="west", c="east")
    put(tables, "a")
    assert against(tables, waiting(hard())) == {SKEWED: {"a", "c"}}
    assert against(tables, waiting(hard(maxSkew=2))) == {}
    put(tables, "b")
    assert against(tables, waiting(hard())) == {}


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


def test_a_pod_that_is_not_one_of_those_that_are_spread_adds_nothing_to_its_domain() -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a")
    assert against(tables, waiting(hard(), app="db")) == {}
    put(tables, "a")
    assert against(tables, waiting(hard(), app="db")) == {SKEWED: {"a"}}


def test_a_node_without_the_label_is_rejected_and_counts_for_nothing() -> None:
    tables = zoned(a="east", b="west", c="")
    put(tables, "c", 5)
    assert against(tables, waiting(hard())) == {LACKING: {"c"}}


def test_a_node_counts_only_with_the_keys_of_all_constraints_and_the_first_that_objects_says_why() -> None:
    tables = tables_of(
        wire_node("both", labels={"zone": "east", "rack": "r"}), wire_node("zone-only", labels={"zone": "west"})
    )
    put(tables, "both")
    put(tables, "zone-only", 3)
    # West counts nothing, so east is the emptiest, with one.
    assert against(tables, waiting(hard(), hard(topologyKey="rack"))) == {LACKING: {"zone-only"}}
    put(tables, "both", app="db")
    rack_first = waiting(hard(topologyKey="rack", minDomains=2), hard())
    assert against(tables, rack_first) == {SKEWED: {"both"}, LACKING: {"zone-only"}}


def test_with_fewer_domains_than_min_domains_the_emptiest_is_taken_to_hold_none() -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a")
    put(tables, "b")
    assert against(tables, waiting(hard(minDomains=2))) == {}
    assert against(tables, waiting(hard(minDomains=3))) == {SKEWED: {"a", "b"}}


def test_pods_that_terminate_and_pods_of_other_namespaces_do_not_count() -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a", 3, namespace="other")
    put(tables, "a", 3, terminating=True)
    assert against(tables, waiting(hard())) == {}


@pytest.mark.parametrize(
    ("selector", "closed"),
    [
        pytest.param({"labelSelector": {}}, set(), id="an empty one counts none"),
        pytest.param({"labelSelector": None}, set(), id="none matches none"),
        pytest.param(WEB, {"a"}, id="labels"),
        pytest.param(
            {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, {"a"}, id="expressions"
        ),
        pytest.param({"matchLabelKeys": ["revision"]}, set(), id="another revision"),
        pytest.param({"matchLabelKeys": ["app"]}, {"a"}, id="the same value"),
        pytest.param({"matchLabelKeys": ["absent"]}, {"a"}, id="a label that the pod lacks"),
        pytest.param({"labelSelector": {}, "matchLabelKeys": ["revision"]}, set(), id="keys alone, another revision"),
        pytest.param({"labelSelector": {}, "matchLabelKeys": ["app"]}, {"a"}, id="keys alone, the same value"),
    ],
)
def test_which_pods_are_spread(selector: dict[str, Any], closed: set[str]) -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a", 2, labels={"revision": "1"})
    found = against(tables, waiting(hard(**selector), labels={"revision": "2"}))
    assert found == ({SKEWED: closed} if closed else {})


@pytest.mark.parametrize(
    ("policies", "closed"),
    [
        pytest.param({}, set(), id="the pod cannot go to the empty zone"),
        pytest.param({"nodeAffinityPolicy": "Honor"}, set(), id="in words"),
        pytest.param({"nodeAffinityPolicy": "Ignore"}, {"a", "b"}, id="it counts all the same"),
    ],
)
def test_nodes_that_the_pods_affinity_excludes_count_or_not(policies: dict[str, str], closed: set[str]) -> None:
    tables = tables_of(*(wire_node(name, labels={"zone": name, "pool": pool}) for name, pool in zip("abc", "xxy")))  # noqa: B905
    put(tables, "a")
    put(tables, "b")
    found = against(tables, waiting(hard(**policies), nodeSelector={"pool": "x"}))
    assert found == ({SKEWED: closed} if closed else {})


@pytest.mark.parametrize(
    ("policies", "tolerations", "closed"),
    [
        pytest.param({}, [], {"a"}, id="tainted nodes count by default"),
        pytest.param({"nodeTaintsPolicy": "Ignore"}, [], {"a"}, id="in words"),
        pytest.param({"nodeTaintsPolicy": "Honor"}, [], set(), id="they do not"),
        pytest.param({"nodeTaintsPolicy": "Honor"}, [{"operator": "Exists"}], {"a"}, id="tolerated ones do"),
    ],
)
def test_nodes_whose_taints_are_not_tolerated_count_or_not(
    policies: dict[str, str], tolerations: list[dict[str, str]], closed: set[str]
) -> None:
    tainted = wire_node("b", labels={"zone": "west"}, taints=(Taint("closed", "NoSchedule"),))
    tables = tables_of(wire_node("a", labels={"zone": "east"}), tainted)
    put(tables, "a")
    found = against(tables, waiting(hard(**policies), tolerations=tolerations))
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


def test_the_fewer_pods_a_zone_has_the_more_points_its_nodes_get() -> None:
    tables = zoned(a="east", b="west", c="north", d="")
    put(tables, "a", 4)
    put(tables, "b", 2)
    # Three zones weigh log(5): raw scores 6, 3, 0.
    assert points(tables, waiting(soft())) == {"a": 0, "b": MAX_SCORE // 2, "c": MAX_SCORE, "d": 0}


def test_only_feasible_domains_weigh_and_all_their_pods_count() -> None:
    tables = zoned(a="east", b="west", c="north", d="east")
    put(tables, "a", 4)
    put(tables, "b", 2)
    # Two zones weigh log(4): raw scores 6 and 3.
    assert points(tables, waiting(soft()), "d", "b") == {"d": MAX_SCORE // 2, "b": MAX_SCORE}


def test_by_hostname_each_node_counts_its_own_pods_whatever_the_policies_say() -> None:
    tables = zoned(a="east", b="east", c="east")
    put(tables, "a", 2)
    put(tables, "b", 1)
    asking = waiting(soft(topologyKey=HOST), nodeSelector={"zone": "west"})
    # Three nodes weigh log(5): raw scores 3, 2, 0.
    assert points(tables, asking) == {"a": 0, "b": 33 * POINT, "c": MAX_SCORE}


def test_max_skew_waters_the_difference_down() -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a", 2)
    # log(4) for each pod, and 4 for every zone: raw scores 7 and 4.
    assert points(tables, waiting(soft(maxSkew=5))) == {"a": 57 * POINT, "b": MAX_SCORE}


def test_where_all_nodes_are_alike_none_is_preferred() -> None:
    tables = zoned(a="east", b="west", c="")
    assert points(tables, waiting(soft()), "a", "b") is None
    assert points(tables, waiting(soft())) == {"a": MAX_SCORE, "b": MAX_SCORE, "c": 0}
    assert points(tables, waiting(soft()), "c") is None


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
