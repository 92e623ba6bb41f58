"""Pods that a kubelet and a runtime make of each way to the driver: the chart's pod, with another program in it.

No NVIDIA runtime and no driver are here, so this shows mounts and rights, and not that cards come in.
"""

from typing import Any, Final, NamedTuple

import pytest

from e2e.control_plane.admin import Admin, Json
from e2e.deploy.chart.helm import Helm
from e2e.deploy.chart.test_values import one, pod_of
from e2e.node import node_pods
from e2e.node.local_node import LocalNode

LIBRARY: Final = "usr/lib64/libnvidia-ml.so.1"
ROOT: Final = "ROOT"
_KEPT: Final = ("volumes", "hostPID", "securityContext")


def with_busybox(name: str, spec: dict[str, Any]) -> Json:
    """The plugin's pod with a shell in the place of the plugin."""
    (container,) = spec["containers"]
    for mount in container["volumeMounts"]:
        # The mounts of a node of ours are private: nothing that is mounted later reaches a container.
        mount.pop("mountPropagation", None)
    kept = {key: container[key] for key in ("env", "volumeMounts", "securityContext")}
    return node_pods.pod(name, [node_pods.busybox(**kept)], **{key: spec[key] for key in _KEPT})


class Way(NamedTuple):
    """plugin: values of the chart, ROOT for the driver's root. command: run in the container, which then says this."""

    name: str
    plugin: dict[str, str]
    command: str
    said: str


WAYS: Final = (
    Way("environment", {}, "echo $NVIDIA_VISIBLE_DEVICES", "all"),
    # The numbers are of /dev/null.
    Way(
        "volume-mounts",
        {"driverAccess": "volume-mounts"},
        "stat -c '%t:%T' /var/run/nvidia-container-devices/all",
        "1:3",
    ),
    Way("privileged", {"driverAccess": "privileged"}, "grep CapEff /proc/self/status", "CapEff:\t000001ff"),
    Way(
        "driver-root",
        {"driverAccess": "driver-root", "driverRoot": ROOT},
        f"cat /driver-root/{LIBRARY}; touch /driver-root/new 2>/dev/null || echo -n , read-only",
        "nvml, read-only",
    ),
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
async def test_a_container_starts_and_has_what_the_way_needs(
    helm: Helm, node: LocalNode, on_node: Admin, way: Way
) -> None:
    root = node.folder / "driver"
    (root / LIBRARY).parent.mkdir(parents=True, exist_ok=True)
    (root / LIBRARY).write_text("nvml")
    values = {key: str(root) if value == ROOT else value for key, value in way.plugin.items()}
    spec = pod_of(one(helm.objects({"devicePlugin": values}), "DaemonSet"))

    async with node_pods.running(on_node, node.name, with_busybox(way.name, spec)) as pod:
        assert way.said in node.container(pod).execute("sh", "-c", way.command)


async def test_a_directory_that_the_node_does_not_have_is_named_in_an_event(
    helm: Helm, node: LocalNode, on_node: Admin
) -> None:
    missing = f"{node.folder}/no-such-directory"
    values = {"devicePlugin": {"config": {"cdiSpecDirs": [missing]}}}
    spec = pod_of(one(helm.objects(values), "DaemonSet"))
    own = {volume["name"] for volume in spec["volumes"] if "hostPath" in volume}
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] in own]
    (container,) = spec["containers"]
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] in own]
    pod = with_busybox("missing", spec)

    await on_node.create(node_pods.PODS, pod)
    await node_pods.bind(on_node, "missing", node.name)
    note = await node_pods.note_of(on_node, "FailedMount", "missing")
    await on_node.delete(f"{node_pods.PODS}/missing")

    assert f"{missing} is not a directory" in note
