"""DevicePluginConfiguration: its defaults, its limits, and that all of its mistakes are named at once."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from config.settings.deviceplugin import ENV_PREFIX, DevicePluginConfiguration
from config.settings.load import load
from config.settings.mistakes import ConfigurationError
from config.settings.scheduler import SchedulerConfiguration

HEAD = "apiVersion: gpushare/v1alpha1\nkind: DevicePluginConfiguration\n"


def configured(**fields: object) -> DevicePluginConfiguration:
    return DevicePluginConfiguration.model_validate({"nodeName": "n"} | fields, by_alias=True, by_name=False)


def test_the_defaults_match_the_schedulers_defaults() -> None:
    node, cluster = configured(), SchedulerConfiguration()
    assert (node.resources, node.memory_unit_mib) == (cluster.resources, cluster.memory_unit_mib)


def test_the_defaults_are_those_of_the_protocol_and_harm_no_pod() -> None:
    default = configured()
    assert default.listen_address == ("", 10262)
    assert (default.mode, default.cdi_dir, default.cdi_spec_dirs) == (
        "auto",
        "/var/run/cdi",
        ("/etc/cdi", "/var/run/cdi"),
    )
    assert (default.health_check, default.isolation, default.allocate_wait_s) == (True, "none", 0.5)
    assert (default.evict_unregistered, default.evict_mismatched, default.monitor) == (False, False, "warn")
    assert not default.mark_assigned


def test_the_state_has_its_own_directory_inside_a_mounted_one() -> None:
    default = configured()
    assert Path(default.state_dir).parent == Path(default.kubelet.device_plugin_dir)


def test_off_needs_no_quotes(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(HEAD + "nodeName: n\nmonitor: off\n", encoding="utf-8")
    read = load(DevicePluginConfiguration, file=file, environ={}, flags={}, env_prefix=ENV_PREFIX)
    assert read.monitor == "off"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        pytest.param({"nodeName": "Node_1"}, "name of a node", id="no node has that name"),
        pytest.param({"nodeName": ""}, "name of a node", id="no name"),
        pytest.param({"nodeName": "a" * 254}, "name of a node", id="a name without an end"),
        pytest.param({"listen": "10262"}, "host:port", id="a port alone"),
        pytest.param({"cdiDir": "cdi"}, "absolute path", id="relative to what"),
        pytest.param({"cdiSpecDirs": ["/etc/cdi", "cdi"]}, "absolute path", id="one relative path"),
        pytest.param({"kubelet": {"devicePluginDir": ""}}, "absolute path", id="an empty path"),
        pytest.param({"ignoredXids": [31, 79], "hardwareXids": [79]}, "in ignoredXids too: 79", id="in both lists"),
        pytest.param({"ignoredXids": [0]}, "ignoredXids", id="no XID has that number"),
        pytest.param({"monitor": True}, "monitor", id="on says too little"),
        pytest.param({"isolation": "mig"}, "none, mps, hami-core, or the absolute path", id="an unknown isolation"),
        pytest.param({"isolation": "isolation.yaml"}, "absolute path", id="a description relative to what"),
        pytest.param({"isolation": "hami-core"}, "absolute path of the library", id="a library from nowhere"),
        pytest.param({"mps": {"directory": "/run/" + "m" * 48}}, "mps.directory", id="sockets with too long a path"),
        pytest.param({"resources": {"gpuMem": "mem"}}, "extended resource", id="a resource without a domain"),
    ],
)
def test_values_that_make_no_sense_are_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        configured(**fields)


EVERY_MISTAKE = """\
environment GPUSHARE_DEVICE_PLUGIN_CDI_DIR: unknown field; did you mean GPUSHARE_DEVICE_PLUGIN_CDIDIR?
file: nodeName: is missing
file: memoryUnitMiB: expected at least 1, at most 1048576, found 0
flag --mode: mode: expected 'auto', 'cdi' or 'environment', found 'envronment'; did you mean environment?
file: kubelet.socket: unknown field; expected one of: devicePluginDir, podResourcesSocket
file: simulateControl: expected simulate as well: faults are for simulated cards only
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
