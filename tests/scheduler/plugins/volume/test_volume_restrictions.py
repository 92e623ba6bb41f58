"""VolumeRestrictions: disks that two pods of a node may not share, claims for one pod."""

from typing import Any

import pytest

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Rejected, Relevance
from scheduler.kube.port import CLAIMS
from scheduler.plugins.volume.volume_restrictions import DISK_CONFLICT, ONE_POD_CONFLICT, VolumeRestrictions
from scheduler.state.changes import Change
from scheduler.state.tables import Tables
from scheduler.testing.rules.check import check_rule
from tests.support.builders import bound, pod, wire_node
from tests.support.judging import reasons, tables_of
from tests.support.volumes import claim, show, with_claims


def with_disk(kind: str, **source: Any) -> dict[str, Any]:  # noqa: ANN401 - as in YAML
    return {"volumes": [{"name": "v", kind: source}]}


def two(**there: Any) -> Tables:  # noqa: ANN401 - as `manifest`
    """Nodes a and b; on a there is a pod."""
    tables = tables_of(wire_node("a"), wire_node("b"))
    tables.add(bound(pod("there", **there), "a"))
    return tables


RBD = {"monitors": ["m1", "m2"], "image": "i", "pool": "rbd"}


@pytest.mark.parametrize(
    ("there", "comes", "conflict"),
    [
        pytest.param(
            with_disk("gcePersistentDisk", pdName="d"), with_disk("gcePersistentDisk", pdName="d"), True, id="GCE"
        ),
        pytest.param(
            with_disk("gcePersistentDisk", pdName="d"), with_disk("gcePersistentDisk", pdName="e"), False, id="others"
        ),
        pytest.param(
            with_disk("gcePersistentDisk", pdName="d", readOnly=True),
            with_disk("gcePersistentDisk", pdName="d", readOnly=True),
            False,
            id="GCE, two readers",
        ),
        pytest.param(
            with_disk("gcePersistentDisk", pdName="d", readOnly=True),
            with_disk("gcePersistentDisk", pdName="d"),
            True,
            id="GCE, a writer comes",
        ),
        pytest.param(
            with_disk("gcePersistentDisk", pdName="d"),
            with_disk("gcePersistentDisk", pdName="d", readOnly=True),
            True,
            id="GCE, a reader comes",
        ),
        pytest.param(
            with_disk("awsElasticBlockStore", volumeID="d", readOnly=True),
            with_disk("awsElasticBlockStore", volumeID="d", readOnly=True),
            True,
            id="EBS, two readers",
        ),
        pytest.param(
            with_disk("iscsi", iqn="d", readOnly=True), with_disk("iscsi", iqn="d"), True, id="iSCSI, a writer comes"
        ),
        pytest.param(
            with_disk("iscsi", iqn="d", readOnly=True), with_disk("iscsi", iqn="d", readOnly=True), False, id="iSCSI"
        ),
        pytest.param(
            with_disk("rbd", **RBD), with_disk("rbd", **{**RBD, "monitors": ["m3", "m2"]}), True, id="RBD, one monitor"
        ),
        pytest.param(
            with_disk("rbd", **RBD), with_disk("rbd", **{**RBD, "monitors": ["m3"]}), False, id="RBD, no monitor"
        ),
        pytest.param(with_disk("rbd", **RBD), with_disk("rbd", **{**RBD, "pool": "other"}), False, id="RBD, pool"),
        pytest.param(with_disk("azureDisk", diskURI="d"), with_disk("azureDisk", diskURI="d"), False, id="Azure"),
    ],
)
def test_a_disk_that_must_not_be_shared(there: dict[str, Any], comes: dict[str, Any], *, conflict: bool) -> None:
    tables = two(**there)
    assert reasons(VolumeRestrictions(), pod("p", **comes), tables) == ({DISK_CONFLICT: {"a"}} if conflict else {})
    tables.remove("uid-default-there")
    assert reasons(VolumeRestrictions(), pod("p", **comes), tables) == {}


ONE_POD: dict[str, Any] = {"accessModes": ["ReadWriteOncePod"]}


def test_a_claim_for_one_pod_keeps_every_other_pod_from_every_node() -> None:
    tables = two(**with_claims("data"))
    show(tables, CLAIMS, claim("data", **ONE_POD))
    assert reasons(VolumeRestrictions(), pod("p", **with_claims("data")), tables) == {ONE_POD_CONFLICT: {"a", "b"}}
    tables.remove("uid-default-there")
    assert reasons(VolumeRestrictions(), pod("p", **with_claims("data")), tables) == {}


def test_a_node_with_the_disk_is_told_apart_from_those_where_the_claim_is_in_use() -> None:
    volumes = with_claims("data")["volumes"] + with_disk("iscsi", iqn="d")["volumes"]
    tables = two(volumes=volumes)
    show(tables, CLAIMS, claim("data", **ONE_POD))
    found = reasons(VolumeRestrictions(), pod("p", volumes=volumes), tables)
    assert found == {DISK_CONFLICT: {"a"}, ONE_POD_CONFLICT: {"b"}}


def test_a_claim_for_many_pods_is_used_by_many() -> None:
    tables = two(**with_claims("data"))
    show(tables, CLAIMS, claim("data"))
    assert VolumeRestrictions().pre_filter(pod("p", **with_claims("data")), tables, CycleState()) is Relevance.SKIP


def test_a_claim_of_another_namespace_is_another_claim() -> None:
    tables = two(namespace="team", **with_claims("data"))
    show(tables, CLAIMS, claim("data", **ONE_POD))
    assert reasons(VolumeRestrictions(), pod("p", **with_claims("data")), tables) == {}


def test_a_claim_that_does_not_exist_is_named() -> None:
    result = VolumeRestrictions().pre_filter(pod("p", **with_claims("data")), two(), CycleState())
    assert result == Rejected('persistentvolumeclaim "data" not found', Change.VOLUMES)


def test_the_rule_holds_in_random_histories() -> None:
    sources: tuple[dict[str, Any], ...] = ({"iqn": "d"}, {"iqn": "d", "readOnly": True}, {"iqn": "e"})
    disks = [
        {"metadata": {"name": f"d{number}"}, "spec": {"containers": [{"name": "c"}], **with_disk("iscsi", **source)}}
        for number, source in enumerate(sources)
    ]
    check_rule(VolumeRestrictions, pods=disks, examples=30)
