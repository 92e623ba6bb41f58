"""VolumeBinding: hostile sizes, which volumes are taken or made, what wakes a pod; all nodes as one at a time.

What is wrong with a claim, volumes that suit and their nodes: `tests/differential`, the groups of volumes.
"""

from random import Random
from typing import Any

import pytest

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import POINT, Rejected
from scheduler.kube.port import CAPACITIES, CLAIMS, CSI_DRIVERS, STORAGE_CLASSES, VOLUMES
from scheduler.kube.size_limits import TOO_LARGE
from scheduler.plugins.volume.volume_binding import (
    BIND_CONFLICT,
    NO_VOLUME,
    NODE_CONFLICT,
    NOT_ENOUGH_SPACE,
    VolumeBinding,
    VolumeBindingArgs,
)
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.changes import Change
from scheduler.state.tables import Tables
from scheduler.state.volumes.claim import Wants
from scheduler.state.volumes.volume import Volume
from tests.support.builders import pod, wire_node
from tests.support.judging import reasons, tables_of
from tests.support.volumes import (
    HOSTNAME,
    SELECTED_NODE,
    ZONE,
    affinity,
    bound,
    claim,
    show,
    show_gone,
    storage_class,
    volume,
    with_claims,
)

LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")


def three() -> Tables:
    """Nodes a and b in zone z1, c in z2."""
    zones = {"a": "z1", "b": "z1", "c": "z2"}
    return tables_of(*(wire_node(name, labels={ZONE: zone}) for name, zone in zones.items()))


def against(tables: Tables, *claims: str) -> dict[str, set[str]]:
    """Reason -> nodes that cannot give a pod these claims."""
    return reasons(VolumeBinding(), pod("p", **with_claims(*claims)), tables)


def plan(tables: Tables, node: str, *claims: str) -> tuple[dict[str, str], set[str]]:
    """(claim -> volume, claims for which one is made)."""
    asking, row = pod("p", **with_claims(*claims)), tables.row_of[node]
    reservation = VolumeBinding().reserve(asking, tables, CycleState(), row, 0)
    assert reservation.volumes is not None
    return {key[1]: name for name, key in reservation.volumes.taken}, {key[1] for key in reservation.volumes.made}


def message(tables: Tables, *claims: str) -> str:
    """Why no node can help."""
    result = VolumeBinding().pre_filter(pod("p", **with_claims(*claims)), tables, CycleState())
    assert isinstance(result, Rejected), result
    return result.reason


# Bound claims


def test_a_node_needs_all_labels_of_a_term_of_a_bound_volume() -> None:
    tables = three()
    show(tables, VOLUMES, volume("pv", nodeAffinity=affinity({ZONE: ("z1",), HOSTNAME: ("a", "c")})))
    show(tables, CLAIMS, bound(claim("data"), "pv"))
    assert against(tables, "data") == {NODE_CONFLICT: {"b", "c"}}


def test_the_first_volume_that_objects_says_why() -> None:
    tables = three()
    show(tables, VOLUMES, volume("pv-1", on=("z1",), key=ZONE))
    show(tables, CLAIMS, bound(claim("one"), "pv-1"), bound(claim("two"), "gone"))
    assert against(tables, "one", "two") == {NODE_CONFLICT: {"c"}, NO_VOLUME: {"a", "b"}}
    assert against(tables, "two", "one") == {NO_VOLUME: {"a", "b", "c"}}


def test_a_volume_with_thousands_of_terms_is_not_used_and_says_so() -> None:
    tables = three()
    terms = [{ZONE: (f"z{number}",)} for number in range(5000)]
    show(tables, VOLUMES, volume("pv", nodeAffinity=affinity(*terms)))
    show(tables, CLAIMS, bound(claim("data"), "pv"))
    assert message(tables, "data") == f'persistentvolume "pv" exceeds a limit of this scheduler: {TOO_LARGE}'


# Claims that wait for a pod: volumes that are there


def local(name: str, node: str, size: str = "1Gi", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as `volume`
    """A volume that only this node can use."""
    return volume(name, class_name="local", on=(node,), size=size, **more)


def test_the_smallest_free_volume_of_the_node_is_taken() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, LOCAL)
    show(tables, VOLUMES, local("a-8", "a", "8Gi"), local("a-2", "a", "2Gi"), local("a-1", "a"))
    show(tables, VOLUMES, volume("c-2", class_name="other", on=("c",), size="2Gi"))
    show(tables, CLAIMS, claim("data", class_name="local", size="1500Mi"))
    assert against(tables, "data") == {BIND_CONFLICT: {"b", "c"}}
    assert plan(tables, "a", "data") == ({"data": "a-2"}, set())


