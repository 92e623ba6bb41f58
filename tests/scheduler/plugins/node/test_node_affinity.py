"""NodeAffinity: terms that are not valid, names that exclude each other, what a profile adds, the labels looked at.

What valid terms match, and what preferences count: `tests/differential`, groups node_affinity and node_fields.
"""

from typing import Any

import pytest
from pydantic import ValidationError

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Rejected, Relevance
from scheduler.plugins.node.node_affinity import CONFLICT, ENFORCED, REASON, NodeAffinity, NodeAffinityArgs, required
from scheduler.pods.pod import Pod
from tests.support.builders import pod, wire_node
from tests.support.judging import reasons, rejected, scored, tables_of

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODES = {"a": {"zone": "east"}, "b": {"zone": "west"}, "c": {"zone": "west"}}


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    """One expression or field."""
    return {"key": key, "operator": operator, "values": list(values)}


def term(*expressions: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """A node selector term."""
    return {"matchExpressions": list(expressions), "matchFields": list(fields)}


def requiring(*terms: dict[str, Any]) -> Pod:
    """A pod with required node affinity."""
    return pod("p", affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}})


EAST, WEST = requirement("zone", "In", "east"), requirement("zone", "In", "west")
NOT_A_NUMBER = requirement("zone", "Gt", "lots")
NAMED_A, NOT_A = requirement("metadata.name", "In", "a"), requirement("metadata.name", "NotIn", "a")
NAMED_B = requirement("metadata.name", "In", "b")


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param(requiring(), set(), id="no terms match nothing"),
        pytest.param(requiring(term(NOT_A_NUMBER)), set(), id="a term that is not valid matches nothing"),
        pytest.param(requiring(term(EAST, NOT_A_NUMBER), term(WEST)), {"b", "c"}, id="nor do its valid parts"),
        pytest.param(
            requiring(term(fields=(requirement("metadata.name", "In", "a", "b"),))), set(), id="a field takes one value"
        ),
        pytest.param(requiring(term(fields=(requirement("metadata.uid", "In", "a"),))), set(), id="another field"),
        pytest.param(requiring(term(fields=(requirement("metadata.name", "Exists"),))), set(), id="another operator"),
    ],
)
def test_a_term_that_is_not_valid_matches_no_node(waiting: Pod, expected: set[str]) -> None:
    tables = tables_of(*(wire_node(name, labels=labels) for name, labels in NODES.items()))
    assert set(NODES) - rejected(NodeAffinity(), waiting, tables) == expected


@pytest.mark.parametrize(
    "waiting",
    [
        pytest.param(requiring(term(fields=(NAMED_A, NAMED_B)), term(fields=(NAMED_B,))), id="another term can"),
        pytest.param(requiring(term(fields=(NAMED_A, NAMED_B)), term(EAST)), id="another term names none"),
        pytest.param(requiring(term(fields=(NAMED_A, NOT_A))), id="only In is looked at, as in kube-scheduler"),
    ],
)
def test_names_that_may_still_be_met_are_no_conflict(waiting: Pod) -> None:
    assert NodeAffinity().pre_filter(waiting, tables_of(), CycleState()) != Rejected(CONFLICT)


@pytest.mark.parametrize("affinity", [{}, {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": term(EAST)}]}}])
def test_a_pod_that_requires_nothing_is_left_alone(affinity: dict[str, Any]) -> None:
    assert NodeAffinity().pre_filter(pod("p", affinity=affinity), tables_of(), CycleState()) is Relevance.SKIP


def test_a_preference_that_is_not_valid_counts_nothing() -> None:
    terms = [{"weight": 10, "preference": term(NOT_A_NUMBER)}, {"weight": 3, "preference": term(EAST)}]
    tables = tables_of(*(wire_node(name, labels=labels) for name, labels in NODES.items()))
    preferring = pod("p", affinity={"nodeAffinity": {PREFERRED: terms}})
    assert scored(NodeAffinity(), preferring, tables) == {"a": 3, "b": 0, "c": 0}


def adding(**affinity: object) -> NodeAffinity:
    """The rule of a profile that adds this to every pod."""
    return NodeAffinity(NodeAffinityArgs.model_validate({"addedAffinity": affinity}))


def test_a_profile_may_keep_its_pods_to_some_nodes_whatever_they_ask() -> None:
    rule = adding(**{REQUIRED: {"nodeSelectorTerms": [term(requirement("zone", "In", "b"))]}})
    tables = tables_of(*(wire_node(name, labels={"zone": name, "disk": "ssd"}) for name in "ab"), wire_node("c"))
    assert reasons(rule, pod("p"), tables) == {ENFORCED: {"a", "c"}}
    selecting = pod("q", nodeSelector={"disk": "ssd", "zone": "a"})
    assert reasons(rule, selecting, tables) == {ENFORCED: {"a", "c"}, REASON: {"b"}}


def test_what_a_profile_prefers_counts_beside_what_the_pod_prefers() -> None:
    rule = adding(**{PREFERRED: [{"weight": 5, "preference": term(requirement("zone", "In", "b"))}]})
    tables = tables_of(*(wire_node(name, labels={"zone": name}) for name in "ab"))
    assert scored(rule, pod("p"), tables) == {"a": 0, "b": 5}
    own = {"nodeAffinity": {PREFERRED: [{"weight": 7, "preference": term(requirement("zone", "In", "a", "b"))}]}}
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


def looking_at(*keys: str) -> dict[str, Any]:
    """A pod's affinity, with a term for each label."""
    terms = [term(requirement(key, "Exists")) for key in keys]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"nodeSelector": {"zone": "east", "disk": "ssd"}}, {"zone", "disk"}, id="of the selector"),
        pytest.param({"affinity": looking_at("rack", "row")}, {"rack", "row"}, id="of each term"),
        pytest.param({"nodeSelector": {"zone": "e"}, "affinity": looking_at("rack")}, {"zone", "rack"}, id="of both"),
    ],
)
def test_the_labels_that_a_pod_looks_at(spec: dict[str, Any], expected: set[str]) -> None:
    wanted = required(pod("p", **spec).template)

    assert wanted is not None
    assert wanted.keys == expected
