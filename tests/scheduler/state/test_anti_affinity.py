"""Anti-affinity terms: which pods they keep away, where, and when kept answers stop being true."""

import numpy as np
import pytest

from scheduler.kube.objects import LabelSelector, PodAffinityTerm, Requirement
from scheduler.state.anti_affinity import AntiAffinity, term_key
from scheduler.state.arrays import ALL_ROWS
from scheduler.state.labels import Labels

APP = LabelSelector({"app": "x"})
HOST, ZONE = "kubernetes.io/hostname", "zone"


def index(*zones: str, namespaces: dict[str, dict[str, str]] | None = None) -> tuple[AntiAffinity, Labels]:
    """Rows 0, 1, … in these zones, each with its own hostname."""
    labels = Labels()
    for row, zone in enumerate(zones):
        labels.set_row(row, {ZONE: zone, HOST: f"n{row}"})
    return AntiAffinity(labels, {} if namespaces is None else namespaces), labels


def closed(terms: AntiAffinity, labels: Labels, namespace: str = "default", app: str = "x") -> list[int]:
    """Rows that a pod is kept out of."""
    against = terms.against(namespace, {"app": app})
    return sorted({int(row) for term in against for row in np.flatnonzero(term.over(labels, ALL_ROWS))})


@pytest.mark.parametrize(
    ("term", "namespace", "matches"),
    [
        pytest.param(PodAffinityTerm(ZONE, APP), "default", True, id="own namespace"),
        pytest.param(PodAffinityTerm(ZONE, APP), "prod", False, id="another namespace"),
        pytest.param(PodAffinityTerm(ZONE, APP, None, ("prod",)), "prod", True, id="a named namespace"),
        pytest.param(PodAffinityTerm(ZONE, APP, None, ("prod",)), "default", False, id="names replace the own one"),
        pytest.param(PodAffinityTerm(ZONE, APP, LabelSelector()), "any", True, id="an empty selector takes all"),
        pytest.param(PodAffinityTerm(ZONE, APP, LabelSelector({"team": "a"})), "prod", True, id="selected"),
        pytest.param(PodAffinityTerm(ZONE, APP, LabelSelector({"team": "b"})), "prod", False, id="not selected"),
        pytest.param(PodAffinityTerm(ZONE, APP, LabelSelector({"team": "b"})), "default", False, id="nor the own one"),
        pytest.param(
            PodAffinityTerm(ZONE, APP, LabelSelector({"team": "a"}), ("q",)), "q", True, id="named or selected"
        ),
        pytest.param(
            PodAffinityTerm(ZONE, APP, LabelSelector(None, (Requirement("team", "DoesNotExist"),))),
            "unseen",
            True,
            id="a namespace not seen yet has no labels",
        ),
        pytest.param(PodAffinityTerm(ZONE, LabelSelector()), "default", True, id="empty pod selector takes all"),
        pytest.param(PodAffinityTerm(ZONE, None), "default", False, id="absent pod selector takes none"),
        pytest.param(PodAffinityTerm(ZONE, LabelSelector({"app": "y"})), "default", False, id="other labels"),
        pytest.param(
            PodAffinityTerm(ZONE, LabelSelector(None, (Requirement("app", "NotIn", ("y",)),))),
            "default",
            True,
            id="NotIn",
        ),
    ],
)
def test_which_pods_a_term_matches(term: PodAffinityTerm, namespace: str, matches: bool) -> None:  # noqa: FBT001 - a case of the table
    terms, labels = index("east", "west", namespaces={"prod": {"team": "a"}})
    terms.add("u", "default", (term,), 0)
    assert closed(terms, labels, namespace) == ([0] if matches else [])


def test_a_term_closes_its_whole_domain() -> None:
    terms, labels = index("east", "west", "east")
    terms.add("u", "default", (PodAffinityTerm(ZONE, APP),), 0)
    assert closed(terms, labels) == [0, 2]


def test_a_domain_opens_when_its_last_pod_is_gone() -> None:
    terms, labels = index("east", "west")
    for uid in ("u", "v"):
        terms.add(uid, "default", (PodAffinityTerm(ZONE, APP),), 0)
    terms.remove("u")
    assert closed(terms, labels) == [0]
    terms.remove("v")
    assert closed(terms, labels) == []
    assert not terms


