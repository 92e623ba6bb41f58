"""Anti-affinity terms: which are found for a pod, and when kept answers stop being true.

Where they keep pods away: `plugins/pod/test_inter_pod_affinity.py`; `tests/differential`, existing_anti_affinity.
"""

import gc
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.kube.objects import LabelSelector, PodAffinityTerm, Requirement
from scheduler.pods.gpu_request import ResourceNames
from scheduler.state.columns.arrays import ALL_ROWS
from scheduler.state.columns.selectors import match
from scheduler.state.facts.existing_terms import AntiAffinity
from scheduler.state.facts.label_index import LabelIndex
from scheduler.state.facts.pod_terms import TermKey, term_key
from scheduler.state.tables import Tables
from tests.support.builders import READER, bound, wire_node, wire_pod
from tests.system.histories.pod_templates import OTHERS

APP = LabelSelector({"app": "x"})
HOST, ZONE = "kubernetes.io/hostname", "zone"


def asks(namespace: str, *terms: PodAffinityTerm) -> tuple[str, tuple[tuple[int, PodAffinityTerm], ...]]:
    """What is read of a pod with these required terms."""
    return namespace, tuple((1, term) for term in terms)


OWN = asks("default", PodAffinityTerm(ZONE, APP))


def index(*zones: str, namespaces: dict[str, dict[str, str]] | None = None) -> tuple[AntiAffinity, Tables]:
    """Rows 0, 1, … in these zones, each with its own hostname."""
    tables = Tables(ResourceNames())
    for row, zone in enumerate(zones):
        tables.upsert_node(wire_node(f"n{row}", labels={ZONE: zone}))
    for name, labels in (namespaces or {}).items():
        tables.set_namespace(name, labels)
    return tables.fact(AntiAffinity), tables


def closed(terms: AntiAffinity, namespace: str = "default", app: str = "x") -> list[int]:
    """Rows that a pod is kept out of."""
    against = terms.against(namespace, {"app": app})
    return np.flatnonzero(terms.closed(against, ALL_ROWS)).tolist()


def test_a_term_that_can_match_nobody_is_not_kept() -> None:
    terms, _ = index("east")
    terms.book(0, asks("default", PodAffinityTerm(ZONE, None)), 1)
    assert not terms
    assert terms.signature("default", {"app": "x"}) == ()
    assert term_key(PodAffinityTerm(ZONE, LabelSelector(None, (Requirement("a", "Gt", ("1",)),))), "default") is None


def test_classes_are_told_apart_by_the_terms_that_match_them() -> None:
    terms, _ = index("east")
    assert terms.signature("default", {"app": "x"}) == terms.signature("prod", {}) == ()
    terms.book(0, asks("default", PodAffinityTerm(ZONE, APP)), 1)
    signature = terms.signature("default", {"app": "x", "pod-index": "1"})
    assert signature == terms.signature("default", {"app": "x", "pod-index": "2"})
    assert signature != terms.signature("default", {"app": "y"}) == terms.signature("default", {})
    assert terms.signature("prod", {"app": "x"}) == ()


def test_a_label_that_a_term_of_another_namespace_looks_at_tells_no_pods_apart() -> None:
    terms, _ = index("east")
    for number in range(100):
        selector = LabelSelector(None, (Requirement("pod-index", "In", (str(number),)),))
        terms.book(0, asks("theirs", PodAffinityTerm(ZONE, selector)), 1)
    assert len({terms.signature("default", {"pod-index": str(number)}) for number in range(100)}) == 1
    assert len({terms.signature("theirs", {"pod-index": str(number)}) for number in range(100)}) == 100


EXPRESSIONS = st.builds(
    Requirement,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from("xyz"), max_size=2).map(tuple),
)
WITHOUT_TEAM = LabelSelector(None, (Requirement("team", "DoesNotExist"),))
SELECTORS = st.builds(LabelSelector, st.none(), st.lists(EXPRESSIONS, max_size=2).map(tuple))
TERMS = st.builds(
    PodAffinityTerm,
    st.just(ZONE),
    SELECTORS,
    st.sampled_from([None, LabelSelector(), LabelSelector({"team": "a"}), WITHOUT_TEAM]),
    st.lists(st.sampled_from(["default", "prod"]), max_size=2).map(tuple),
)


def matches(key: TermKey, namespace: str, about: dict[str, str], labels: dict[str, str]) -> bool:
    """The plain reading: one term, one pod."""
    selected = key.namespace_selector is not None and match(key.namespace_selector, about)
    return (namespace in key.namespaces or selected) and match(key.selector, labels)


@given(st.lists(TERMS, max_size=8), st.lists(st.integers(0, 7), max_size=4))
def test_the_terms_that_are_found_are_those_that_match(written: list[PodAffinityTerm], gone: list[int]) -> None:
    terms, tables = index("east", namespaces={"prod": {"team": "a"}})
    there = {}
    for number, term in enumerate(written):
        terms.book(0, asks("default", term), 1)
        there[number] = term_key(term, "default")
    for number in gone:
        if there.pop(number, None) is not None:
            terms.book(0, asks("default", written[number]), -1)
    for namespace in ("default", "prod", "unseen"):
        for labels in ({}, {"a": "x"}, {"a": "y", "b": "z"}, {"b": "x"}):
            about = tables.namespaces.get(namespace, {})
            expected = {key for key in there.values() if key is not None and matches(key, namespace, about, labels)}
            found = terms.against(namespace, labels).tolist()
            assert found == sorted(terms.terms.slot(key) for key in expected)


