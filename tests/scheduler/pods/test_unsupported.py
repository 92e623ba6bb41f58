"""Rules that are not built: each kind is named, and nothing else is."""

import pytest

from config.protocol import names
from scheduler.pods.mistakes import unsupported_rules
from tests.support.builders import wire_pod

TERM = {"topologyKey": "zone", "labelSelector": {}}
WEIGHTED = {"weight": 1, "podAffinityTerm": TERM}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def of(**options: object) -> tuple[str, ...]:
    """What a pod asks that is not built."""
    return unsupported_rules(wire_pod("p", **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"volumes": [{"name": "v", "newDisk": {}}]}, "volumes of kind newDisk", id="one not looked up"),
        pytest.param({"resourceClaims": [{"name": "r"}]}, "resource claims", id="claims"),
        pytest.param({"schedulingGroup": {"podGroupName": "g"}}, "pod groups", id="pod group"),
        pytest.param({"workloadRef": {"name": "w", "podGroup": "g"}}, "pod groups", id="pod group of 1.35"),
    ],
)
def test_a_requirement_is_named(options: dict[str, object], words: str) -> None:
    assert of(**options) == (words,)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}, id="node affinity"),
        pytest.param({"affinity": {"podAffinity": {REQUIRED: [TERM], PREFERRED: [WEIGHTED]}}}, id="pod affinity"),
        pytest.param({"affinity": {"podAntiAffinity": {REQUIRED: [TERM], PREFERRED: [WEIGHTED]}}}, id="anti-affinity"),
        pytest.param({"annotations": {names.CARD_POLICY: "spread"}}, id="a policy that is there"),
        pytest.param({"topologySpreadConstraints": [{"topologyKey": "zone"}]}, id="topology spread"),
    ],
)
def test_what_is_built_is_not_named(options: dict[str, object]) -> None:
    assert of(**options) == ()


def test_each_kind_is_named_once_and_all_of_them() -> None:
    volumes = [{"name": "v", "newDisk": {}}, {"name": "w", "newDisk": {}}, {"name": "x", "anotherDisk": {}}]
    found = of(volumes=volumes, resourceClaims=[{"name": "r"}, {"name": "s"}])
    assert found == ("volumes of kind anotherDisk", "volumes of kind newDisk", "resource claims")
