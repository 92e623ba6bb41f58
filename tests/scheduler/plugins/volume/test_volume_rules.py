"""VolumeRestrictions, VolumeZone and NodeVolumeLimits: odd disks and labels, and counts through random histories.

Which disks and claims are kept apart, zones and limits: `tests/differential`, the groups of volumes.
"""

from random import Random
from typing import Any

import pytest

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Relevance
from scheduler.kube.port import ATTACHMENTS, CLAIMS, CSI_DRIVERS, CSI_NODES, STORAGE_CLASSES, VOLUMES
from scheduler.plugins.volume.node_volume_limits import REASON, NodeVolumeLimits
from scheduler.plugins.volume.volume_restrictions import VolumeRestrictions
from scheduler.plugins.volume.volume_zone import REASON as OTHER_ZONE
from scheduler.plugins.volume.volume_zone import VolumeZone
from scheduler.pods.pod import Pod
from scheduler.state.tables import Tables
from scheduler.testing.rules.check import check_rule
from tests.support.builders import bound as on_node
from tests.support.builders import pod, wire_node
from tests.support.judging import reasons, tables_of
from tests.support.volumes import ZONE, bound, claim, show, show_gone, storage_class, volume, with_claims

# VolumeRestrictions


def with_disk(kind: str, **source: Any) -> dict[str, Any]:  # noqa: ANN401 - as in YAML
    return {"volumes": [{"name": "v", kind: source}]}


def with_pod(**there: Any) -> Tables:  # noqa: ANN401 - as `manifest`
    """Nodes a and b; on a there is a pod."""
    tables = tables_of(wire_node("a"), wire_node("b"))
    tables.add(on_node(pod("there", **there), "a"))
    return tables


RBD = {"monitors": ["m1", "m2"], "image": "i", "pool": "rbd"}


@pytest.mark.parametrize(
    ("there", "comes"),
    [
        pytest.param(with_disk("rbd", **RBD), with_disk("rbd", **{**RBD, "pool": "other"}), id="of RBD another pool"),
        pytest.param(with_disk("azureDisk", diskURI="d"), with_disk("azureDisk", diskURI="d"), id="of Azure"),
    ],
)
def test_a_disk_that_may_be_shared(there: dict[str, Any], comes: dict[str, Any]) -> None:
    assert reasons(VolumeRestrictions(), pod("p", **comes), with_pod(**there)) == {}


def test_the_rule_holds_in_random_histories() -> None:
    sources: tuple[dict[str, Any], ...] = ({"iqn": "d"}, {"iqn": "d", "readOnly": True}, {"iqn": "e"})
    disks = [
        {"metadata": {"name": f"d{number}"}, "spec": {"containers": [{"name": "c"}], **with_disk("iscsi", **source)}}
        for number, source in enumerate(sources)
    ]
    check_rule(VolumeRestrictions, pods=disks, examples=30)


# VolumeZone


@pytest.mark.parametrize(
    ("zones", "unfit"),
    [
        pytest.param("z1__ z2", {"c"}, id="with blanks"),
        pytest.param("z1__", set(), id="that cannot be read count as left out"),
    ],
)
def test_the_zones_of_a_volume(zones: str, unfit: set[str]) -> None:
    tables = tables_of(*(wire_node(name, labels={ZONE: f"z{number}"}) for number, name in enumerate("abc", 1)))
    show(tables, VOLUMES, volume("pv", labels={ZONE: zones}))
    show(tables, CLAIMS, bound(claim("data"), "pv"))
    found = reasons(VolumeZone(), pod("p", **with_claims("data")), tables)
    assert found == ({OTHER_ZONE: unfit} if unfit else {})


# NodeVolumeLimits

DRIVER = "ebs.csi.aws.com"


def csi_node(name: str, limit: int | None) -> dict[str, Any]:
    """What the driver attaches to a node at most."""
    allocatable = {} if limit is None else {"allocatable": {"count": limit}}
    return {"metadata": {"name": name}, "spec": {"drivers": [{"name": DRIVER, "nodeID": name, **allocatable}]}}