def test_a_signature_never_stands_for_the_labels_of_other_keys() -> None:
    terms, _ = index("east")
    terms.book(0, asks("default", PodAffinityTerm(ZONE, LabelSelector({"app": "x"}))), 1)
    before = terms.signature("default", {"app": "x", "tier": "x"})
    terms.book(0, asks("default", PodAffinityTerm(ZONE, LabelSelector({"app": "x"}))), -1)
    terms.book(0, asks("default", PodAffinityTerm(ZONE, LabelSelector({"tier": "x"}))), 1)
    assert terms.signature("default", {"app": "x", "tier": "x"}) != before


def test_relabelling_a_node_says_whether_a_domain_moved() -> None:
    terms, _ = index("east", "west")
    terms.book(0, OWN, 1)
    terms.node_changed(0, wire_node("n0", labels={ZONE: "east", "other": "label"}))
    terms.node_changed(1, wire_node("n1", labels={ZONE: "east"}))
    assert not terms.moved
    terms.node_changed(0, wire_node("n0", labels={ZONE: "west"}))
    assert terms.moved == terms.bits(terms.against("default", {"app": "x"}))


def test_a_pod_with_a_term_that_leaves_opens_every_row() -> None:
    _, tables = index("east", "west", "east")
    tables.take_cluster_events()
    owner = READER.read(wire_pod("owner", **OTHERS["away from web in the zone"]))
    tables.add(bound(owner, "n0"))
    assert not tables.take_cluster_events()
    terms = tables.fact(AntiAffinity)
    bits = terms.bits(terms.against("default", {"app": "web"}))
    tables.remove(owner.key.uid)
    assert tables.take_cluster_events().everywhere == bits != 0


def test_namespaces_count_where_a_term_selects_them() -> None:
    terms, tables = index("east", namespaces={"prod": {"team": "a"}})
    terms.book(0, OWN, 1)
    version = terms.terms.version
    tables.set_namespace("other", {})
    assert terms.terms.version == version
    terms.book(0, asks("default", PodAffinityTerm(ZONE, APP, LabelSelector({"team": "a"}))), 1)
    assert closed(terms, "prod") == [0]
    version = terms.terms.version
    tables.set_namespace("prod", {"team": "b"})
    assert terms.terms.version > version
    assert closed(terms, "prod") == []


def calls(act: Callable[[], object]) -> int:
    """Of Python functions, while it runs; without what a collection calls that happens to fall into it."""
    made = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal made
        made += event == "call"

    gc.disable()
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return made


@pytest.mark.parametrize("scope", [None, LabelSelector()], ids=["own namespace", "all namespaces"])
def test_terms_that_nearly_every_pod_matches_are_not_gone_through_at_each_decision(scope: LabelSelector | None) -> None:
    terms, _ = index("east", "west")

    def decide() -> None:
        terms.signature("default", {"app": "x"})
        assert closed(terms) == [0]

    def book(pod: int) -> None:
        lacking = (LabelSelector(None, (Requirement(f"k-{pod}-{n}", "DoesNotExist"),)) for n in range(64))
        terms.book(0, asks("default", *(PodAffinityTerm(ZONE, each, scope) for each in lacking)), 1)

    book(0)
    decide()
    of_one_pod = calls(decide)
    for pod in range(1, 20):
        book(pod)
    decide()
    assert calls(decide) == of_one_pod


def test_a_signature_of_many_terms_is_short_and_tells_them_apart() -> None:
    terms, _ = index("east")
    for number in range(100):
        lacking = LabelSelector(None, (Requirement(f"k-{number}", "DoesNotExist"),))
        terms.book(0, asks("default", PodAffinityTerm(ZONE, lacking)), 1)
    signatures = {terms.signature("default", {f"k-{number}": ""}) for number in range(100)}
    assert len(signatures) == 100
    assert {len(signature) for signature in signatures if isinstance(signature, bytes)} == {16}
    assert terms.signature("default", {"app": "x"}) == terms.signature("default", {"app": "y"})


def test_a_term_that_comes_back_reads_as_before() -> None:
    terms, _ = index("east")
    terms.book(0, OWN, 1)
    before = terms.signature("default", {"app": "x"})
    terms.book(0, OWN, -1)
    terms.book(0, asks("default", PodAffinityTerm(HOST, APP)), 1)
    terms.book(0, OWN, 1)
    terms.book(0, asks("default", PodAffinityTerm(HOST, APP)), -1)
    assert terms.signature("default", {"app": "x"}) == before


@given(st.lists(TERMS, max_size=40))
def test_nothing_is_left_of_selectors_that_are_gone(written: list[PodAffinityTerm]) -> None:
    index_of_labels = LabelIndex()
    selectors = [key.selector for term in written if (key := term_key(term, "default")) is not None]
    for slot, selector in enumerate(selectors):
        index_of_labels.add(slot, selector)
    for slot, selector in enumerate(selectors):
        index_of_labels.discard(slot, selector)
    assert not index_of_labels
    assert index_of_labels.matches({"a": "x"}).tolist() == []
