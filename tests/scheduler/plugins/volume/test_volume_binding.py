"""VolumeBinding: bound claims, claims that wait for a pod, and ephemeral ones; held against one node at a time."""

from random import Random
from typing import Any

import pytest

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Rejected, Relevance
from scheduler.kube.port import CLAIMS, STORAGE_CLASSES, VOLUMES
from scheduler.plugins.volume.volume_binding import (
    BIND_CONFLICT,
    NO_VOLUME,
    NODE_CONFLICT,
    UNBOUND,
    VolumeBinding,
)
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.changes import Change
from scheduler.state.tables import Tables
from scheduler.state.volumes.claim import Wants
from scheduler.state.volumes.volume import Volume
from tests.support.binding_volumes import against, plan, three
from tests.support.builders import pod, wire_node
from tests.support.judging import tables_of
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


def message(tables: Tables, **options: Any) -> str:  # noqa: ANN401 - as `manifest`
    result = VolumeBinding().pre_filter(pod("p", **options), tables, CycleState())
    assert isinstance(result, Rejected), result
    return result.reason


# Claims that no node can help


def test_a_pod_without_claims_is_left_alone() -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    assert VolumeBinding().pre_filter(pod("p", volumes=volumes), three(), CycleState()) is Relevance.SKIP


def scratch(owner: str) -> dict[str, Any]:
    made = claim("p-scratch")
    made["metadata"]["ownerReferences"] = [{"uid": owner, "kind": "Pod", "name": "p", "controller": True}]
    return made


EPHEMERAL = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}


@pytest.mark.parametrize(
    ("claims", "options", "reason"),
    [
        pytest.param([], with_claims("data"), 'persistentvolumeclaim "data" not found', id="none"),
        pytest.param([claim("data")], with_claims("data"), UNBOUND, id="immediate"),
        pytest.param([claim("data", class_name="gone")], with_claims("data"), UNBOUND, id="no such class"),
        pytest.param(
            [{**bound(claim("data"), "pv"), "status": {"phase": "Lost"}}],
            with_claims("data"),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
            id="lost",
        ),
        pytest.param(
            [{"metadata": {"name": "data", "namespace": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}}],
            with_claims("data"),
            'persistentvolumeclaim "data" is being deleted',
            id="being deleted",
        ),
        pytest.param(
            [],
            EPHEMERAL,
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"',
            id="ephemeral, none yet",
        ),
        pytest.param(
            [scratch("somebody")],
            EPHEMERAL,
            "PVC default/p-scratch was not created for pod default/p (pod is not owner)",
            id="ephemeral, of another",
        ),
        pytest.param([scratch("uid-default-p")], EPHEMERAL, UNBOUND, id="ephemeral, its own"),
    ],
)
def test_a_pod_is_told_what_is_wrong_with_its_claim(
    claims: list[dict[str, Any]], options: dict[str, Any], reason: str
) -> None:
    tables = three()
    show(tables, CLAIMS, *claims)
    assert message(tables, **options) == reason


def test_a_claim_in_another_namespace_is_none() -> None:
    tables = three()
    show(tables, CLAIMS, claim("data"))
    assert message(tables, namespace="team", **with_claims("data")) == 'persistentvolumeclaim "data" not found'


# Bound claims


@pytest.mark.parametrize(
    ("terms", "unfit"),
    [
        pytest.param([{ZONE: ("z1",)}], {"c"}, id="one label"),
        pytest.param([{ZONE: ("z1", "z9")}], {"c"}, id="several values"),
        pytest.param([{ZONE: ("z1",), HOSTNAME: ("a", "c")}], {"b", "c"}, id="two labels"),
        pytest.param([{ZONE: ("z2",)}, {HOSTNAME: ("a",)}], {"b"}, id="two terms"),
        pytest.param([{"nowhere": ("x",)}], {"a", "b", "c"}, id="a label that no node has"),
    ],
)
def test_the_node_affinity_of_a_bound_volume(terms: list[dict[str, tuple[str, ...]]], unfit: set[str]) -> None:
    tables = three()
    show(tables, VOLUMES, volume("pv", nodeAffinity=affinity(*terms)))
    show(tables, CLAIMS, bound(claim("data"), "pv"))
    assert against(tables, "data") == {NODE_CONFLICT: unfit}


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
    assert message(tables, **with_claims("data")) == (
        'persistentvolume "pv" has more than this scheduler reads: 5000 node affinity terms (at most 64), '
        "5000 node affinity requirements (at most 128), 5000 node affinity values (at most 2048)"
    )


