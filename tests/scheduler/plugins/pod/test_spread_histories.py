"""PodTopologySpread over random histories: held against a plain reading of the rule, and who waits is asked again.

The reading has loops over nodes and pods, as kube-scheduler's podtopologyspread/filtering.go. Scores:
`tests/differential`, groups spread_soft and spread_by_default.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.kube.objects import Taint
from scheduler.plugins.pod.pod_topology_spread import PodTopologySpread
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.tables import Tables
from tests.support.builders import bound, pod, wire_node
from tests.support.spreading import HOST, hard, soft

NODES = st.sampled_from("abcde")
LABELS = st.fixed_dictionaries(
    {},
    optional={
        "zone": st.sampled_from(["", "east", "west", "north"]),
        "rack": st.sampled_from(["r", "s"]),
        "pool": st.sampled_from("xy"),
    },
)
POD_LABELS = st.fixed_dictionaries({"app": st.sampled_from(["web", "db"])}, optional={"rev": st.sampled_from("12")})


@dataclass(frozen=True)
class There:
    """A pod that has a node."""

    node: str
    namespace: str
    labels: dict[str, str]
    terminating: bool = False


@dataclass
class World:
    """What the tables have been told. nodes: labels and whether tainted."""

    nodes: dict[str, tuple[dict[str, str], bool]] = field(default_factory=dict)
    pods: dict[str, There] = field(default_factory=dict)


@dataclass(frozen=True)
class Asking:
    """A pod that waits: its constraints, as on the wire, and what else of it the rule reads."""

    constraints: tuple[dict[str, Any], ...]
    labels: dict[str, str]
    pool: str = ""
    tolerates: bool = False

    def pod(self) -> Pod:
        return pod(
            "waiting",
            labels=self.labels,
            topologySpreadConstraints=list(self.constraints),
            tolerations=[{"operator": "Exists"}] if self.tolerates else [],
            nodeSelector={"pool": self.pool} if self.pool else {},
        )


WEB = {"app": "web", "rev": "1"}
ASKING = (
    Asking((hard(),), WEB),
    Asking((hard(maxSkew=2),), {"app": "db"}),
    Asking((hard(topologyKey=HOST), hard()), WEB),
    Asking((hard(topologyKey="rack", minDomains=2),), WEB),
    Asking((hard(matchLabelKeys=["rev"]),), WEB),
    Asking((hard(nodeAffinityPolicy="Ignore"),), WEB, pool="x"),
    Asking((hard(), soft(topologyKey="rack")), WEB, pool="x"),
    Asking((hard(nodeTaintsPolicy="Honor"),), WEB),
    Asking((hard(nodeTaintsPolicy="Honor"),), WEB, tolerates=True),
    Asking((hard(labelSelector={}),), WEB),
)


class Reading:
    """The rule as it is written, for one pod."""

    def __init__(self, world: World, asking: Asking) -> None:
        self.world, self.asking = world, asking

    def feasible(self) -> set[str]:
        constraints = self._of("DoNotSchedule")
        sums = [self._sums(each, constraints) for each in constraints]
        return {
            name
            for name, (labels, _) in self._nodes()
            if all(
                each["topologyKey"] in labels and self._fits(each, counted, counted.get(labels[each["topologyKey"]], 0))
                for each, counted in zip(constraints, sums, strict=True)
            )
        }

    def _fits(self, each: dict[str, Any], counted: dict[str, int], here: int) -> bool:
        least = min(counted.values()) if len(counted) >= each.get("minDomains", 1) else 0
        return bool(here + self._matches(each, self.asking.labels) - least <= each["maxSkew"])

    def _sums(self, each: dict[str, Any], constraints: list[dict[str, Any]]) -> dict[str, int]:
        counted: dict[str, int] = {}
        for name, (labels, tainted) in self._nodes():
            if not self._has_all(name, constraints):
                continue
            if each.get("nodeAffinityPolicy") != "Ignore" and self.asking.pool not in {"", labels.get("pool")}:
                continue
            if each.get("nodeTaintsPolicy") == "Honor" and tainted and not self.asking.tolerates:
                continue
            domain = labels[each["topologyKey"]]
            counted[domain] = counted.get(domain, 0) + self._on(name, each)
        return counted

    def _on(self, node: str, each: dict[str, Any]) -> int:
        if not each["labelSelector"]:
            return 0
        return sum(
            there.node == node
            and not there.terminating
            and there.namespace == "default"
            and self._matches(each, there.labels)
            for there in self.world.pods.values()
        )

    def _matches(self, each: dict[str, Any], labels: dict[str, str]) -> bool:
        wanted = dict(each["labelSelector"].get("matchLabels", {}))
        wanted |= {key: self.asking.labels[key] for key in each.get("matchLabelKeys", ())}
        return all(labels.get(key) == value for key, value in wanted.items())

    def _has_all(self, name: str, constraints: list[dict[str, Any]]) -> bool:
        return all(each["topologyKey"] in self.world.nodes[name][0] for each in constraints)

    def _nodes(self) -> list[tuple[str, tuple[dict[str, str], bool]]]:
        return list(self.world.nodes.items())

    def _of(self, unsatisfiable: str) -> list[dict[str, Any]]:
        return [each for each in self.asking.constraints if each["whenUnsatisfiable"] == unsatisfiable]


class Histories(RuleBasedStateMachine):
    """Nodes and pods come, change and go; each pod that asks is judged after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.tables, self.world, self.made = Tables(ResourceNames()), World(), 0
        self.profile = Profile(pre_filter=(PodTopologySpread(),), filter=(PodTopologySpread(),))
        self.runtime = Runtime(self.profile, self.tables)
        self.asking = [(each, each.pod()) for each in ASKING]
        # By pod that asks: what could help it after the last step, and where it could go.
        self.before: dict[int, tuple[int, set[str]]] = {}

    @initialize(zones=st.lists(st.sampled_from(["east", "west"]), min_size=4, max_size=4), pods=st.lists(NODES))
    def begins(self, zones: list[str], pods: list[str]) -> None:
        for name, zone in zip("abcd", zones, strict=True):
            self.node_comes_or_changes(name, {"zone": zone, "pool": "x", "rack": "r"}, tainted=False)
        for node in pods:
            self.pod_comes(node, "default", {"app": "web", "rev": "1"})

    @rule(name=NODES, labels=LABELS, tainted=st.booleans())
    def node_comes_or_changes(self, name: str, labels: dict[str, str], *, tainted: bool) -> None:
        taints = (Taint("closed", "NoSchedule"),) if tainted else ()
        self.world.nodes[name] = ({HOST: name, **labels}, tainted)
        self.tables.upsert_node(wire_node(name, labels=labels, taints=taints))

    @rule(name=NODES)
    def node_goes(self, name: str) -> None:
        self.world.nodes.pop(name, None)
        self.tables.remove_node(name)

    @rule(node=NODES, namespace=st.sampled_from(["default", "default", "other"]), labels=POD_LABELS)
    def pod_comes(self, node: str, namespace: str, labels: dict[str, str]) -> None:
        self.made += 1
        self._show(f"p{self.made}", There(node, namespace, labels))

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), labels=POD_LABELS, terminating=st.booleans())
    def pod_changes(self, data: st.DataObject, labels: dict[str, str], *, terminating: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.pods)))
        old = self.world.pods[name]
        self._show(name, There(old.node, old.namespace, labels, terminating))

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.pods)))
        there = self.world.pods.pop(name)
        self.tables.remove(f"uid-{there.namespace}-{name}")

    @invariant()
    def the_runtime_answers_what_is_true_and_who_waits_is_asked_when_it_helps(self) -> None:
        opened = self.tables.take_cluster_events()
        for number, (asking, waiting) in enumerate(self.asking):
            expected = Reading(self.world, asking).feasible()
            wakes_on = 0
            for runtime in (self.runtime, Runtime(self.profile, self.tables)):
                evaluation = runtime.evaluate(waiting)
                mask = runtime.feasible(waiting, evaluation)
                assert {name for name, row in self.tables.row_of.items() if mask[row]} == expected
                # Of the second one, which knows nothing of what was rejected before.
                wakes_on = evaluation.wakes_on
            woken_by, had = self.before.get(number, (0, expected))
            for name in expected - had:
                noted = opened.rows.get(self.tables.row_of[name], 0) | opened.everywhere
                assert woken_by & noted, f"{name} opened for {asking}"
            self.before[number] = wakes_on | int(Change.EXISTENCE), expected

    def _show(self, name: str, there: There) -> None:
        self.world.pods[name] = there
        shown = bound(pod(name, namespace=there.namespace, labels=there.labels), there.node)
        self.tables.add(replace(shown, terminating=there.terminating))


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