def test_removing_a_pod_twice_or_one_that_never_came_changes_nothing() -> None:
    terms, labels = index("east")
    terms.add("u", "default", (PodAffinityTerm(ZONE, APP),), 0)
    terms.remove("w")
    assert closed(terms, labels) == [0]
    terms.remove("u")
    terms.remove("u")
    assert not terms


def test_a_node_without_the_topology_key_is_in_no_domain() -> None:
    terms, labels = index("east")
    terms.add("u", "default", (PodAffinityTerm("rack", APP),), 0)
    assert closed(terms, labels) == []
    labels.set_row(0, {"rack": "1"})
    terms.node_changed(0)
    assert closed(terms, labels) == [0]


def test_a_node_that_moves_takes_its_pods_along() -> None:
    terms, labels = index("east", "west", "east")
    terms.add("u", "default", (PodAffinityTerm(ZONE, APP),), 0)
    labels.set_row(0, {ZONE: "west"})
    terms.node_changed(0)
    assert closed(terms, labels) == [0, 1]


def test_a_term_that_can_match_nobody_is_not_kept() -> None:
    terms, _ = index("east")
    terms.add("u", "default", (PodAffinityTerm(ZONE, None),), 0)
    assert not terms
    assert terms.signature("default", {"app": "x"}) == ()
    terms.remove("u")
    assert term_key(PodAffinityTerm(ZONE, LabelSelector(None, (Requirement("a", "Gt", ("1",)),))), "default") is None


def test_equal_terms_of_many_pods_are_one() -> None:
    terms, _ = index("east", "west")
    for number in range(20):
        terms.add(f"u{number}", "default", (PodAffinityTerm(ZONE, APP),), number % 2)
    assert len(terms.against("default", {"app": "x"})) == 1


def test_classes_are_told_apart_by_namespace_and_by_the_labels_that_terms_read() -> None:
    terms, _ = index("east")
    assert terms.signature("default", {"app": "x"}) == terms.signature("prod", {}) == ()
    terms.add("u", "default", (PodAffinityTerm(ZONE, APP),), 0)
    key = terms.signature("default", {"app": "x", "pod-index": "1"})
    assert key == terms.signature("default", {"app": "x", "pod-index": "2"})
    assert key != terms.signature("default", {"app": "y"})
    assert key != terms.signature("default", {})
    assert key != terms.signature("prod", {"app": "x"})


def test_a_class_key_never_stands_for_the_labels_of_other_keys() -> None:
    terms, _ = index("east")
    terms.add("u", "default", (PodAffinityTerm(ZONE, LabelSelector({"app": "x"})),), 0)
    before = terms.signature("default", {"app": "x", "tier": "x"})
    terms.remove("u")
    terms.add("v", "default", (PodAffinityTerm(ZONE, LabelSelector({"tier": "x"})),), 0)
    assert terms.signature("default", {"app": "x", "tier": "x"}) != before


def test_the_epoch_moves_when_another_row_is_closed_or_opened() -> None:
    terms, _ = index("east", "west", "east")
    start = terms.epoch
    terms.add("u", "default", (PodAffinityTerm(ZONE, APP),), 0)
    closed_at = terms.epoch
    assert closed_at > start
    terms.add("v", "default", (PodAffinityTerm(ZONE, APP),), 2)
    terms.remove("v")
    assert terms.epoch == closed_at
    terms.remove("u")
    assert terms.epoch > closed_at


def test_a_domain_of_one_node_leaves_the_epoch_alone() -> None:
    terms, labels = index("east", "west")
    terms.add("u", "default", (PodAffinityTerm(HOST, APP), PodAffinityTerm(ZONE, APP)), 0)
    assert closed(terms, labels) == [0]
    terms.node_changed(0)
    terms.remove("u")
    assert terms.epoch == 0


def test_the_epoch_moves_with_namespaces_where_a_term_selects_them() -> None:
    namespaces = {"prod": {"team": "a"}}
    terms, labels = index("east", namespaces=namespaces)
    terms.add("u", "default", (PodAffinityTerm(ZONE, APP),), 0)
    terms.namespace_changed()
    assert terms.epoch == 0
    terms.add("v", "default", (PodAffinityTerm(ZONE, APP, LabelSelector({"team": "a"})),), 0)
    assert closed(terms, labels, "prod") == [0]
    namespaces["prod"] = {"team": "b"}
    terms.namespace_changed()
    assert terms.epoch == 1
    assert closed(terms, labels, "prod") == []
