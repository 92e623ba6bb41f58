"""Rules that are not built: each kind is named, and nothing else is."""

import pytest

from config.protocol import names
from scheduler.pods.unsupported import Unsupported, unsupported_rules
from tests.support.builders import wire_pod

TERM = {"topologyKey": "zone", "labelSelector": {}}
WEIGHTED = {"weight": 1, "podAffinityTerm": TERM}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def of(**options: object) -> Unsupported:
    """What a pod asks that is not built."""
    return unsupported_rules(wire_pod("p", **options))  # type: ignore[arg-type]


def spread(when: str) -> dict[str, object]:
    """A topology spread constraint."""
    return {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": when}]}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(
            {"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}, "volumes of kind persistentVolumeClaim", id="PVC"
        ),
        pytest.param({"volumes": [{"name": "v", "ephemeral": {}}]}, "volumes of kind ephemeral", id="ephemeral"),
        pytest.param({"volumes": [{"name": "v", "rbd": {}}]}, "volumes of kind rbd", id="RBD"),
        pytest.param({"volumes": [{"name": "v", "newDisk": {}}]}, "volumes of kind newDisk", id="one not looked up"),
        pytest.param({"affinity": {"podAffinity": {REQUIRED: [TERM]}}}, "required inter-pod affinity", id="affinity"),
        pytest.param(
            {"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}},
            "required inter-pod anti-affinity",
            id="anti-affinity",
        ),
        pytest.param(spread("DoNotSchedule"), "topology spread with DoNotSchedule", id="spread"),
        pytest.param({"resourceClaims": [{"name": "r"}]}, "resource claims", id="claims"),
        pytest.param({"schedulingGroup": {"podGroupName": "g"}}, "pod groups", id="pod group"),
        pytest.param(
            {"annotations": {names.CARD_POLICY: "fragmentation"}}, "gpushare/card-policy: fragmentation", id="card"
        ),
        pytest.param(
            {"annotations": {names.NODE_POLICY: "fragmentation"}}, "gpushare/node-policy: fragmentation", id="node"
        ),
    ],
)
def test_a_requirement_is_named(options: dict[str, object], words: str) -> None:
    assert of(**options) == Unsupported((words,), ())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(
            {"affinity": {"podAffinity": {PREFERRED: [WEIGHTED]}}}, "preferred inter-pod affinity", id="affinity"
        ),
        pytest.param(
            {"affinity": {"podAntiAffinity": {PREFERRED: [WEIGHTED]}}}, "preferred inter-pod anti-affinity", id="anti"
        ),
        pytest.param(spread("ScheduleAnyway"), "topology spread with ScheduleAnyway", id="spread"),
    ],
)
def test_a_preference_is_named_and_keeps_nobody_waiting(options: dict[str, object], words: str) -> None:
    assert of(**options) == Unsupported((), (words,))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}, id="node affinity"),
        pytest.param({"affinity": {"podAffinity": {}, "podAntiAffinity": {}}}, id="empty affinity"),
        pytest.param({"annotations": {names.CARD_POLICY: "spread"}}, id="a policy that is there"),
    ],
)
def test_what_is_built_is_not_named(options: dict[str, object]) -> None:
    assert of(**options) == Unsupported((), ())


def test_each_kind_is_named_once_and_all_of_them() -> None:
    volumes = [{"name": "v", "rbd": {}}, {"name": "w", "rbd": {}}, {"name": "x", "iscsi": {}}]
    found = of(volumes=volumes, resourceClaims=[{"name": "r"}, {"name": "s"}])
    assert found.requirements == ("volumes of kind iscsi", "volumes of kind rbd", "resource claims")
