"""The examples of docs/user-guide.md do what is written beside them: the running service, on a cluster in memory."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml

from config.protocol import names
from scheduler.kube.port import CLAIMS, STORAGE_CLASSES, VOLUMES
from scheduler.testing.cluster.world import World
from tests.support.builders import wire_node
from tests.support.repository import ROOT
from tests.support.service.looking import A_SECOND_S, arrives, cluster, comes, condition, events, node_of
from tests.support.service.process import scheduling
from tests.support.service.volume_controller import VolumeController
from tests.support.volumes import ZONE, volume

GUIDE: Final = (ROOT / "docs/user-guide.md").read_text(encoding="utf-8")
BLOCK: Final = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
URGENT: Final = 1000


def blocks(heading: str, kind: str) -> list[str]:
    """The blocks of that kind under the heading."""
    _, found, rest = GUIDE.partition(f"\n## {heading}\n")
    assert found, heading
    return [text for name, text in BLOCK.findall(rest.partition("\n## ")[0]) if name == kind]


def objects(heading: str) -> dict[str, dict[str, Any]]:
    """What the example under the heading has, by kind."""
    (text,) = blocks(heading, "yaml")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def told(heading: str, number: int) -> str:
    """The text block of that number, on one line."""
    return " ".join(blocks(heading, "text")[number].split())


def is_made(of: World, document: Mapping[str, Any], *, priority: int = 0, **spec: object) -> None:
    """A pod, as the example says it. priority: what admission makes of the class."""
    whole = {"metadata": document["metadata"], "spec": document["spec"] | {"priority": priority} | spec}
    of.pods.create({"metadata": {"namespace": "default"} | whole["metadata"], "spec": whole["spec"]})


def gpu_nodes(**labels: Mapping[str, str]) -> World:
    """Three nodes of one card of 16 units."""
    of = cluster()
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        of.nodes.add(wire_node(name, [16], labels=labels.get(name.replace("-", "_"), {})))
    return of


async def test_a_pod_of_a_higher_priority_makes_another_go() -> None:
    example, of = objects("Priorities and preemption"), gpu_nodes()
    assert example["Pod"]["spec"]["priorityClassName"] == example["PriorityClass"]["metadata"]["name"]
    async with scheduling(of):
        for number, priority in ((1, 2 * URGENT), (2, 2 * URGENT), (3, 0)):
            comes(of, f"there-{number}", 8, to=f"gpu-{number}", priority=priority)
        await asyncio.sleep(A_SECOND_S)

        is_made(of, example["Pod"], priority=example["PriorityClass"]["value"])
        await asyncio.sleep(A_SECOND_S)

        assert " ".join(events(of, "there-3")[-1]) == told("Priorities and preemption", 0)
        of.pods.remove("default", "there-3")
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "train-7") == "gpu-3"


async def test_a_pod_for_which_nobody_can_go_says_so() -> None:
    example, of = objects("Priorities and preemption"), gpu_nodes()
    async with scheduling(of):
        for number in (1, 2, 3):
            comes(of, f"there-{number}", 8, to=f"gpu-{number}", priority=2 * URGENT)
        await asyncio.sleep(A_SECOND_S)

        is_made(of, example["Pod"], priority=example["PriorityClass"]["value"])
        await asyncio.sleep(A_SECOND_S)

        assert condition(of, "train-7") == f"False {told('Priorities and preemption', 1)}"


async def test_a_local_volume_ties_its_pod_to_one_node() -> None:
    example, of = objects("Volumes"), gpu_nodes()
    claim = example["PersistentVolumeClaim"]
    size, uses = claim["spec"]["resources"]["requests"]["storage"], claim["spec"]["storageClassName"]
    of.storage.create(STORAGE_CLASSES, example["StorageClass"])
    of.storage.create(VOLUMES, volume("ssd", class_name=uses, on=("gpu-2",), size=size))
    of.storage.create(CLAIMS, claim)
    async with scheduling(of):
        is_made(of, example["Pod"])
        await asyncio.sleep(A_SECOND_S)
        VolumeController(of).bind_kept()
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "train") == "gpu-2"

        of.pods.remove("default", "train")
        await arrives(of, "other", 8, to="gpu-2")
        is_made(of, example["Pod"], preemptionPolicy="Never")
        await asyncio.sleep(A_SECOND_S)

        assert condition(of, "train").startswith(f"False {told('Volumes', 0)}")


async def test_a_pod_waits_rather_than_skew_its_zones() -> None:
    east, west = {ZONE: "east"}, {ZONE: "west"}
    deployment, of = objects("Topology spread")["Deployment"], gpu_nodes(gpu_1=east, gpu_2=west)
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"]
    async with scheduling(of):
        comes(of, "other", 16, to="gpu-2")
        for number in range(deployment["spec"]["replicas"]):
            is_made(of, template | {"metadata": {"name": f"web-{number}", **template["metadata"]}})
            await asyncio.sleep(A_SECOND_S)

        assert [node_of(of, f"web-{number}") for number in (0, 1)] == ["gpu-1", ""]
        assert condition(of, "web-1").startswith(f"False {told('Topology spread', 0)}")
        of.pods.remove("default", "other")
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "web-1") == "gpu-2"


@pytest.mark.parametrize("heading", ["The legacy example", "Priorities and preemption", "Volumes", "Topology spread"])
def test_each_example_names_our_scheduler_and_asks_for_gpu_memory(heading: str) -> None:
    (spec,) = [
        found["spec"] if kind == "Pod" else found["spec"]["template"]["spec"]
        for kind, found in objects(heading).items()
        if kind in {"Pod", "Deployment", "StatefulSet"}
    ]
    assert spec["schedulerName"] == names.SCHEDULER_NAME
    assert [names.GPU_MEM in container["resources"]["limits"] for container in spec["containers"]] == [True]
