"""VolumeZone: the zones in the labels of bound volumes."""

import pytest

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Rejected, Relevance
from scheduler.kube.port import CLAIMS, VOLUMES
from scheduler.plugins.volume.volume_zone import REASON, VolumeZone
from scheduler.state.changes import Change
from scheduler.state.tables import Tables
from tests.support.builders import pod, wire_node
from tests.support.judging import reasons, tables_of
from tests.support.volumes import ZONE, bound, claim, show, volume, with_claims

REGION = "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


def five() -> Tables:
    labels = {
        "z1": {ZONE: "z1", REGION: "r1"},
        "z2": {ZONE: "z2", REGION: "r1"},
        "old": {OLD_ZONE: "z1"},
        "region": {REGION: "r1"},
        "none": {},
    }
    return tables_of(*(wire_node(name, labels=one) for name, one in labels.items()))


@pytest.mark.parametrize(
    ("labels", "unfit"),
    [
        pytest.param({}, set(), id="no labels"),
        pytest.param({ZONE: "z1"}, {"z2", "old", "region"}, id="zone"),
        pytest.param({ZONE: "z1__ z2"}, {"old", "region"}, id="several zones"),
        pytest.param({ZONE: "z1__"}, set(), id="a label that cannot be read"),
        pytest.param({OLD_ZONE: "z1"}, {"z2", "region"}, id="the name of old takes both"),
        pytest.param({REGION: "r1"}, {"old"}, id="region"),
        pytest.param({ZONE: "z2", REGION: "r1"}, {"z1", "old", "region"}, id="both"),
    ],
)
def test_nodes_outside_the_zones_of_a_volume_are_rejected(labels: dict[str, str], unfit: set[str]) -> None:
    tables = five()
    show(tables, VOLUMES, volume("pv", labels=labels))
    show(tables, CLAIMS, bound(claim("data"), "pv"))
    found = reasons(VolumeZone(), pod("p", **with_claims("data")), tables)
    assert found == ({REASON: unfit} if unfit else {})


def test_every_volume_is_looked_at() -> None:
    tables = five()
    show(tables, VOLUMES, volume("pv-1", labels={ZONE: "z1"}), volume("pv-2", labels={REGION: "r2"}))
    show(tables, CLAIMS, bound(claim("one"), "pv-1"), bound(claim("two"), "pv-2"))
    found = reasons(VolumeZone(), pod("p", **with_claims("one", "two")), tables)
    assert found == {REASON: {"z1", "z2", "old", "region"}}


def test_a_volume_that_does_not_exist_is_named() -> None:
    tables = five()
    show(tables, CLAIMS, bound(claim("data"), "gone"))
    result = VolumeZone().pre_filter(pod("p", **with_claims("data")), tables, CycleState())
    assert result == Rejected('persistentvolume "gone" not found', Change.VOLUMES)


def test_claims_without_a_volume_say_nothing() -> None:
    tables = five()
    show(tables, CLAIMS, claim("data"))
    assert VolumeZone().pre_filter(pod("p", **with_claims("data")), tables, CycleState()) is Relevance.SKIP
