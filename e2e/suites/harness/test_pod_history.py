"""What a history finds fault with: the tests that rest on it could not fail otherwise."""

import pytest

from config.protocol import names
from e2e.control_plane.admin import Admin, Json
from e2e.support.pod_history import PodHistory

COMPLETE = tuple("x" for _ in names.ALLOCATION_KEYS)
POD: Json = {"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": "a"}}


@pytest.fixture
def history(admin: Admin) -> PodHistory:
    """Of a pod that was bound once, to node a."""
    kept = PodHistory(admin, "/unused")
    kept.nodes["u"], kept.allocations["u"] = {"a"}, {COMPLETE}
    return kept


def test_a_pod_that_was_bound_once_is_no_fault(history: PodHistory) -> None:
    assert history.faults([POD]) == []


def test_a_pod_that_was_seen_on_another_node_too_is_found(history: PodHistory) -> None:
    history.nodes["u"].add("b")
    assert history.faults([POD]) == ["p is on a, was seen on ['a', 'b']"]


def test_a_pod_that_is_not_bound_is_found(history: PodHistory) -> None:
    waiting = POD | {"spec": {}, "metadata": {"name": "q", "uid": "v"}}
    assert history.faults([waiting]) == ["q is on None, was seen on []", "q was seen with set()"]


@pytest.mark.parametrize(
    "allocations",
    [
        pytest.param({COMPLETE, (*COMPLETE[1:], "y")}, id="two allocations"),
        pytest.param({(*COMPLETE[1:], None)}, id="a key is missing"),
    ],
)
def test_an_allocation_that_changed_or_is_not_complete_is_found(
    history: PodHistory, allocations: set[tuple[str | None, ...]]
) -> None:
    history.allocations["u"] = allocations
    assert history.faults([POD]) == [f"p was seen with {allocations}"]


def test_a_pod_that_went_is_found(history: PodHistory) -> None:
    history.deleted.add("w")
    assert history.faults([POD]) == ["w was deleted"]