def test_a_volume_of_another_attributes_class_is_not_taken_until_it_changes() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, LOCAL)
    show(tables, VOLUMES, volume("pv", class_name="local", volumeAttributesClassName="gold"))
    show(tables, CLAIMS, claim("data", class_name="local"))
    assert against(tables, "data") == {BIND_CONFLICT: {"a", "b", "c"}}
    show(tables, VOLUMES, volume("pv", class_name="local"))
    assert against(tables, "data") == {}


def test_two_claims_never_get_the_same_volume() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, LOCAL)
    show(tables, VOLUMES, local("a-1", "a"), local("a-2", "a", "2Gi"), local("b-1", "b"))
    show(tables, CLAIMS, claim("one", class_name="local"), claim("two", class_name="local"))
    assert against(tables, "one", "two") == {BIND_CONFLICT: {"b", "c"}}
    taken, made = plan(tables, "a", "one", "two")
    assert (sorted(taken.values()), made) == (["a-1", "a-2"], set())


def test_a_volume_that_is_kept_for_the_claim_is_the_only_one_that_it_gets() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, LOCAL)
    kept = local("kept", "b", claimRef={"namespace": "default", "name": "data"})
    show(tables, VOLUMES, kept, local("free", "a"))
    show(tables, CLAIMS, claim("data", class_name="local"))
    assert against(tables, "data") == {BIND_CONFLICT: {"a", "c"}}
    assert plan(tables, "b", "data") == ({"data": "kept"}, set())


def test_a_free_volume_that_comes_or_goes_concerns_the_nodes_that_can_use_it() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, LOCAL)
    show(tables, CLAIMS, claim("data", class_name="local"))
    waiting = pod("p", **with_claims("data"))
    cache_key, version = tables.volumes.of_pod(waiting).cache_key, tables.changes.version
    show(tables, VOLUMES, volume("pv", class_name="local", on=("b",)))
    show_gone(tables, VOLUMES, "pv")
    assert tables.changes.since(version) == ([tables.row_of["b"]], int(Change.VOLUMES))
    assert tables.volumes.of_pod(waiting).cache_key == cache_key

    show(tables, VOLUMES, volume("of all", class_name="local"))
    assert tables.volumes.of_pod(waiting).cache_key != cache_key


def test_a_free_volume_that_is_shown_again_as_it_was_changes_nothing() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, LOCAL)
    show(tables, CLAIMS, claim("data", class_name="local"))
    made = volume("pv", class_name="local")
    show(tables, VOLUMES, made)
    cache_key = tables.volumes.of_pod(pod("p", **with_claims("data"))).cache_key
    made["metadata"]["resourceVersion"] = "2"
    show(tables, VOLUMES, made)
    assert tables.volumes.of_pod(pod("p", **with_claims("data"))).cache_key == cache_key


# Claims that wait for a pod: volumes to be made

TELLS_CAPACITY = {"metadata": {"name": "example.com/p"}, "spec": {"storageCapacity": True}}


def test_a_volume_is_made_where_the_class_allows_it() -> None:
    tables = three()
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}, {"key": HOSTNAME, "values": ["b", "c"]}]}]
    show(tables, STORAGE_CLASSES, storage_class("fast", allowedTopologies=terms))
    show(tables, CLAIMS, claim("data", class_name="fast"))
    assert against(tables, "data") == {BIND_CONFLICT: {"a", "c"}}
    assert plan(tables, "b", "data") == ({}, {"data"})


def capacity(name: str, zone: str, size: str, **more: str) -> dict[str, Any]:
    topology = {"nodeTopology": {"matchLabels": {ZONE: zone}}} if zone else {}
    return {
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": "fast",
        "capacity": size,
        **topology,
        **more,
    }


def test_there_must_be_room_for_a_volume_that_is_made() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, storage_class("fast"))
    show(tables, CLAIMS, claim("data", class_name="fast", size="5Gi"))
    show(tables, CSI_DRIVERS, TELLS_CAPACITY)
    assert against(tables, "data") == {NOT_ENOUGH_SPACE: {"a", "b", "c"}}
    show(tables, CAPACITIES, capacity("z1", "z1", "5Gi"), capacity("z2", "z2", "9Gi", maximumVolumeSize="4Gi"))
    assert against(tables, "data") == {NOT_ENOUGH_SPACE: {"c"}}
    show(tables, CAPACITIES, capacity("z1", "", "5Gi"), capacity("z2", "z2", "5Gi"))
    assert against(tables, "data") == {NOT_ENOUGH_SPACE: {"a", "b"}}
    show_gone(tables, CAPACITIES, "z2")
    show(tables, CSI_DRIVERS, {"metadata": {"name": "example.com/p"}, "spec": {"storageCapacity": False}})
    assert against(tables, "data") == {}


