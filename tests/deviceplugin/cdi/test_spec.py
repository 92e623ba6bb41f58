"""CDI specs: a device brings in exactly its container's cards, with NVIDIA's libraries where they are described."""

import json
import re
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.cdi import spec as cdi_spec
from deviceplugin.cdi.edits import Edits, Json, combined
from deviceplugin.cdi.spec import (
    CardEdits,
    CdiError,
    NvidiaSpec,
    container_spec,
    device_name,
    nvidia_spec,
    real_cards,
    simulated_card,
)
from deviceplugin.driver.cards import DriverCard

A, B = (
    DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=16384, minor=0),
    DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=16384, minor=1),
)
NODES = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm")
LIBRARY = {"hostPath": "/usr/lib/libcuda.so.580", "containerPath": "/usr/lib/libcuda.so.580", "options": ["ro", "bind"]}
HOOK = {
    "hookName": "createContainer",
    "path": "/usr/bin/nvidia-cdi-hook",
    "args": ["nvidia-cdi-hook", "update-ldcache"],
}


def device(name: str, *minors: int) -> dict[str, object]:
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{minor}"} for minor in minors]}}


def toolkit(*devices: dict[str, object], version: str = "0.5.0", **more: object) -> dict[str, object]:
    """What nvidia-ctk writes, shortened."""
    edits = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}],
        "mounts": [LIBRARY],
        "hooks": [HOOK],
    }
    return {"cdiVersion": version, "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": edits, **more}


def spec(*devices: dict[str, object], source: str = "/etc/cdi/nvidia.yaml", version: str = "0.5.0") -> NvidiaSpec:
    found = nvidia_spec(source, json.dumps(toolkit(*devices, version=version)))
    assert found is not None
    return found


def nodes(found: CardEdits) -> list[str]:
    listed = found.edits.wire()["deviceNodes"]
    assert isinstance(listed, list)
    return [node["path"] for node in listed]


def mounted(edits: Json) -> list[str]:
    listed = edits["mounts"]
    assert isinstance(listed, list)
    return [mount["containerPath"] for mount in listed]


def test_a_device_name_is_16_hexadecimal_digits_that_stand_for_the_set() -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", device_name(["a"]))
    assert device_name(["a", "b"]) == device_name(("b", "a", "b"))
    assert cdi_spec.qualified(device_name(["a"])) == f"gpushare/handle={device_name(['a'])}"


@given(st.sets(st.text("ab-1", min_size=1)), st.sets(st.text("ab-1", min_size=1)))
def test_two_sets_have_two_device_names(one: set[str], other: set[str]) -> None:
    assert (device_name(one) == device_name(other)) == (one == other)


def test_the_spec_of_a_device() -> None:
    parts = [simulated_card("GPU-a", "/host/GPU-a"), Edits(env={"GPUSHARE_CARD_UUIDS": "GPU-a"})]
    mount = {
        "hostPath": "/host/GPU-a",
        "containerPath": "/run/gpushare/cards/GPU-a",
        "options": ["ro", "nosuid", "nodev", "noexec", "bind"],
    }
    edits = {"env": ["GPUSHARE_CARD_UUIDS=GPU-a"], "mounts": [mount]}
    assert container_spec("0123456789abcdef", parts) == {
        "cdiVersion": "0.5.0",
        "kind": "gpushare/handle",
        "devices": [{"name": "0123456789abcdef", "containerEdits": edits}],
    }


def test_what_an_isolation_mechanism_adds_is_one_more_part() -> None:
    mechanism = Edits(env={"CUDA_MPS_PIPE_DIRECTORY": "/mps"}, lists={"mounts": [{"containerPath": "/mps"}]})
    made = combined([simulated_card("GPU-a", "/host"), mechanism]).wire()
    assert container_spec("0" * 16, [simulated_card("GPU-a", "/host"), mechanism])["devices"] == [
        {"name": "0" * 16, "containerEdits": made}
    ]
    assert made["env"] == ["CUDA_MPS_PIPE_DIRECTORY=/mps"]
    assert mounted(made) == ["/run/gpushare/cards/GPU-a", "/mps"]


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump, lambda d: json.dumps(d, indent="\t")])
def test_nvidias_spec_is_read_as_json_and_as_yaml(write: object) -> None:
    found = nvidia_spec("f", write(toolkit(device("GPU-a", 0), device("all", 0, 1))))  # type: ignore[operator]
    assert found is not None
    assert [(d.name, set(d.minors)) for d in found.devices] == [("GPU-a", {0}), ("all", {0, 1})]
    assert found.edits.wire()["hooks"] == [HOOK]


