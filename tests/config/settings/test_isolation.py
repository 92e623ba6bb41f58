"""Descriptions of isolation: what they may say, and what those that come with the plugin say."""

import pytest
from pydantic import ValidationError

from config.settings.deviceplugin import HamiCore, Mps
from config.settings.isolation import NONE, PLACEHOLDERS, IsolationMechanism, filled, hami_core, mps


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
        pytest.param({"environment": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "sets itself", id="other cards"),
        pytest.param({"environment": {"ALIYUN_COM_GPU_MEM_IDX": "1"}}, "sets itself", id="another index"),
        pytest.param(mount(), "exactly one of hostPath, directory, content, found none", id="from nowhere"),
        pytest.param(mount(hostPath="/a", content="b"), "found hostPath, content", id="from two places"),
        pytest.param(mount(content="b", readOnly=False), "all containers of the node have", id="a file of everybody's"),
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