def test_a_class_with_thousands_of_topologies_makes_no_volume_and_says_so() -> None:
    tables = three()
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": [f"z{number}"]}]} for number in range(5000)]
    show(tables, STORAGE_CLASSES, storage_class("fast", allowedTopologies=terms))
    show(tables, CLAIMS, claim("data", class_name="fast"))

    assert message(tables, "data") == f'storageclass "fast" exceeds a limit of this scheduler: {TOO_LARGE}'
    show(tables, STORAGE_CLASSES, storage_class("fast", allowedTopologies=terms[:2]))
    assert against(tables, "data") == {BIND_CONFLICT: {"c"}}


def test_a_class_that_makes_no_volumes_is_used_whatever_its_topologies() -> None:
    tables = three()
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": [f"z{number}"]}]} for number in range(5000)]
    local = storage_class("local", provisioner="kubernetes.io/no-provisioner", allowedTopologies=terms)
    show(tables, STORAGE_CLASSES, local)
    show(tables, VOLUMES, volume("pv", class_name="local", on=("a",)))
    show(tables, CLAIMS, claim("data", class_name="local"))

    assert against(tables, "data") == {BIND_CONFLICT: {"b", "c"}}


def test_the_largest_of_several_claims_needs_room_too() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, storage_class("fast"))
    show(tables, CLAIMS, *(claim(f"of-{size}", class_name="fast", size=f"{size}Gi") for size in (1, 9)))
    show(tables, CSI_DRIVERS, TELLS_CAPACITY)
    show(tables, CAPACITIES, capacity("z1", "z1", "5Gi"), capacity("z2", "z2", "9Gi"))

    assert against(tables, "of-1") == {}
    assert against(tables, "of-1", "of-9") == {NOT_ENOUGH_SPACE: {"a", "b"}}


def test_the_first_claim_for_which_no_volume_can_be_made_says_why() -> None:
    tables = three()
    terms = [{"matchLabelExpressions": [{"key": HOSTNAME, "values": ["b"]}]}]
    show(tables, STORAGE_CLASSES, storage_class("fast"), storage_class("near", allowedTopologies=terms))
    show(tables, CLAIMS, claim("1", class_name="near"), claim("2", class_name="fast", size="5Gi"))
    show(tables, CSI_DRIVERS, TELLS_CAPACITY)
    show(tables, CAPACITIES, {**capacity("z1", "z1", "9Gi"), "storageClassName": "near"})

    assert against(tables, "1", "2") == {BIND_CONFLICT: {"a", "c"}, NOT_ENOUGH_SPACE: {"b"}}


# How full the storage would be


def points(tables: Tables, *claims: str, rule: VolumeBinding | None = None) -> dict[str, int]:
    """Return node -> points of a pod with these claims."""
    scores = (rule or VolumeBinding()).score(pod("p", **with_claims(*claims)), tables, CycleState(), slice(None))
    return {name: int(scores[row]) // POINT for name, row in tables.row_of.items()}


def test_nodes_with_much_capacity_are_preferred() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, storage_class("fast"))
    show(tables, CLAIMS, *(claim(name, class_name="fast", size="2Gi") for name in ("one", "two")))
    show(tables, CSI_DRIVERS, TELLS_CAPACITY)
    show(tables, CAPACITIES, capacity("z1", "z1", "10Gi", maximumVolumeSize="5Gi"), capacity("z2", "z2", "100Gi"))
    assert points(tables, "one") == {"a": 80, "b": 80, "c": 98}
    assert points(tables, "one", "two") == {"a": 60, "b": 60, "c": 96}
    rule = VolumeBinding(
        VolumeBindingArgs.model_validate({"shape": [{"utilization": 0, "score": 0}, {"utilization": 40, "score": 10}]})
    )
    assert points(tables, "one", rule=rule) == {"a": 50, "b": 50, "c": 5}
    show(tables, CSI_DRIVERS, {"metadata": {"name": "example.com/p"}, "spec": {"storageCapacity": False}})
    assert points(tables, "one") == {"a": 0, "b": 0, "c": 0}


def test_sizes_that_together_exceed_what_an_integer_holds_fill_the_storage() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, LOCAL)
    show(tables, CLAIMS, *(claim(name, class_name="local", size="9223372036854775807") for name in ("one", "two")))
    volumes = (volume(f"pv{number}", class_name="local", on=("a",), size="8Ei") for number in range(2))
    show(tables, VOLUMES, *volumes)
    assert points(tables, "one", "two") == {"a": 0, "b": 0, "c": 0}


def test_where_a_volume_exists_volumes_to_create_do_not_count() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, storage_class("fast"), LOCAL)
    show(tables, CLAIMS, claim("new", class_name="fast", size="2Gi"), claim("data", class_name="local", size="3Gi"))
    show(tables, CSI_DRIVERS, TELLS_CAPACITY)
    show(tables, CAPACITIES, capacity("z1", "z1", "10Gi"), capacity("z2", "z2", "100Gi"))
    show(tables, VOLUMES, volume("pv", class_name="local", on=("a",), size="4Gi"))
    assert points(tables, "data") == {"a": 25, "b": 0, "c": 0}
    assert points(tables, "new", "data") == {"a": 25, "b": 80, "c": 98}