def two(limit: int) -> Tables:
    """Nodes a and b, of which a attaches so many volumes."""
    tables = tables_of(wire_node("a"), wire_node("b"))
    show(tables, CSI_NODES, csi_node("a", limit), csi_node("b", None))
    show(tables, STORAGE_CLASSES, storage_class("ebs", provisioner=DRIVER), storage_class("nfs", provisioner="nfs"))
    return tables


def against(tables: Tables, *claims: str) -> set[str]:
    found = reasons(NodeVolumeLimits(), pod("p", **with_claims(*claims)), tables)
    assert set(found) <= {REASON}
    return found.get(REASON, set())


def with_volume(tables: Tables, name: str, handle: str) -> None:
    show(tables, VOLUMES, volume(f"pv-{name}", csi={"driver": DRIVER, "volumeHandle": handle}))
    show(tables, CLAIMS, bound(claim(name, class_name="ebs"), f"pv-{name}"))


def runs(name: str, node: str, *claims: str) -> Pod:
    return on_node(pod(name, **with_claims(*claims)), node)


def test_a_claim_whose_class_comes_later_counts_for_it_from_then_on() -> None:
    tables = two(limit=1)
    show(tables, CLAIMS, claim("new", class_name="late"), claim("other", class_name="ebs"))
    tables.add(runs("there", "a", "new"))
    assert against(tables, "other") == set()
    show(tables, STORAGE_CLASSES, storage_class("late", provisioner=DRIVER))
    assert (against(tables, "new"), against(tables, "other")) == (set(), {"a"})
    assert ("default", "new") in tables.take_cluster_events().claims
    show_gone(tables, STORAGE_CLASSES, "late")
    assert against(tables, "other") == set()