@pytest.mark.parametrize(
    "text", ['{"cdiVersion":"0.5.0","kind":"example.com/gpu","devices":[]}', "", "kind: gpushare/handle"]
)
def test_specs_of_other_kinds_are_ignored(text: str) -> None:
    assert nvidia_spec("f", text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "f: ", id="no YAML"),
        pytest.param("[1]", "expected an object, found '\\[1\\]'", id="a list"),
        pytest.param("kind: nvidia.com/gpu", "cdiVersion is None; expected", id="no version"),
        pytest.param(
            '{"kind":"nvidia.com/gpu","cdiVersion":"0.5.0","devices":[1]}',
            "expected an object, found '1'",
            id="no device",
        ),
        pytest.param(
            '{"kind":"nvidia.com/gpu","cdiVersion":"0.5.0","containerEdits":[]}',
            "expected an object, found '\\[\\]'",
            id="no edits",
        ),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(CdiError, match=message):
        nvidia_spec("f", text)


def test_a_card_comes_with_its_own_edits_and_those_that_all_need() -> None:
    found = real_cards([B], [spec(device("GPU-a", 0), device("GPU-b", 1), device("all", 0, 1))], NODES)
    assert found.toolkit_missing == ""
    assert nodes(found) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"]
    assert found.edits.wire()["mounts"] == [LIBRARY]
    assert found.edits.wire()["hooks"] == [HOOK]


def test_two_cards_share_what_all_need() -> None:
    found = real_cards([A, B], [spec(device("GPU-a", 0), device("GPU-b", 1))], NODES)
    assert nodes(found) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1"]
    assert found.edits.wire()["hooks"] == [HOOK]


def test_a_spec_that_names_cards_by_index_is_read_by_their_device_nodes() -> None:
    renumbered = [device("0", 1), device("1", 0), device("all", 0, 1)]
    assert nodes(real_cards([A], [spec(*renumbered)], NODES))[-1] == "/dev/nvidia0"


def test_a_driver_in_a_container_has_its_nodes_elsewhere_on_the_host() -> None:
    node = {"path": "/dev/nvidia1", "hostPath": "/run/nvidia/driver/dev/nvidia1"}
    found = real_cards([B], [spec({"name": "GPU-b", "containerEdits": {"deviceNodes": [node]}})], NODES)
    assert found.toolkit_missing == ""
    assert nodes(found)[-1] == "/dev/nvidia1"


def test_the_spec_of_higher_priority_is_used() -> None:
    low, high = spec(device("GPU-a", 0), version="0.7.0"), spec(device("GPU-a", 0), version="0.6.0")
    assert real_cards([A], [low, high], NODES).edits.version == (0, 6, 0)


def test_a_spec_older_than_a_renumbering_never_brings_in_another_card() -> None:
    stale = spec(device("GPU-a", 1), device("GPU-b", 0), device("all", 0, 1), source="/etc/cdi/old.yaml")
    found = real_cards([A], [stale], NODES)
    assert found.toolkit_missing == "/etc/cdi/old.yaml is out of date: card GPU-a is /dev/nvidia0 now"
    assert nodes(found) == ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert real_cards([A], [spec(device("GPU-a", 0)), stale], NODES).toolkit_missing == ""


def test_without_nvidias_spec_only_the_device_nodes_come_with_a_report() -> None:
    found = real_cards([A, B], [], (*NODES, "/dev/nvidia-uvm-tools"))
    expected = ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia1"]
    assert nodes(found) == expected
    assert found.toolkit_missing == "no CDI spec of kind nvidia.com/gpu names card GPU-a"


@pytest.mark.parametrize(
    ("card", "message"), [(replace(A, minor=7), "expected /dev/nvidia7"), (replace(A, minor=None), "<n>")]
)
def test_a_card_without_a_device_node_is_refused(card: DriverCard, message: str) -> None:
    with pytest.raises(CdiError, match=message):
        real_cards([card], [], NODES)


@given(st.lists(st.tuples(st.sampled_from(["GPU-a", "GPU-b", "0", "1", "all"]), st.sets(st.integers(0, 2)))))
def test_whatever_a_spec_says_a_container_sees_its_own_card_only(devices: list[tuple[str, set[int]]]) -> None:
    found = real_cards([A], [spec(*(device(name, *minors) for name, minors in devices))], NODES)
    assert [path for path in nodes(found) if re.fullmatch(r"/dev/nvidia\d+", path)] == ["/dev/nvidia0"]