# Claims that wait for a pod: volumes that are there


def test_the_smallest_free_volume_of_the_node_is_taken() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, LOCAL)
    show(
        tables,
        VOLUMES,
        volume("a-8", class_name="local", on=("a",), size="8Gi"),
        volume("a-2", class_name="local", on=("a",), size="2Gi"),
        volume("a-1", class_name="local", on=("a",), size="1Gi"),
        volume("c-2", class_name="other", on=("c",), size="2Gi"),
    )
    show(tables, CLAIMS, claim("data", class_name="local", size="1500Mi"))
    assert against(tables, "data") == {BIND_CONFLICT: {"b", "c"}}
    assert plan(tables, "a", "data") == ({"data": "a-2"}, set())


@pytest.mark.parametrize(
    ("of_volume", "of_claim"),
    [
        pytest.param({"accessModes": ["ReadOnlyMany"]}, {}, id="access mode"),
        pytest.param({"volumeMode": "Block"}, {}, id="volume mode"),
        pytest.param({"volumeAttributesClassName": "gold"}, {}, id="attributes class"),
        pytest.param({}, {"selector": {"matchLabels": {"tier": "fast"}}}, id="selector"),
        pytest.param({"capacity": {"storage": "512Mi"}}, {}, id="size"),
        pytest.param({"claimRef": {"namespace": "default", "name": "other", "uid": "u"}}, {}, id="somebody else's"),
    ],
)
def test_a_volume_that_does_not_suit_the_claim_is_not_taken(of_volume: Any, of_claim: Any) -> None:  # noqa: ANN401 - manifests
    tables = three()
    show(tables, STORAGE_CLASSES, LOCAL)
    made = volume("pv", class_name="local")
    show(tables, VOLUMES, {**made, "spec": {**made["spec"], **of_volume}})
    show(tables, CLAIMS, claim("data", class_name="local", **of_claim))
    assert against(tables, "data") == {BIND_CONFLICT: {"a", "b", "c"}}
    show(tables, VOLUMES, volume("pv", class_name="local", labels={"tier": "fast"}))
    assert against(tables, "data") == {}


def test_two_claims_never_get_the_same_volume() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, LOCAL)
    show(
        tables,
        VOLUMES,
        volume("a-1", class_name="local", on=("a",)),
        volume("a-2", class_name="local", on=("a",), size="2Gi"),
        volume("b-1", class_name="local", on=("b",)),
    )
    show(tables, CLAIMS, claim("one", class_name="local"), claim("two", class_name="local"))
    assert against(tables, "one", "two") == {BIND_CONFLICT: {"b", "c"}}
    taken, made = plan(tables, "a", "one", "two")
    assert (sorted(taken.values()), made) == (["a-1", "a-2"], set())


def test_a_volume_that_is_kept_for_the_claim_is_the_only_one_that_it_gets() -> None:
    tables = three()
    show(tables, STORAGE_CLASSES, LOCAL)
    show(
        tables,
        VOLUMES,
        volume("kept", class_name="local", on=("b",), claimRef={"namespace": "default", "name": "data"}),
        volume("free", class_name="local", on=("a",)),
    )
    show(tables, CLAIMS, claim("data", class_name="local"))
    assert against(tables, "data") == {BIND_CONFLICT: {"a", "c"}}
    assert plan(tables, "b", "data") == ({"data": "kept"}, set())


# Claims that wait for a pod: volumes to be made


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


# Two nodes at a time are judged as one at a time


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
