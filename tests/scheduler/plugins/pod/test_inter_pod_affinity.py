"""InterPodAffinity: the evaluation cache never answers what is no longer true, and who waits is woken by what helps.

Which nodes terms reject or prefer: `tests/differential`, the groups of affinity.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.framework.plugin import PreFilterPlugin
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.plugins.pod.inter_pod_affinity import InterPodAffinity
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.tables import Tables
from tests.support.builders import bound, engine, pod, wire_node

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"


def term(topology: str, app: str, **more: object) -> dict[str, Any]:
    """A term against pods of an app."""
    return {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": app}}, **more}


def keeping_away(name: str, *terms: dict[str, Any], namespace: str = "default") -> Pod:
    """A pod with required anti-affinity."""
    return pod(name, namespace=namespace, affinity={"podAntiAffinity": {REQUIRED: list(terms)}})


def test_the_rule_looks_at_the_tables_so_it_cannot_be_skipped_per_class() -> None:
    assert not isinstance(InterPodAffinity(), PreFilterPlugin)


NODES = st.sampled_from("abcd")
ZONES = st.sampled_from(["", "east", "west"])
NAMESPACES = st.sampled_from(["default", "prod"])
SCOPES: list[dict[str, Any]] = [
    {},
    {"namespaces": ["prod"]},
    {"namespaceSelector": {}},
    {"namespaceSelector": {"matchLabels": {"team": "a"}}},
]
TERMS = st.builds(
    lambda topology, app, scope: term(topology, app, **scope),
    st.sampled_from(["zone", HOST]),
    st.sampled_from("xy"),
    st.sampled_from(SCOPES),
)


class Histories(RuleBasedStateMachine):
    """Nodes, namespaces and pods with terms come and go; after each step the cache is held against a plain reading."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables(ResourceNames())
        self.runtime = Runtime(Profile(filter=(InterPodAffinity(),)), self.tables)
        self.nodes: dict[str, str] = {}
        self.pods: dict[str, tuple[str, str, list[dict[str, Any]]]] = {}
        self.teams: dict[str, str] = {}
        self.made = 0

    @rule(name=NODES, zone=ZONES)
    def node_comes_or_changes(self, name: str, zone: str) -> None:
        self.nodes[name] = zone
        self.tables.upsert_node(wire_node(name, labels={"zone": zone} if zone else {}))

    @rule(name=NODES)
    def node_goes(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.tables.remove_node(name)

    @rule(node=NODES, namespace=NAMESPACES, terms=st.lists(TERMS, min_size=1, max_size=2))
    def somebody_binds(self, node: str, namespace: str, terms: list[dict[str, Any]]) -> None:
        self.made += 1
        there = bound(keeping_away(f"p{self.made}", *terms, namespace=namespace), node)
        self.pods[there.key.uid] = (node, namespace, terms)
        self.tables.add(there)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        del self.pods[uid]
        self.tables.remove(uid)

    @rule(namespace=NAMESPACES, team=st.sampled_from(["", "a", "b"]))
    def namespace_changes(self, namespace: str, team: str) -> None:
        if team:
            self.teams[namespace] = team
            self.tables.set_namespace(namespace, {"team": team})
        elif self.teams.pop(namespace, None):
            self.tables.set_namespace(namespace, None)

    @invariant()
    def the_runtime_answers_what_is_true_now(self) -> None:
        for namespace in ("default", "prod"):
            for app in "xyz":
                waiting = pod("waiting", namespace=namespace, labels={"app": app, "pod-index": str(self.made)})
                evaluation = self.runtime.evaluate(waiting)
                mask = self.runtime.feasible(waiting, evaluation)
                feasible = {name for name, row in self.tables.row_of.items() if mask[row]}
                assert feasible == {name for name in self.nodes if not self._kept_out(name, namespace, app)}

    def _kept_out(self, node: str, namespace: str, app: str) -> bool:
        return any(
            there in self.nodes and self._matches(own, each, namespace, app) and self._together(there, node, each)
            for there, own, terms in self.pods.values()
            for each in terms
        )

    def _matches(self, own: str, each: dict[str, Any], namespace: str, app: str) -> bool:
        if each["labelSelector"]["matchLabels"]["app"] != app:
            return False
        if "namespaces" in each:
            return namespace in each["namespaces"]
        if "namespaceSelector" in each:
            return not each["namespaceSelector"] or self.teams.get(namespace) == "a"
        return own == namespace

    def _together(self, one: str, other: str, each: dict[str, Any]) -> bool:
        if each["topologyKey"] == HOST:
            return one == other
        return bool(self.nodes[one]) and self.nodes[one] == self.nodes[other]


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def of(name: str, kind: str, *terms: dict[str, Any], labels: dict[str, str] | None = None) -> Pod:
    """A pod that requires this affinity or anti-affinity."""
    return pod(name, affinity={kind: {REQUIRED: list(terms)}}, labels=labels or {})


def waiting_engine(waiting: Pod, *, cordoned: str = "", **zones: str) -> Engine:
    """The whole engine, a node of each name in that zone, and a pod that found no fit. cordoned: one of the nodes."""
    built = engine()
    for name, zone in zones.items():
        built.tables.upsert_node(wire_node(name, labels={"zone": zone}, unschedulable=name == cordoned))
    built.pod_waiting(waiting, 0.0)
    return built


def decided(built: Engine) -> str:
    """Where the next pod goes, "" nowhere, "nobody" when none is to be decided."""
    decision = built.decide(0.0, 1)
    if decision is None:
        return "nobody"
    return decision.outcome.node if isinstance(decision.outcome, Placement) else ""


def test_a_pod_waits_for_its_company_and_is_woken_by_it_alone() -> None:
    built = waiting_engine(of("p", "podAffinity", term("zone", "db")), a="east", b="west")
    assert decided(built) == ""
    built.pod_assigned(bound(pod("other", labels={"app": "web"}), "a"))
    assert decided(built) == "nobody"
    built.pod_assigned(bound(pod("db", labels={"app": "db"}), "b"))
    assert decided(built) == "b"


def test_a_pod_that_is_nominated_is_no_company_until_it_has_come() -> None:
    built = waiting_engine(of("p", "podAffinity", term("zone", "db")), a="east", b="west")
    coming = pod("db", labels={"app": "db"})
    built.nominations.nominate(coming, "b", None)
    assert decided(built) == ""
    built.pod_assigned(bound(coming, "b"))
    assert decided(built) == "b"


def test_a_pod_waits_until_the_company_that_it_forbids_has_left() -> None:
    built = waiting_engine(of("p", "podAntiAffinity", term("zone", "db")), a="east", b="east", cordoned="a")
    for name, app in (("db", "db"), ("other", "web")):
        built.pod_assigned(bound(pod(name, labels={"app": app}), "a"))
    assert decided(built) == ""
    built.pod_gone("uid-default-other")
    assert decided(built) == "nobody"
    built.pod_gone("uid-default-db")
    assert decided(built) == "b"


def test_a_pod_that_others_keep_out_waits_until_they_have_left() -> None:
    built = waiting_engine(pod("p", labels={"app": "x"}), a="east", b="east", cordoned="a")
    for name, app in (("there", "x"), ("other", "y")):
        built.pod_assigned(bound(keeping_away(name, term("zone", app)), "a"))
    assert decided(built) == ""
    built.pod_gone("uid-default-other")
    assert decided(built) == "nobody"
    built.pod_gone("uid-default-there")
    assert decided(built) == "b"


def test_a_pod_of_several_terms_is_woken_by_what_helps_with_any_of_them() -> None:
    kinds = {"podAffinity": {REQUIRED: [term("zone", "db")]}, "podAntiAffinity": {REQUIRED: [term("rack", "web")]}}
    built = waiting_engine(pod("p", affinity=kinds), a="east")
    built.node_changed(wire_node("a", labels={"zone": "east", "rack": "1"}))
    for name in ("db", "web"):
        built.pod_assigned(bound(pod(name, labels={"app": name}), "a"))
    assert decided(built) == ""
    built.node_changed(wire_node("b", labels={"zone": "east", "rack": "1"}))
    assert decided(built) == "nobody"
    built.node_changed(wire_node("b", labels={"zone": "east", "rack": "2"}))
    assert decided(built) == "b"


def test_who_may_be_the_first_of_a_group_goes_anywhere_once_the_last_of_another_has_left() -> None:
    waiting = of("p", "podAffinity", term("zone", "db"), labels={"app": "db"})
    built = waiting_engine(waiting, a="east", b="west", cordoned="b")
    built.pod_assigned(bound(pod("db", labels={"app": "db"}), "b"))
    assert decided(built) == ""
    built.pod_gone("uid-default-db")
    assert decided(built) == "a"


def test_a_node_that_moves_into_the_domain_opens_it() -> None:
    built = waiting_engine(of("p", "podAffinity", term("zone", "db")), a="east", b="west")
    built.pod_assigned(bound(pod("db", labels={"app": "db"}), "a"))
    built.node_changed(wire_node("a", labels={}))
    assert decided(built) == ""
    built.node_changed(wire_node("a", labels={"zone": "west"}))
    assert decided(built) in {"a", "b"}
