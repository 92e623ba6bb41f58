"""Pods that every rule answered alike until something changed that only some of them refer to.

Each of these is placed at once, whatever the pods before it in the queue wait for.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.port import ATTACHMENTS, CSI_NODES, SERVICES
from scheduler.testing.cluster.world import World
from tests.support.builders import manifest, wire_node
from tests.support.service.looking import HOSTNAME, cluster, comes, node_of
from tests.support.service.process import scheduling
from tests.support.service.volume_controller import VolumeController, zones
from tests.support.volumes import claim, storage_class, volume, with_claims

PROMPT_S = 2.0
SPREAD_BY_DEFAULT = SchedulerConfiguration.model_validate(
    {
        "bindTimeout": 0,
        "profiles": [
            {
                "schedulerName": "gpushare-scheduler",
                "pluginConfig": [
                    {
                        "name": "PodTopologySpread",
                        "args": {
                            "defaultingType": "List",
                            "defaultConstraints": [
                                {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
                            ],
                        },
                    }
                ],
            }
        ],
    }
)


async def test_pods_of_a_statefulset_are_placed_as_their_own_claims_are_bound() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("now", waits=False))
    async with scheduling(of) as process:
        for number in range(6):
            controller.comes(claim(f"data-{number}", class_name="now"))
            comes(of, f"p-{number}", 1, **with_claims(f"data-{number}"))
        await asyncio.sleep(PROMPT_S)
        for number in range(1, 6):
            make_and_bind(controller, f"data-{number}")
        await asyncio.sleep(PROMPT_S)

        assert [node_of(of, f"p-{number}") for number in range(6)] == ["", *("a" for _ in range(5))]
        assert process.sample("lost_wakeups_total") == 0


async def test_a_claim_of_a_name_that_is_missing_in_two_namespaces_is_made_in_one() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"))
    async with scheduling(of) as process:
        for namespace in ("team-a", "team-b"):
            comes(of, "p", 1, namespace=namespace, **with_claims("data"))
        await asyncio.sleep(PROMPT_S)
        made = claim("data", class_name="fast")
        made["metadata"]["namespace"] = "team-b"
        controller.comes(made)
        await asyncio.sleep(PROMPT_S)

        assert process.engine.tables.record("uid-team-b-p") is not None
        assert process.engine.tables.record("uid-team-a-p") is None
        assert process.sample("lost_wakeups_total") == 0


async def test_a_storage_class_that_comes_to_wait_for_pods_concerns_the_pods_that_use_it() -> None:
    of, controller = zones(a="z1")
    async with scheduling(of) as process:
        for name in ("first", "second"):
            controller.comes(claim(name, class_name=name))
            comes(of, f"p-{name}", 1, **with_claims(name))
        await asyncio.sleep(PROMPT_S)
        controller.comes(storage_class("second"))
        await asyncio.sleep(PROMPT_S)

        assert (controller.selected("first"), controller.selected("second")) == ("", "a")
        assert process.sample("lost_wakeups_total") == 0


async def test_a_pod_for_which_others_go_is_searched_for_as_its_own_claim_is_bound() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("now", waits=False))
    async with scheduling(of) as process:
        comes(of, "small", 16)
        await asyncio.sleep(PROMPT_S)
        for number in range(2):
            controller.comes(claim(f"data-{number}", class_name="now"))
            comes(of, f"p-{number}", 8, priority=10, **with_claims(f"data-{number}"))
        await asyncio.sleep(PROMPT_S)
        make_and_bind(controller, "data-1")
        await asyncio.sleep(PROMPT_S)

        assert of.pods.collection.existing("default", "small").metadata.deletion_timestamp
        assert process.sample("lost_wakeups_total") == 0


@pytest.mark.parametrize("full", [False, True])
async def test_a_namespace_whose_labels_change_lets_its_own_pods_in(full: bool) -> None:  # noqa: FBT001 - a case
    """full: the node has no memory left while the labels change."""
    of = cluster(a=[16])
    for namespace in ("team-a", "team-b"):
        of.namespaces.create(namespace, {"shares": "no"})
    keeps_out = {"topologyKey": HOSTNAME, "labelSelector": {}, "namespaceSelector": {"matchLabels": {"shares": "no"}}}
    async with scheduling(of) as process:
        comes(of, "existing", 1, affinity=_required("podAntiAffinity", keeps_out))
        if full:
            comes(of, "filling", 15, namespace="filling")
        await asyncio.sleep(PROMPT_S)
        for namespace in ("team-a", "team-b"):
            comes(of, "p", 1, namespace=namespace)
        await asyncio.sleep(PROMPT_S)
        of.namespaces.label("team-b", {"shares": "yes"})
        await asyncio.sleep(PROMPT_S)
        if full:
            of.pods.remove("filling", "filling")
            await asyncio.sleep(PROMPT_S)

        assert (node_of(of, "p", "team-a"), node_of(of, "p", "team-b")) == ("", "a")
        assert process.sample("lost_wakeups_total") == 0


async def test_a_namespace_whose_labels_change_lets_those_be_the_first_that_match_themselves() -> None:
    of = cluster(a=[16])
    of.namespaces.create("team", {"stage": "test"})
    term = {
        "topologyKey": HOSTNAME,
        "labelSelector": {"matchLabels": {"role": "leader"}},
        "namespaceSelector": {"matchLabels": {"stage": "live"}},
    }
    async with scheduling(of) as process:
        for name, role in (("p-follower", "follower"), ("p-leader", "leader")):
            wanted = _required("podAffinity", term)
            comes(of, name, 1, namespace="team", labels={"role": role}, affinity=wanted, to="a")
        await asyncio.sleep(PROMPT_S)
        of.namespaces.label("team", {"stage": "live"})
        await asyncio.sleep(PROMPT_S)

        # As soon as the leader is there, the follower has company.
        assert (node_of(of, "p-leader", "team"), node_of(of, "p-follower", "team")) == ("a", "a")
        assert process.sample("lost_wakeups_total") == 0


def make_and_bind(controller: VolumeController, name: str) -> None:
    """As a provisioner and the controller do for a class that does not wait."""
    controller.comes(volume(f"pv-{name}", class_name="now"))
    controller.bind(name, f"pv-{name}")


def _required(side: str, term: Mapping[str, object]) -> dict[str, object]:
    return {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize("full", [False, True])
async def test_a_service_that_selects_only_some_pods_spreads_these_otherwise(full: bool) -> None:  # noqa: FBT001 - a case
    """full: no node has memory left while the Service comes."""
    of = cluster()
    for name, units, zone in (("a", 16, "east"), ("full", 1, "west")):
        of.nodes.add(wire_node(name, [units], labels={"zone": zone}))
    of.selecting.create(SERVICES, _service("all", tier="x"))
    async with scheduling(of, SPREAD_BY_DEFAULT) as process:
        comes(of, "on-a", 1, to="a", labels={"tier": "x"})
        comes(of, "on-full", 1, to="full", labels={"tier": "y"})
        if full:
            comes(of, "filling", 15, to="a")
        await asyncio.sleep(PROMPT_S)
        for name in ("p-one", "p-two"):
            comes(of, name, 1, labels={"tier": "x", "app": name})
        await asyncio.sleep(PROMPT_S)
        assert (node_of(of, "p-one"), node_of(of, "p-two")) == ("", "")
        of.selecting.create(SERVICES, _service("two", app="p-two"))
        await asyncio.sleep(PROMPT_S)
        if full:
            of.pods.remove("default", "filling")
            await asyncio.sleep(PROMPT_S)

        assert (node_of(of, "p-one"), node_of(of, "p-two")) == ("", "a")
        assert process.sample("lost_wakeups_total") == 0


@pytest.mark.parametrize("attached", ["by another claim", "before the pod came"])
async def test_a_pod_shares_a_volume_whose_claim_is_another_or_that_is_still_attached(attached: str) -> None:
    of = node_that_attaches_one_volume(own="own", own2="own2", first="shared", second="shared")
    if attached == "before the pod came":
        spec = {"attacher": "d", "nodeName": "a", "source": {"persistentVolumeName": "pv-first"}}
        of.storage.create(ATTACHMENTS, {"metadata": {"name": "va"}, "spec": spec})
    async with scheduling(of) as process:
        if attached == "by another claim":
            of.pods.create(manifest("full", 0, node="a", scheduler="default-scheduler", **with_claims("own")))
        comes(of, "uses-own", 1, **with_claims("own2" if attached == "by another claim" else "own"))
        comes(of, "shares", 1, **with_claims("second"))
        await asyncio.sleep(PROMPT_S)
        assert (node_of(of, "uses-own"), node_of(of, "shares")) == ("", "")
        of.pods.create(manifest("others", 0, node="a", scheduler="default-scheduler", **with_claims("first")))
        await asyncio.sleep(PROMPT_S)

        assert (node_of(of, "uses-own"), node_of(of, "shares")) == ("", "a")
        assert process.sample("lost_wakeups_total") == 0


async def test_a_pod_shares_a_disk_that_it_names_itself() -> None:
    of, _ = zones(a="z1")
    of.storage.create(CSI_NODES, _limit_of_one("disk.csi.azure.com"))
    async with scheduling(of) as process:
        of.pods.create(manifest("full", 0, node="a", scheduler="default-scheduler", **_disk("u")))
        for name in ("v", "w"):
            comes(of, f"p-{name}", 1, **_disk(name))
        await asyncio.sleep(PROMPT_S)
        assert (node_of(of, "p-v"), node_of(of, "p-w")) == ("", "")
        of.pods.create(manifest("others", 0, node="a", scheduler="default-scheduler", **_disk("w")))
        await asyncio.sleep(PROMPT_S)

        assert (node_of(of, "p-v"), node_of(of, "p-w")) == ("", "a")
        assert process.sample("lost_wakeups_total") == 0


def node_that_attaches_one_volume(**handles: str) -> World:
    """A node, and claims with volumes of these handles."""
    of, controller = zones(a="z1")
    controller.comes(storage_class("now", waits=False, provisioner="d"))
    of.storage.create(CSI_NODES, _limit_of_one("d"))
    for name, handle in handles.items():
        source: dict[str, Any] = {"csi": {"driver": "d", "volumeHandle": handle}, "accessModes": ["ReadWriteMany"]}
        controller.comes(claim(name, class_name="now"), volume(f"pv-{name}", class_name="now", **source))
        controller.bind(name, f"pv-{name}")
    return of


def _limit_of_one(driver: str) -> dict[str, object]:
    return {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": driver, "allocatable": {"count": 1}}]}}


def _disk(name: str) -> dict[str, Any]:
    return {"volumes": [{"name": "disk", "azureDisk": {"diskName": name, "diskURI": name}}]}


def _service(name: str, **selector: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"selector": selector}}
