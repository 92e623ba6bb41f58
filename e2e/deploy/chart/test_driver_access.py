"""How the device plugin's pod gets the driver, and when it leaves the node, by the values; SELinux and OpenShift."""

from pathlib import Path
from typing import Any, Final

import pytest

from e2e.deploy.chart.helm import Helm
from e2e.deploy.chart.test_refused_values import refusal, under
from e2e.deploy.chart.test_values import one, plugin_of, pod_of
from e2e.deploy.chart.variants import VARIANTS

# Source: nvidia-container-toolkit 1.20.2, internal/config/image/cuda_image.go, visibleDevicesFromMounts.
ALL_BY_MOUNT: Final = "/var/run/nvidia-container-devices/all"

# Source: OpenShift's API reference, SecurityContextConstraints [security.openshift.io/v1].
REQUIRED_BY_OPENSHIFT: Final = {
    "allowHostDirVolumePlugin",
    "allowHostIPC",
    "allowHostNetwork",
    "allowHostPID",
    "allowHostPorts",
    "allowPrivilegedContainer",
    "readOnlyRootFilesystem",
}


def plugin_pod(helm: Helm, variant: str) -> dict[str, Any]:
    return pod_of(one(helm.objects(VARIANTS[variant]), "DaemonSet"))


def mounted(pod: dict[str, Any], path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(mount, volume) at the path in the container."""
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == path)
    (volume,) = (each for each in pod["volumes"] if each["name"] == mount["name"])
    return mount, volume


def variable(pod: dict[str, Any], name: str) -> str:
    (value,) = (each["value"] for each in pod["containers"][0]["env"] if each["name"] == name)
    return str(value)


def test_a_mount_asks_the_nvidia_runtime_for_every_card(helm: Helm) -> None:
    pod = plugin_pod(helm, "volume mounts for the driver")

    assert mounted(pod, ALL_BY_MOUNT)[1]["hostPath"] == {"path": "/dev/null", "type": "CharDevice"}
    assert variable(pod, "NVIDIA_VISIBLE_DEVICES") == "all"


@pytest.mark.parametrize(
    ("variant", "host_path"),
    [
        pytest.param(
            "the root of a driver's container",
            {"path": "/run/nvidia/driver", "type": "DirectoryOrCreate"},
            id="a driver in a container",
        ),
        pytest.param("the driver of the host", {"path": "/", "type": "Directory"}, id="a driver of the host"),
    ],
)
def test_a_drivers_root_is_mounted_where_the_plugin_looks_and_the_runtime_is_asked_for_no_card(
    helm: Helm, tmp_path: Path, variant: str, host_path: dict[str, str]
) -> None:
    root = plugin_of(helm.objects(VARIANTS[variant]), tmp_path).driver_root
    pod = plugin_pod(helm, variant)
    mount, volume = mounted(pod, root)

    assert (mount["readOnly"], volume["hostPath"]) == (True, host_path)
    # A driver's container mounts its root later; that of the host is there.
    assert mount.get("mountPropagation") == (None if host_path["path"] == "/" else "HostToContainer")
    assert variable(pod, "NVIDIA_VISIBLE_DEVICES") == "void"


def test_a_label_of_the_gpu_operator_is_selected_with_our_own(helm: Helm) -> None:
    assert plugin_pod(helm, "the GPU Operator's label")["nodeSelector"] == {
        "gpushare": "true",
        "nvidia.com/gpu.deploy.client": "true",
    }


def test_a_directory_is_made_only_where_no_node_is_read_only(helm: Helm) -> None:
    pod = plugin_pod(helm, "CDI specs in many directories")
    types = {
        each["hostPath"]["path"]: each["hostPath"]["type"]
        for each in pod["volumes"]
        if each["name"].startswith("cdi-specs-")
    }

    assert {path for path, kind in types.items() if kind == "DirectoryOrCreate"} == {"/run/nvidia_cdi"}
    assert types["/etc/cdi"] == "Directory"


@pytest.mark.parametrize(
    ("variant", "privileged"),
    [
        pytest.param("OpenShift", False, id="by default"),
        pytest.param("OpenShift with a privileged device plugin", True, id="privileged"),
    ],
)
def test_the_constraints_of_openshift_allow_what_the_pod_has_and_no_more(
    helm: Helm, variant: str, *, privileged: bool
) -> None:
    documents = helm.objects(VARIANTS[variant])
    constraints, pod = one(documents, "SecurityContextConstraints"), plugin_pod(helm, variant)
    kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}

    assert constraints["users"] == ["system:serviceaccount:kube-system:gpushare-scheduler-device-plugin"]
    assert constraints["allowPrivilegedContainer"] is constraints["allowPrivilegeEscalation"] is privileged
    assert (constraints["allowHostPID"], constraints["allowHostIPC"]) == (pod["hostPID"], pod.get("hostIPC", False))
    assert constraints.keys() >= REQUIRED_BY_OPENSHIFT
    # The kubelet adds the account's token, which is projected.
    assert kinds | {"projected"} <= set(constraints["volumes"])


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        pytest.param(
            {"driverAccess": "driver-root"}, "devicePlugin.driverRoot: driverAccess driver-root needs", id="no root"
        ),
        pytest.param(
            {"driverRoot": "/run/nvidia/driver"},
            "devicePlugin.driverRoot: driverAccess environment does not use it",
            id="a root that nothing uses",
        ),
        pytest.param(
            {"driverAccess": "driver-root", "driverRoot": "/", "runtimeClassName": "nvidia"},
            "devicePlugin.runtimeClassName: leave it out with driverAccess driver-root",
            id="a runtime beside the root",
        ),
        pytest.param(
            {"driverAccess": "driver-root", "driverRoot": "/", "config": {"isolation": "mps"}},
            "devicePlugin.driverAccess: the control program of MPS comes with the NVIDIA runtime",
            id="MPS without its program",
        ),
        pytest.param(
            {"config": {"driverRoot": "/driver"}},
            "devicePlugin.config.driverRoot: set devicePlugin.driverRoot",
            id="a root that is not mounted",
        ),
        pytest.param(
            {
                "operatorLabel": "nvidia.com/gpu.deploy.client",
                "nodeSelector": {"nvidia.com/gpu.deploy.client": "false"},
            },
            "devicePlugin.nodeSelector: operatorLabel selects nvidia.com/gpu.deploy.client=true",
            id="the opposite of the label",
        ),
    ],
)
def test_values_about_the_driver_that_contradict_each_other_are_refused(
    helm: Helm, plugin: dict[str, Any], said: str
) -> None:
    assert said in refusal(helm, {"devicePlugin": plugin})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("driverAccess", "cdi", id="no such way"),
        pytest.param("driverRoot", "run/nvidia", id="a relative root"),
        pytest.param("operatorLabel", "gpu", id="a label without a domain"),
        pytest.param("seLinuxOptions", {"typ": "spc_t"}, id="no option of SELinux"),
    ],
)
def test_wrong_values_about_the_driver_are_refused_by_their_names(helm: Helm, name: str, value: object) -> None:
    assert f"at '/devicePlugin/{name}" in refusal(helm, under((f"devicePlugin.{name}", value)))
