"""NodeVolumeLimits: how many volumes of a CSI driver a node attaches; counted as kube-scheduler counts them."""

from random import Random
from typing import Any

import pytest

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Relevance
from scheduler.kube.port import ATTACHMENTS, CLAIMS, CSI_NODES, STORAGE_CLASSES, VOLUMES
from scheduler.plugins.volume.node_volume_limits import REASON, NodeVolumeLimits
from scheduler.pods.pod import Pod
from scheduler.state.tables import Tables
from tests.support.builders import bound as on_node
from tests.support.builders import pod, wire_node
from tests.support.judging import reasons, tables_of
from tests.support.volumes import bound, claim, show, show_gone, storage_class, volume, with_claims

DRIVER = "ebs.csi.aws.com"


def csi_node(name: str, **limits: int | None) -> dict[str, Any]:
    drivers = [
        {
            "name": driver.replace("_", "."),
            "nodeID": name,
            **({} if count is None else {"allocatable": {"count": count}}),
        }
        for driver, count in limits.items()
    ]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


def csi(name: str, handle: str, driver: str = DRIVER) -> dict[str, Any]:
    return volume(name, csi={"driver": driver, "volumeHandle": handle})


def two(limit: int) -> Tables:
    """Nodes a and b, of which a attaches so many volumes."""
    tables = tables_of(wire_node("a"), wire_node("b"))
    show(tables, CSI_NODES, csi_node("a", ebs_csi_aws_com=limit), csi_node("b", ebs_csi_aws_com=None))
    show(tables, STORAGE_CLASSES, storage_class("ebs", provisioner=DRIVER), storage_class("nfs", provisioner="nfs"))
    return tables


def against(tables: Tables, *claims: str, **options: Any) -> set[str]:  # noqa: ANN401 - as `manifest`
    found = reasons(NodeVolumeLimits(), pod("p", **with_claims(*claims), **options), tables)
    assert set(found) <= {REASON}
    return found.get(REASON, set())


def with_volume(tables: Tables, name: str, handle: str) -> None:
    show(tables, VOLUMES, csi(f"pv-{name}", handle))
    show(tables, CLAIMS, bound(claim(name, class_name="ebs"), f"pv-{name}"))


def runs(name: str, node: str, *claims: str) -> Pod:
    return on_node(pod(name, **with_claims(*claims)), node)


def test_a_node_takes_no_more_volumes_than_it_attaches() -> None:
    tables = two(limit=2)
    for name in ("one", "two", "three"):
        with_volume(tables, name, f"vol-{name}")
    tables.add(runs("there", "a", "one"))
    assert against(tables, "two") == set()
    assert against(tables, "two", "three") == {"a"}
    tables.remove("uid-default-there")
    assert against(tables, "two", "three") == set()


def test_a_volume_that_is_there_already_takes_nothing_more() -> None:
    tables = two(limit=1)
    with_volume(tables, "one", "vol")
    tables.add(runs("there", "a", "one"))
    assert against(tables, "one") == set()
    tables.add(runs("other", "a", "one"))
    tables.remove("uid-default-there")
    with_volume(tables, "two", "vol-2")
    assert against(tables, "two") == {"a"}


def test_a_claim_without_a_volume_counts_for_its_class_and_then_for_its_volume() -> None:
    tables = two(limit=1)
    show(tables, CLAIMS, claim("new", class_name="ebs"), claim("other", class_name="ebs"), claim("x", class_name="nfs"))
    tables.add(runs("there", "a", "new"))
    assert (against(tables, "other"), against(tables, "x"), against(tables, "new")) == ({"a"}, set(), set())
    show(tables, VOLUMES, csi("pv", "h", driver="another"))
    show(tables, CLAIMS, bound(claim("new", class_name="ebs"), "pv"))
    assert against(tables, "other") == set()


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


def attachment(name: str, node: str, pv: str, attacher: str = DRIVER) -> dict[str, Any]:
    spec = {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": pv}}
    return {"metadata": {"name": name}, "spec": spec}


def test_what_the_api_server_shows_as_attached_counts_once() -> None:
    tables = two(limit=2)
    for name in ("one", "two"):
        with_volume(tables, name, f"vol-{name}")
    show(tables, ATTACHMENTS, attachment("one", "a", "pv-one"), attachment("late", "a", "pv-late"))
    tables.add(runs("there", "a", "one"))
    assert against(tables, "two") == set()
    show(tables, VOLUMES, csi("pv-late", "vol-late"))
    assert against(tables, "two") == {"a"}
    show_gone(tables, ATTACHMENTS, "late")
    assert against(tables, "two") == set()


def test_a_limit_that_changes_is_seen() -> None:
    tables = two(limit=0)
    with_volume(tables, "one", "vol")
    assert against(tables, "one") == {"a"}
    show(tables, CSI_NODES, csi_node("a", ebs_csi_aws_com=1))
    assert against(tables, "one") == set()
    show(tables, CSI_NODES, csi_node("a", ebs_csi_aws_com=0))
    show_gone(tables, CSI_NODES, "a")
    skipped = NodeVolumeLimits().pre_filter(pod("p", **with_claims("one")), tables, CycleState())
    assert skipped is Relevance.SKIP


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
        limit = tables.volumes.attachments.limits(node).get(DRIVER)
        attached = set()
        for record in tables.records_on(node):
            attached |= {tables.volumes.attached(key) for key in record.pod.claim_keys}
        new = {tables.volumes.attached(("default", name)) for name in used} - attached
        more = sum(1 for one in new if one is not None and one[0] == DRIVER)
        there = {one for one in attached | tables.volumes.attached_to(node) if one is not None and one[0] == DRIVER}
        if limit is not None and more and len(there) + more > limit:
            found.add(node)
    return found
