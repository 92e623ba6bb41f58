"""PodTopologySpread: which nodes a constraint rejects, in kube-scheduler's words, and which it prefers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import MAX_SCORE, POINT, Relevance
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.kube.objects import Taint
from scheduler.plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs
from scheduler.pods.pod import Pod
from scheduler.state.columns.selectors import equalities
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables
from tests.support.builders import bound, pod, wire_node
from tests.support.judging import reasons, tables_of

SKEWED = "node(s) didn't match pod topology spread constraints"
LACKING = "node(s) didn't match pod topology spread constraints (missing required label)"
HOST = "kubernetes.io/hostname"
WEB = {"labelSelector": {"matchLabels": {"app": "web"}}}


def hard(**more: object) -> dict[str, Any]:
    """One more web pod than in the emptiest zone, at most."""
    return {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **WEB, **more}


def soft(**more: object) -> dict[str, Any]:
    """Rather where there are fewer web pods."""
    return hard(whenUnsatisfiable="ScheduleAnyway", **more)


def waiting(*constraints: dict[str, Any], app: str = "web", **options: Any) -> Pod:  # noqa: ANN401 - as `manifest`
    """A pod that is spread."""
    labels = {"app": app, **options.pop("labels", {})}
    return pod("waiting", labels=labels, topologySpreadConstraints=list(constraints), **options)


def zoned(**nodes: str) -> Tables:
    """Tables with one node per keyword, in that zone; "" is none."""
    return tables_of(*(wire_node(name, labels={"zone": zone} if zone else {}) for name, zone in nodes.items()))


def put(
    tables: Tables,
    node: str,
    count: int = 1,
    app: str = "web",
    *,
    terminating: bool = False,
    **options: Any,  # noqa: ANN401 - as above
) -> None:
    """So many pods on a node."""
    labels = {"app": app, **options.pop("labels", {})}
    for _ in range(count):
        number = sum(1 for _ in tables.records())
        there = bound(pod(f"there-{number}", labels=labels, **options), node)
        tables.add(replace(there, terminating=terminating))


def against(tables: Tables, asking: Pod) -> dict[str, set[str]]:
    """Reason -> nodes."""
    return reasons(PodTopologySpread(), asking, tables)


def points(tables: Tables, asking: Pod, *feasible: str) -> dict[str, int] | None:
    """Of feasible nodes; all, when none is named."""
    mask = tables.valid.copy()
    if feasible:
        mask[:] = False
        mask[[tables.row_of[name] for name in feasible]] = True
    scores = PodTopologySpread().score_domains(asking, tables, CycleState(), mask)
    return None if scores is None else {name: int(scores[row]) for name, row in tables.row_of.items() if mask[row]}


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
    assert plugin.pre_filter(waiting(hard()), tables, CycleState()) is Relevance.JUDGE
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


def pod_comes(tables: Tables) -> None:
    put(tables, "b")


def pod_leaves(tables: Tables) -> None:
    tables.remove("uid-default-there-0")


def pod_terminates(tables: Tables) -> None:
    (record,) = tables.records_on("a")
    tables.add(replace(record.pod, terminating=True))


def node_goes(tables: Tables) -> None:
    tables.remove_node("b")


def node_is_tainted(tables: Tables) -> None:
    labels = {"zone": "west", "pool": "x"}
    tables.upsert_node(wire_node("b", labels=labels, taints=(Taint("closed", "NoSchedule"),)))


def node_is_labelled(tables: Tables, **labels: str) -> None:
    tables.upsert_node(wire_node("b", labels={"zone": "west", "pool": "x", **labels}))


def domain_comes(tables: Tables) -> None:
    tables.add(bound(pod("there-before", labels={"app": "web"}), "c"))
    tables.take_openings()
    tables.upsert_node(wire_node("c", labels={"zone": "north", "pool": "x"}))


@pytest.mark.parametrize(
    ("constraint", "change"),
    [
        pytest.param(hard(), pod_comes, id="a pod comes to the emptiest zone"),
        pytest.param(hard(), pod_leaves, id="a pod leaves the fullest"),
        pytest.param(hard(), pod_terminates, id="a pod of the fullest terminates"),
        pytest.param(hard(), node_goes, id="the emptiest zone goes"),
        pytest.param(hard(nodeTaintsPolicy="Honor"), node_is_tainted, id="it is tainted"),
        pytest.param(hard(), partial(node_is_labelled, zone="east"), id="its node moves to another zone"),
        pytest.param(hard(), partial(node_is_labelled, pool="y"), id="the pod may not go there any more"),
        pytest.param(hard(minDomains=3), domain_comes, id="there are as many zones as it asks"),
    ],
)
def test_who_waits_is_asked_again_when_a_place_opens(
    constraint: dict[str, Any], change: Callable[[Tables], None]
) -> None:
    zones = {"a": "east", "b": "west"}
    tables = tables_of(*(wire_node(name, labels={"zone": zone, "pool": "x"}) for name, zone in zones.items()))
    put(tables, "a")
    if "minDomains" in constraint:
        put(tables, "b")
    asking = waiting(constraint, nodeSelector={"pool": "x"})
    runtime = Runtime(Profile(pre_filter=(PodTopologySpread(),), filter=(PodTopologySpread(),)), tables)
    evaluation = runtime.evaluate(asking, runtime.signature(asking))
    assert not runtime.feasible(asking, evaluation)[tables.row_of["a"]]
    tables.take_openings()
    change(tables)
    opened = tables.take_openings()
    is_open = runtime.feasible(asking, runtime.evaluate(asking, runtime.signature(asking)))[tables.row_of["a"]]
    assert is_open
    assert evaluation.wakes_on & opened.everywhere


def test_what_cannot_help_asks_nobody() -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a")
    put(tables, "b", app="db")
    asking = waiting(hard())
    runtime = Runtime(Profile(pre_filter=(PodTopologySpread(),), filter=(PodTopologySpread(),)), tables)
    evaluation = runtime.evaluate(asking, runtime.signature(asking))
    runtime.feasible(asking, evaluation)
    tables.take_openings()
    put(tables, "b", app="db")
    put(tables, "b", namespace="other")
    tables.remove("uid-default-there-1")
    tables.upsert_node(wire_node("b", labels={"zone": "west", "temperature": "34"}))
    tables.upsert_node(wire_node("b", labels={"zone": "west"}, taints=(Taint("closed", "NoSchedule"),)))
    assert not evaluation.wakes_on & tables.take_openings().everywhere


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
    tables.take_openings()
    tables.set_selector("default", "service", (), of_service=True)
    assert evaluation.wakes_on & tables.take_openings().everywhere


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