# Many nodes at once are judged as one at a time


@pytest.mark.parametrize("seed", range(40))
def test_all_nodes_at_once_are_judged_as_one_by_one(seed: int) -> None:
    rng = Random(seed)  # noqa: S311 - repeatable
    names = [f"n{number}" for number in range(rng.randint(2, 9))]
    tables = tables_of(*(wire_node(name, labels={ZONE: rng.choice(["z1", "z2"])}) for name in names))
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}]}]
    show(tables, STORAGE_CLASSES, LOCAL, storage_class("fast", allowedTopologies=topologies))
    only_zones = rng.random() < 0.3
    for number in range(rng.randint(1, 20)):
        show(tables, VOLUMES, random_volume(rng, f"pv-{number}", names, only_zones=only_zones))
        if rng.random() < 0.2:
            show_gone(tables, VOLUMES, f"pv-{rng.randint(0, number)}")
    claims = [f"c{number}" for number in range(9)]
    for name in claims:
        show(tables, CLAIMS, random_claim(rng, name, names))
    for _ in range(10):
        used = rng.sample(claims, rng.randint(1, 8))
        found = against(tables, *used)
        for node in names:
            assert (node in set().union(*found.values())) is not can_have(tables, node, used)


def random_claim(rng: Random, name: str, names: list[str]) -> dict[str, Any]:
    more: dict[str, Any] = {"selector": {"matchLabels": {"tier": "gold"}}} if rng.random() < 0.3 else {}
    wanted = claim(
        name,
        class_name=rng.choice(["local", "fast"]),
        size=rng.choice(["1Gi", "2Gi"]),
        accessModes=rng.choice([["ReadWriteOnce"], ["ReadWriteMany"]]),
        **more,
    )
    if rng.random() < 0.1:
        wanted["metadata"]["annotations"] = {SELECTED_NODE: rng.choice(names)}
    return wanted


def random_volume(rng: Random, name: str, names: list[str], *, only_zones: bool) -> dict[str, Any]:
    # No two of a size: which of them is taken is of no meaning.
    size = f"{rng.choice([1, 2, 4]) * 1024 + int(name.removeprefix('pv-'))}Mi"
    class_name = rng.choice(["local", "fast"])
    where: list[dict[str, tuple[str, ...]]] = [{ZONE: ("z1",)}]
    if not only_zones:
        where.append({HOSTNAME: tuple(rng.sample(names, rng.randint(1, 2)))})
        where.append({ZONE: ("z2",), HOSTNAME: tuple(rng.sample(names, 2))})
    modes = rng.choice([["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany"]])
    labels = {"tier": rng.choice(["gold", "iron"])}
    made = volume(name, size=size, class_name=class_name, labels=labels, accessModes=modes)
    if rng.random() < 0.9:
        made["spec"]["nodeAffinity"] = affinity(rng.choice(where))
    if rng.random() < 0.1:
        made["spec"]["claimRef"] = {"namespace": "default", "name": f"c{rng.randint(0, 3)}"}
    return made


def suits(one: Volume, key: ClaimKey, wants: Wants) -> bool:
    """Whether it may be bound to such a claim, if it can be used from the node."""
    assert wants.selector is not None
    if one.class_name != wants.class_name or one.size < wants.size:
        return False
    if one.claim is not None:
        return (one.claim.namespace, one.claim.name) == key
    return wants.modes <= one.modes and all(each.accepts(one.labels.get(each.key)) for each in wants.selector)


def can_have(tables: Tables, node: str, used: list[str]) -> bool:
    """By kube-scheduler's loops, for one node: binder.go, FindPodVolumes."""
    volumes, labels = tables.volumes, tables.node(node).metadata.labels or {}
    claims = [(("default", name), volumes.claim(("default", name))) for name in used]
    to_make, chosen = [], set()
    for key, found in sorted(claims, key=lambda one: one[1].wants.size if one[1] else 0):
        assert found is not None
        if found.selected_node:
            if found.selected_node != node:
                return False
            to_make.append(found)
            continue
        best = None
        for name in sorted(f"pv-{number}" for number in range(20)):
            one = volumes.volume(name)
            if one is None or name in chosen or not suits(one, key, found.wants):
                continue
            reach = volumes.reach(one)
            usable = reach is None or reach.accepts(labels)
            if one.claim is not None:
                best = one if usable else None
                break
            if usable and (best is None or one.size < best.size):
                best = one
        if best is None:
            to_make.append(found)
        else:
            chosen.add(best.name)
    return all(one.wants.class_name == "fast" and labels[ZONE] == "z1" for one in to_make)
