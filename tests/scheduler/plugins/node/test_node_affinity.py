"""NodeAffinity: what a term matches as a table, how terms combine, and hypothesis against a plain reading."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Rejected, Relevance
from scheduler.plugins.node.node_affinity import CONFLICT, ENFORCED, REASON, NodeAffinity, NodeAffinityArgs
from scheduler.pods.pod import Pod
from tests.support.builders import pod, wire_node
from tests.support.judging import reasons, rejected, scored, state_of, tables_of

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODES = {
    "a": {"zone": "east", "gpus": "8"},
    "b": {"zone": "west", "gpus": "16"},
    "c": {"zone": "west"},
    "d": {"gpus": "many"},
}


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    """One expression or field."""
    return {"key": key, "operator": operator, "values": list(values)}


def term(*expressions: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """A node selector term."""
    return {"matchExpressions": list(expressions), "matchFields": list(fields)}


def requiring(*terms: dict[str, Any], selector: dict[str, str] | None = None) -> Pod:
    """A pod with required node affinity, and a nodeSelector."""
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}
    return pod("p", affinity=affinity, nodeSelector=selector or {})


def preferring(*weighted: tuple[int, dict[str, Any]]) -> Pod:
    """A pod with preferred node affinity."""
    terms = [{"weight": weight, "preference": preference} for weight, preference in weighted]
    return pod("p", affinity={"nodeAffinity": {PREFERRED: terms}})


def matching(waiting: Pod) -> set[str]:
    """Nodes of NODES that the pod may go to."""
    tables = tables_of(*(wire_node(name, labels=labels) for name, labels in NODES.items()))
    return set(NODES) - rejected(NodeAffinity(), waiting, tables)


EAST, WEST = requirement("zone", "In", "east"), requirement("zone", "In", "west")
NOT_A_NUMBER = requirement("gpus", "Gt", "lots")
NAMED_A, NOT_A = requirement("metadata.name", "In", "a"), requirement("metadata.name", "NotIn", "a")
NAMED_B = requirement("metadata.name", "In", "b")


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param(requiring(term(EAST)), {"a"}, id="In"),
        pytest.param(requiring(term(requirement("zone", "In", "east", "west"))), {"a", "b", "c"}, id="In a list"),
        pytest.param(requiring(term(requirement("zone", "NotIn", "east"))), {"b", "c", "d"}, id="NotIn takes absence"),
        pytest.param(requiring(term(requirement("gpus", "Exists"))), {"a", "b", "d"}, id="Exists"),
        pytest.param(requiring(term(requirement("gpus", "DoesNotExist"))), {"c"}, id="DoesNotExist"),
        pytest.param(requiring(term(requirement("gpus", "Gt", "8"))), {"b"}, id="Gt"),
        pytest.param(requiring(term(requirement("gpus", "Lt", "16"))), {"a"}, id="Lt"),
        pytest.param(requiring(term(requirement("rack", "In", "1"))), set(), id="a key that no node has"),
        pytest.param(requiring(term(requirement("rack", "NotIn", "1"))), {"a", "b", "c", "d"}, id="which NotIn takes"),
        pytest.param(requiring(term(WEST, requirement("gpus", "Exists"))), {"b"}, id="expressions are ANDed"),
        pytest.param(requiring(term(EAST), term(requirement("gpus", "DoesNotExist"))), {"a", "c"}, id="terms are ORed"),
        pytest.param(requiring(), set(), id="no terms match nothing"),
        pytest.param(requiring(term()), set(), id="an empty term matches nothing"),
        pytest.param(requiring(term(), term(EAST)), {"a"}, id="and takes nothing from the others"),
        pytest.param(requiring(term(NOT_A_NUMBER)), set(), id="a term that is not valid matches nothing"),
        pytest.param(requiring(term(EAST, NOT_A_NUMBER), term(WEST)), {"b", "c"}, id="nor do its valid parts"),
        pytest.param(requiring(term(fields=(NAMED_A,))), {"a"}, id="by name"),
        pytest.param(requiring(term(fields=(NOT_A,))), {"b", "c", "d"}, id="by name, not"),
        pytest.param(requiring(term(fields=(requirement("metadata.name", "In", "z"),))), set(), id="a name nobody has"),
        pytest.param(
            requiring(term(WEST, fields=(NOT_A, requirement("metadata.name", "NotIn", "b")))), {"c"}, id="all"
        ),
        pytest.param(
            requiring(term(fields=(requirement("metadata.name", "In", "a", "b"),))), set(), id="a field takes one value"
        ),
        pytest.param(requiring(term(fields=(requirement("metadata.uid", "In", "a"),))), set(), id="another field"),
        pytest.param(requiring(term(fields=(requirement("metadata.name", "Exists"),))), set(), id="another operator"),
        pytest.param(pod("p", nodeSelector={"zone": "west"}), {"b", "c"}, id="nodeSelector"),
        pytest.param(pod("p", nodeSelector={"zone": "west", "gpus": "16"}), {"b"}, id="nodeSelector is ANDed"),
        pytest.param(
            requiring(term(requirement("gpus", "Exists")), selector={"zone": "west"}), {"b"}, id="selector too"
        ),
        pytest.param(pod("p"), {"a", "b", "c", "d"}, id="nothing asked"),
    ],
)
def test_a_pod_may_go_to(waiting: Pod, expected: set[str]) -> None:
    assert matching(waiting) == expected


def test_the_words_are_kube_schedulers() -> None:
    tables = tables_of(wire_node("a", labels=NODES["a"]), wire_node("b"))
    assert reasons(NodeAffinity(), requiring(term(EAST)), tables) == {REASON: {"b"}}


def test_a_pod_that_asks_nothing_is_left_alone() -> None:
    assert NodeAffinity().pre_filter(pod("p"), tables_of(), CycleState()) is Relevance.SKIP
    assert NodeAffinity().pre_filter(preferring((1, term(EAST))), tables_of(), CycleState()) is Relevance.SKIP


@pytest.mark.parametrize(
    ("waiting", "conflict"),
    [
        pytest.param(requiring(term(fields=(NAMED_A, NAMED_B))), True, id="two names at once"),
        pytest.param(requiring(term(fields=(NAMED_A, NAMED_B)), term(fields=(NAMED_B,))), False, id="another term can"),
        pytest.param(requiring(term(fields=(NAMED_A, NAMED_B)), term(EAST)), False, id="another term names none"),
        pytest.param(requiring(term(fields=(NAMED_A, NOT_A))), False, id="only In is looked at, as in kube-scheduler"),
        pytest.param(requiring(), False, id="no terms"),
    ],
)
def test_names_that_exclude_each_other_are_told_at_once(waiting: Pod, conflict: bool) -> None:  # noqa: FBT001 - a case of the table
    result = NodeAffinity().pre_filter(waiting, tables_of(), CycleState())
    assert (result == Rejected(CONFLICT)) is conflict


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param(pod("p"), {"a": 0, "b": 0, "c": 0, "d": 0}, id="nothing preferred"),
        pytest.param(preferring((10, term(WEST)), (5, term(EAST))), {"a": 5, "b": 10, "c": 10, "d": 0}, id="weights"),
        pytest.param(
            preferring((10, term(WEST)), (7, term(requirement("gpus", "Exists")))),
            {"a": 7, "b": 17, "c": 10, "d": 7},
            id="weights add up",
        ),
        pytest.param(preferring((10, term())), {"a": 0, "b": 0, "c": 0, "d": 0}, id="an empty term prefers nothing"),
        pytest.param(
            preferring((10, term(NOT_A_NUMBER)), (3, term(EAST))), {"a": 3, "b": 0, "c": 0, "d": 0}, id="not valid"
        ),
    ],
)
def test_preferences_are_scored(waiting: Pod, expected: dict[str, int]) -> None:
    tables = tables_of(*(wire_node(name, labels=labels) for name, labels in NODES.items()))
    assert scored(NodeAffinity(), waiting, tables) == expected


VALUES = st.sampled_from(["east", "west", "5", "9"])
EXPRESSIONS = st.one_of(
    st.builds(requirement, st.sampled_from(["zone", "n"]), st.sampled_from(["In", "NotIn"]), VALUES, VALUES),
    st.builds(requirement, st.sampled_from(["zone", "n"]), st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(requirement, st.just("n"), st.sampled_from(["Gt", "Lt"]), st.just("6")),
)
TERMS = st.lists(st.builds(lambda expressions: term(*expressions), st.lists(EXPRESSIONS, max_size=3)), max_size=3)
LABELS = st.dictionaries(st.sampled_from(["zone", "n"]), VALUES)


def holds(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    """One expression, read plainly."""
    value, values = labels.get(expression["key"]), expression["values"]
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
        "Gt": value is not None and value.isdigit() and int(value) > 6,
        "Lt": value is not None and value.isdigit() and int(value) < 6,
    }[expression["operator"]]


@given(terms=TERMS, histories=st.lists(st.dictionaries(st.sampled_from("abc"), LABELS), min_size=1, max_size=3))
def test_any_selector_over_any_history_of_labels(
    terms: list[dict[str, Any]], histories: list[dict[str, dict[str, str]]]
) -> None:
    plugin, waiting, tables = NodeAffinity(), requiring(*terms), tables_of()
    state, nodes = state_of(plugin, waiting, tables), dict[str, dict[str, str]]()
    for changed in histories:
        nodes |= changed
        for name, labels in changed.items():
            tables.upsert_node(wire_node(name, labels=labels))
        expected = {
            name
            for name, labels in nodes.items()
            if any(
                t["matchExpressions"] and all(holds(expression, labels) for expression in t["matchExpressions"])
                for t in terms
            )
        }
        assert set(nodes) - reasons(plugin, waiting, tables, state).get(REASON, set()) == expected


def adding(**affinity: object) -> NodeAffinity:
    """The rule of a profile that adds this to every pod."""
    return NodeAffinity(NodeAffinityArgs.model_validate({"addedAffinity": affinity}))


def zone(*values: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": list(values)}]}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def test_a_profile_may_keep_its_pods_to_some_nodes_whatever_they_ask() -> None:
    rule = adding(**{REQUIRED: {"nodeSelectorTerms": [zone("b")]}})
    tables = tables_of(*(wire_node(name, labels={"zone": name, "disk": "ssd"}) for name in "ab"), wire_node("c"))
    assert reasons(rule, pod("p"), tables) == {ENFORCED: {"a", "c"}}
    selecting = pod("q", nodeSelector={"disk": "ssd", "zone": "a"})
    assert reasons(rule, selecting, tables) == {ENFORCED: {"a", "c"}, REASON: {"b"}}


def test_what_a_profile_prefers_counts_beside_what_the_pod_prefers() -> None:
    rule = adding(**{PREFERRED: [{"weight": 5, "preference": zone("b")}]})
    tables = tables_of(*(wire_node(name, labels={"zone": name}) for name in "ab"))
    assert scored(rule, pod("p"), tables) == {"a": 0, "b": 5}
    own = {"nodeAffinity": {PREFERRED: [{"weight": 7, "preference": zone("a", "b")}]}}
    assert scored(rule, pod("q", affinity=own), tables) == {"a": 7, "b": 12}


@pytest.mark.parametrize(
    "term",
    [
        pytest.param({}, id="empty"),
        pytest.param({"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["many"]}]}, id="no number"),
        pytest.param({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["u"]}]}, id="no such field"),
        pytest.param({"matchExpressions": [{"key": "n", "operator": "Like", "values": ["x"]}]}, id="no such operator"),
    ],
)
def test_an_added_term_that_nobody_can_read_is_refused(term: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        adding(**{REQUIRED: {"nodeSelectorTerms": [term]}})
