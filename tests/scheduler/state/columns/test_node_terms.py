"""What a pod requires of a node: the labels that it looks at."""

from typing import Any

import pytest

from scheduler.plugins.node.node_affinity import required
from tests.support.builders import pod


def terms(*keys: str) -> dict[str, Any]:
    """A pod's affinity, with a term for each label."""
    written = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in keys]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": written}}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"nodeSelector": {"zone": "east", "disk": "ssd"}}, {"zone", "disk"}, id="of the selector"),
        pytest.param({"affinity": terms("rack", "row")}, {"rack", "row"}, id="of each term"),
        pytest.param({"nodeSelector": {"zone": "east"}, "affinity": terms("rack")}, {"zone", "rack"}, id="of both"),
    ],
)
def test_the_labels_that_a_pod_looks_at(spec: dict[str, Any], expected: set[str]) -> None:
    wanted = required(pod("p", **spec).template)

    assert wanted is not None
    assert wanted.keys == expected
