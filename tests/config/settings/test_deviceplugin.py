"""DevicePluginConfiguration and descriptions of isolation: defaults, limits, and all mistakes at once."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from config.settings.deviceplugin import ENV_PREFIX, DevicePluginConfiguration, HamiCore, Mps
from config.settings.isolation import NONE, PLACEHOLDERS, IsolationMechanism, filled, hami_core, mps
from config.settings.load import load
from config.settings.mistakes import ConfigurationError
from config.settings.scheduler import SchedulerConfiguration

HEAD = "apiVersion: gpushare/v1alpha1\nkind: DevicePluginConfiguration\n"


def configured(**fields: object) -> DevicePluginConfiguration:
    return DevicePluginConfiguration.model_validate({"nodeName": "n"} | fields, by_alias=True, by_name=False)


def test_the_defaults_match_the_schedulers_defaults() -> None:
    node, cluster = configured(), SchedulerConfiguration()
    assert (node.resources, node.memory_unit_mib) == (cluster.resources, cluster.memory_unit_mib)


def test_the_state_has_its_own_directory_inside_a_mounted_one() -> None:
    default = configured()
    assert Path(default.state_dir).parent == Path(default.kubelet.device_plugin_dir)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        pytest.param({"nodeName": "Node_1"}, "name of a node", id="no node has that name"),
        pytest.param({"nodeName": ""}, "name of a node", id="no name"),
        pytest.param({"nodeName": "a" * 254}, "name of a node", id="a name without an end"),
        pytest.param({"listen": "10262"}, "host:port", id="a port alone"),
        pytest.param({"cdiDir": "cdi"}, "absolute path", id="relative to what"),
        pytest.param({"cdiSpecDirs": ["/etc/cdi", "cdi"]}, "absolute path", id="one relative path"),
        pytest.param({"cdiSpecDirs": ["/run/cdi", "/run//cdi/"]}, "found more than once: /run/cdi", id="a path twice"),
        pytest.param({"cdiSpecDirs": []}, "at least one directory, such as /var/run/cdi", id="no path"),
        pytest.param({"kubelet": {"devicePluginDir": ""}}, "absolute path", id="an empty path"),
        pytest.param({"ignoredXids": [31, 79], "hardwareXids": [79]}, "in ignoredXids too: 79", id="in both lists"),
        pytest.param({"ignoredXids": [0]}, "ignoredXids", id="no XID has that number"),
        pytest.param({"monitor": True}, "monitor", id="on says too little"),
        pytest.param(
            {"isolation": "mig"}, "auto, driver, none, mps, hami-core, or an absolute path", id="an unknown isolation"
        ),
        pytest.param({"isolationFallback": "driver"}, "expected none, mps, hami-core, or", id="a fallback that lacks"),
        pytest.param({"isolationFallback": "hami-core"}, "absolute path of the library", id="a fallback from nowhere"),
        pytest.param(
            {"isolation": "driver", "mode": "environment"}, "expected mode: cdi", id="limits that pods replace"
        ),
        pytest.param({"enforcement": "best"}, "enforcement", id="an unknown enforcement"),
        pytest.param({"isolation": "isolation.yaml"}, "absolute path", id="a description relative to what"),
        pytest.param({"isolation": "hami-core"}, "absolute path of the library", id="a library from nowhere"),
        pytest.param({"mps": {"directory": "/run/" + "m" * 48}}, "mps.directory", id="sockets with too long a path"),
        pytest.param({"resources": {"gpuMem": "mem"}}, "extended resource", id="a resource without a domain"),
    ],
)
def test_values_that_make_no_sense_are_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        configured(**fields)


def test_a_fallback_counts_with_auto_only() -> None:
    found = configured(isolation="mps", isolationFallback="hami-core")
    assert (found.isolation, found.enforcement) == ("mps", "preferred")


EVERY_MISTAKE = """\
environment GPUSHARE_DEVICE_PLUGIN_CDI_DIR: unknown field; did you mean GPUSHARE_DEVICE_PLUGIN_CDIDIR?
file: nodeName: is missing
file: memoryUnitMiB: expected at least 1, at most 1048576, found 0
flag --mode: mode: expected 'auto', 'cdi' or 'environment', found 'envronment'; did you mean environment?
file: kubelet.socket: unknown field; expected one of: devicePluginDir, podResourcesSocket
file: simulateControl: expected simulate to be set: faults apply to simulated cards only
environment GPUSHARE_DEVICE_PLUGIN_RECONCILEINTERVAL: reconcileInterval: expected at least 30s, at most 1h, found '5s'
file: cdiDirs: unknown field; did you mean cdiDir?
"""


def test_every_mistake_of_every_source_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    text = "cdiDirs: [/etc/cdi]\nmemoryUnitMiB: 0\nkubelet: {socket: /s}\nsimulateControl: /s\n"
    file.write_text(HEAD + text, encoding="utf-8")
    environ = {f"{ENV_PREFIX}RECONCILEINTERVAL": "5s", f"{ENV_PREFIX}CDI_DIR": "/c", "PATH": "/bin"}
    with pytest.raises(ConfigurationError) as caught:
        load(DevicePluginConfiguration, file=file, environ=environ, flags={"mode": "envronment"}, env_prefix=ENV_PREFIX)
    assert str(caught.value).replace(f"{file}: ", "file: ").splitlines() == EVERY_MISTAKE.splitlines()


def test_every_field_says_what_it_means() -> None:
    assert all(field.description for field in DevicePluginConfiguration.model_fields.values())


def described(**fields: object) -> IsolationMechanism:
    return IsolationMechanism.model_validate(fields, by_alias=True, by_name=False)


def mount(**fields: object) -> dict[str, object]:
    return {"mounts": [{"containerPath": "/in", **fields}]}


@pytest.mark.parametrize("name", PLACEHOLDERS)
def test_each_placeholder_is_filled(name: str) -> None:
    text = described(environment={"A": f"<{{{name}}}>"}).environment["A"]
    assert filled(text, dict.fromkeys(PLACEHOLDERS, "") | {name: "x"}) == "<x>"


def test_what_a_value_holds_is_not_filled_again() -> None:
    values = dict.fromkeys(PLACEHOLDERS, "") | {"container": "{uuid}", "uuid": "GPU-1"}
    assert filled("{container} {uuid}", values) == "{uuid} GPU-1"


ALLOWED = "{units}, {mib}, {percent}, {uuid}, {index}, {pod_uid}, {container}"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        pytest.param({"environment": {"A": "{annotations}"}}, ALLOWED, id="what a pod's author writes"),
        pytest.param({"environment": {"A": "{mib.real}"}}, ALLOWED, id="an attribute"),
        pytest.param({"environment": {"A": "{"}}, ALLOWED, id="a lone brace"),
        pytest.param({"environment": {"A=B": "1"}}, "name of a variable", id="no name"),
        pytest.param({"environment": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "does not set itself", id="other cards"),
        pytest.param({"environment": {"ALIYUN_COM_GPU_MEM_IDX": "1"}}, "does not set itself", id="another index"),
        pytest.param(mount(), "exactly one of hostPath, directory, content, found none", id="from nowhere"),
        pytest.param(mount(hostPath="/a", content="b"), "found hostPath, content", id="from two places"),
        pytest.param(
            mount(content="b", readOnly=False), "all containers of the node share", id="a file of everybody's"
        ),
        pytest.param(mount(hostPath="a"), "absolute path", id="relative to what"),
        pytest.param(mount(hostPath="/a/../{container}"), "without ..", id="up and away"),
        pytest.param(mount(hostPath="/a/{namespace}"), ALLOWED, id="an unknown placeholder in a path"),
        pytest.param(mount(directory="pod"), "directory", id="whose directory"),
        pytest.param({"mounts": [{"containerPath": "/a", "content": "x"}] * 2}, "found more than once: /a", id="twice"),
        pytest.param({"deviceNodes": ["null"]}, "absolute path", id="a node from nowhere"),
        pytest.param({"hooks": [{"hookName": "later", "path": "/x"}]}, "hookName", id="an unknown hook"),
        pytest.param({"preparation": "reboot"}, "preparation", id="an unknown preparation"),
        pytest.param({"privileged": True}, "privileged", id="an unknown field"),
    ],
)
def test_what_a_description_may_not_say(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        described(**fields)
    assert complaint in str(caught.value)


def test_without_isolation_nothing_is_said() -> None:
    assert described() == NONE
    assert (NONE.environment, NONE.mounts, NONE.preparation, NONE.host_ipc) == ({}, (), "none", False)


def test_mps_leads_a_client_to_the_daemon_of_its_card_and_limits_it() -> None:
    made = mps(Mps(directory="/run/m"))
    assert made.environment == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/m/{uuid}",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0={mib}M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "{percent}",
    }
    assert [(one.host_path, one.container_path) for one in made.mounts] == [("/run/m/{uuid}", "/run/m/{uuid}")]
    assert (made.preparation, made.host_ipc) == ("mps", True)


def test_hami_core_is_loaded_before_every_program_of_the_container() -> None:
    made = hami_core(HamiCore(library="/opt/libvgpu.so"))
    assert made.environment["CUDA_DEVICE_MEMORY_LIMIT"] == "{mib}m"
    assert made.environment["CUDA_DEVICE_SM_LIMIT"] == "{percent}"
    by_path = {one.container_path: one for one in made.mounts}
    library = by_path["/usr/local/vgpu/libvgpu.so"]
    assert (library.host_path, library.read_only) == ("/opt/libvgpu.so", True)
    assert by_path["/etc/ld.so.preload"].content == "/usr/local/vgpu/libvgpu.so\n"
    cache = made.environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"].rpartition("/")[0]
    assert (by_path[cache].directory, by_path[cache].read_only) == ("container", False)