def test_a_disk_that_the_pod_names_itself_counts_for_the_driver_that_attaches_it() -> None:
    tables = two(limit=1)
    with_volume(tables, "one", "vol-1")
    disk: dict[str, Any] = {"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}}]}
    tables.add(on_node(pod("there", **disk), "a"))
    with_volume(tables, "two", "vol-2")
    assert (against(tables, "one"), against(tables, "two")) == (set(), {"a"})


def attachment(name: str, node: str, pv: str) -> dict[str, Any]:
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": pv}}
    return {"metadata": {"name": name}, "spec": spec}


def test_what_the_api_server_shows_as_attached_counts_once() -> None:
    tables = two(limit=2)
    for name in ("one", "two"):
        with_volume(tables, name, f"vol-{name}")
    show(tables, ATTACHMENTS, attachment("one", "a", "pv-one"), attachment("late", "a", "pv-late"))
    tables.add(runs("there", "a", "one"))
    assert against(tables, "two") == set()
    show(tables, VOLUMES, volume("pv-late", csi={"driver": DRIVER, "volumeHandle": "vol-late"}))
    assert against(tables, "two") == {"a"}
    show_gone(tables, ATTACHMENTS, "late")
    assert against(tables, "two") == set()


def test_a_limit_that_changes_is_seen() -> None:
    tables = two(limit=0)
    with_volume(tables, "one", "vol")
    assert against(tables, "one") == {"a"}
    show(tables, CSI_NODES, csi_node("a", 1))
    assert against(tables, "one") == set()
    show(tables, CSI_NODES, csi_node("a", 0))
    show_gone(tables, CSI_NODES, "a")
    skipped = NodeVolumeLimits().pre_filter(pod("p", **with_claims("one")), tables, CycleState())
    assert skipped is Relevance.SKIP


def test_a_node_needs_a_driver_that_says_so() -> None:
    tables = two(limit=1)
    tables.upsert_node(wire_node("c"))
    with_volume(tables, "one", "vol")
    lacks, needed = f"{DRIVER} CSI driver is not installed on the node", {"preventPodSchedulingIfMissing": True}
    asking = pod("p", **with_claims("one"))
    assert reasons(NodeVolumeLimits(), asking, tables) == {}
    before = NodeVolumeLimits().signature(asking, tables)
    show(tables, CSI_DRIVERS, {"metadata": {"name": DRIVER}, "spec": needed})
    assert NodeVolumeLimits().signature(asking, tables) != before  # what was evaluated before is not used again
    assert ("default", "one") in tables.take_cluster_events().claims
    assert reasons(NodeVolumeLimits(), pod("p", **with_claims("one")), tables) == {lacks: {"c"}}
    show_gone(tables, CSI_NODES, "a")
    show_gone(tables, CSI_NODES, "b")
    assert reasons(NodeVolumeLimits(), pod("p", **with_claims("one")), tables) == {lacks: {"a", "b", "c"}}
    show(tables, CSI_NODES, csi_node("c", None))
    assert reasons(NodeVolumeLimits(), pod("p", **with_claims("one")), tables) == {lacks: {"a", "b"}}
    show_gone(tables, CSI_DRIVERS, DRIVER)
    assert reasons(NodeVolumeLimits(), pod("p", **with_claims("one")), tables) == {}


def test_volumes_that_nobody_uses_yet_make_no_two_pods_differ() -> None:
    tables = two(limit=1)
    for name in ("one", "two"):
        with_volume(tables, name, f"vol-{name}")
    rule = NodeVolumeLimits()
    one, two_ = pod("p1", **with_claims("one")), pod("p2", **with_claims("two"))
    assert rule.signature(one, tables) == rule.signature(two_, tables)
    tables.add(runs("there", "b", "two"))
    assert rule.signature(one, tables) != rule.signature(two_, tables)


@pytest.mark.parametrize("seed", range(10))
def test_the_counts_of_a_random_history_are_those_of_a_fresh_count(seed: int) -> None:
    rng = Random(seed)  # noqa: S311 - repeatable
    tables = two(limit=3)
    running: set[str] = set()
    names = [f"c{number}" for number in range(6)]
    for _ in range(120):
        name, node = rng.choice(names), rng.choice("ab")
        match rng.randrange(9):
            case 0:
                show(tables, CLAIMS, claim(name, class_name=rng.choice(["ebs", "nfs"])))
            case 1:
                with_volume(tables, name, rng.choice(["vol-1", "vol-2", f"vol-{name}"]))
            case 2:
                show_gone(tables, rng.choice([CLAIMS, VOLUMES]), rng.choice([name, f"pv-{name}"]))
            case 3 | 4:
                number = len(running) + rng.randrange(3)
                tables.add(runs(f"p{number}", node, *rng.sample(names, 2)))
                running.add(f"p{number}")
            case 5 if running:
                gone = rng.choice(sorted(running))
                running.discard(gone)
                tables.remove(f"uid-default-{gone}")
            case 6:
                show(tables, ATTACHMENTS, attachment(name, node, f"pv-{name}"))
            case 7:
                show_gone(tables, ATTACHMENTS, name)
            case 8:
                tables.remove_node(node)
                tables.upsert_node(wire_node(node))
        used = rng.sample(names, 2)
        assert against(tables, *used) == expected(tables, used)


def expected(tables: Tables, used: list[str]) -> set[str]:
    """By kube-scheduler's loops: csi.go, Filter."""
    found = set()
    for node in tables.row_of:
        limit = tables.volumes.attachments.drivers(node).get(DRIVER)
        attached = set()
        for record in tables.records_on(node):
            attached |= {tables.volumes.attached(key) for key in record.pod.claim_keys}
        new = {tables.volumes.attached(("default", name)) for name in used} - attached
        more = sum(1 for one in new if one is not None and one[0] == DRIVER)
        there = {one for one in attached | tables.volumes.attached_to(node) if one is not None and one[0] == DRIVER}
        if limit is not None and more and len(there) + more > limit:
            found.add(node)
    return found
