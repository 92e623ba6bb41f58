"""NodeDeclaredFeatures: who needs a feature, and which nodes have it."""

from typing import Any

import pytest

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Relevance
from scheduler.plugins.node.node_declared_features import REASON, NodeDeclaredFeatures
from scheduler.pods.declared_features import FEATURES, required_features
from tests.support.builders import pod, wire_node, wire_pod
from tests.support.judging import reasons, tables_of

RULE = NodeDeclaredFeatures()
RESTARTS, HOST_USERS = FEATURES


def restarting(action: str) -> list[dict[str, object]]:
    """Containers with such a rule."""
    return [{"name": "c", "restartPolicyRules": [{"action": action}]}]


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        pytest.param({}, set(), id="plain"),
        pytest.param({"containers": restarting("Restart")}, set(), id="a container that restarts alone"),
        pytest.param({"containers": restarting("RestartAllContainers")}, {RESTARTS}, id="restarts all"),
        pytest.param({"initContainers": restarting("RestartAllContainers")}, {RESTARTS}, id="restarts all, init"),
        pytest.param({"hostNetwork": True}, set(), id="the host's network and users"),
        pytest.param({"hostUsers": False}, set(), id="users of its own"),
        pytest.param({"hostNetwork": True, "hostUsers": False}, {HOST_USERS}, id="users of its own, host's network"),
    ],
)
def test_which_features_a_pod_needs(options: dict[str, Any], needed: set[str]) -> None:
    asking = pod("p", **options)
    assert required_features(wire_pod("p", **options).spec) == needed
    assert asking.template.required_features == needed
    judged = RULE.pre_filter(asking, tables_of(), CycleState())
    assert judged is (Relevance.EVALUATE if needed else Relevance.SKIP)


def test_nodes_have_to_declare_every_feature_that_the_pod_needs() -> None:
    asking = pod("p", containers=restarting("RestartAllContainers"), hostNetwork=True, hostUsers=False)
    tables = tables_of(
        wire_node("a", features=(RESTARTS, HOST_USERS)), wire_node("b", features=(RESTARTS, "Other")), wire_node("c")
    )
    assert reasons(RULE, asking, tables) == {REASON: {"b", "c"}}
    tables.upsert_node(wire_node("b", features=(RESTARTS, HOST_USERS)))
    tables.remove_node("a")
    for number in range(70):
        tables.upsert_node(wire_node(f"n{number}", features=(HOST_USERS,) if number else (RESTARTS, HOST_USERS)))
    found = set(tables.row_of) - reasons(RULE, asking, tables)[REASON]
    assert found == {"b", "n0"}
