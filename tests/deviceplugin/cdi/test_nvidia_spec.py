"""NVIDIA's specs: a card is taken by its UUID, with the driver's libraries, and with no other card."""

import json
import re
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.cdi.nvidia_spec import KINDS, NvidiaSpec, nvidia_spec, real_cards, uncovered
from deviceplugin.cdi.spec import CdiError
from deviceplugin.driver.cards import DriverCard
from tests.deviceplugin.cdi.nvidia_specs import HOOK, LIBRARY, A, B, device, for_all, nodes, spec, toolkit


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
        pytest.param(
            '{"kind":"nvidia.com/gpu","cdiVersion":"0.5.0","containerEdits":{"mounts":["x"]}}',
            "expected an object, found 'x'",
            id="no mount",
        ),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(CdiError, match=message):
        nvidia_spec("f", text)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_nvidias_is_read(kind: str) -> None:
    found = nvidia_spec("f", json.dumps(toolkit(device("GPU-a", 0)) | {"kind": kind}))
    assert found is not None
    assert nodes(real_cards([A], [found])) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]


def test_a_card_comes_with_its_own_edits_and_those_that_all_need() -> None:
    found = real_cards([B], [spec(device("GPU-a", 0), device("GPU-b", 1), device("all", 0, 1))])
    assert nodes(found) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"]
    assert (found.wire()["mounts"], found.wire()["hooks"]) == ([LIBRARY], [HOOK])


def test_of_a_spec_that_names_no_card_what_all_devices_need_comes_with_the_cards_own_node() -> None:
    """Toolkits that name cards by index write such specs."""
    found = real_cards([A], [spec(device("0", 1), device("1", 0))])
    assert nodes(found) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]
    assert found.wire()["mounts"] == [LIBRARY]


def management(*names: str, folder: str = "/run/nvidia/driver") -> NvidiaSpec:
    """What `nvidia-ctk cdi generate --mode=management` writes: every node of the host in its only device."""
    listed = [
        {"path": f"/dev/{name}", "hostPath": f"{folder}/dev/{name}", "major": 195, "minor": 3, "permissions": "rwm"}
        for name in names
    ]
    whole = {"containerEdits": {"mounts": [LIBRARY]}, "kind": "management.nvidia.com/gpu"}
    found = nvidia_spec(
        "m.yaml", json.dumps(toolkit({"name": "all", "containerEdits": {"deviceNodes": listed}}) | whole)
    )
    assert found is not None
    return found


def test_of_a_management_spec_the_card_and_the_control_nodes_come_as_they_stand_without_their_numbers() -> None:
    """The runtime takes the numbers from the host when the container starts: nvidia-uvm's are others after a reboot."""
    others = ("nvidia1", "nvidia-caps/nvidia-cap1", "nvidia-nvswitch0")
    found = real_cards([A], [management("nvidia-uvm", *others, "nvidia0", "nvidiactl", "nvidia-uvm-tools")])

    assert found.wire()["deviceNodes"] == [
        {"path": f"/dev/{name}", "hostPath": f"/run/nvidia/driver/dev/{name}", "permissions": "rwm"}
        for name in ("nvidia-uvm", "nvidiactl", "nvidia-uvm-tools", "nvidia0")
    ]
    assert found.wire()["mounts"] == [LIBRARY]


@pytest.mark.parametrize(
    ("there", "message"),
    [
        pytest.param(("nvidia0", "nvidiactl"), "does not inject /dev/nvidia-uvm: run nvidia-modprobe", id="no uvm"),
        pytest.param(("nvidia0", "nvidia-uvm"), "does not inject /dev/nvidiactl", id="no nvidiactl"),
        pytest.param(
            ("nvidia1", "nvidiactl", "nvidia-uvm"), "no device node for the card; expected /dev/nvidia0", id="no card"
        ),
    ],
)
def test_a_spec_whose_containers_could_not_start_cuda_is_not_used(there: tuple[str, ...], message: str) -> None:
    with pytest.raises(CdiError, match=message):
        real_cards([A], [management(*there)])
    whole = management("nvidia0", "nvidiactl", "nvidia-uvm")
    assert nodes(real_cards([A], [whole, management(*there)]))[-1] == "/dev/nvidia0"


def test_a_spec_that_names_a_node_that_the_host_does_not_have_is_not_used_and_another_is() -> None:
    """A spec of before a reboot, after which the node of nvidia-uvm is missing."""
    there = {"/dev/nvidiactl", "/dev/nvidia0", "/host/dev/nvidiactl", "/host/dev/nvidia-uvm", "/host/dev/nvidia0"}
    stale = spec(device("GPU-a", 0), source="/var/run/cdi/nvidia.yaml")
    good = management("nvidiactl", "nvidia-uvm", "nvidia0", folder="/host")
    message = r"/var/run/cdi/nvidia\.yaml names device nodes that do not exist: /dev/nvidia-uvm; run systemctl restart"
    with pytest.raises(CdiError, match=message):
        real_cards([A], [stale], lacks=lambda path: path not in there)
    found = real_cards([A], [good, stale], lacks=lambda path: path not in there)
    assert "/host/dev/nvidia0" in str(found.wire())


def test_the_groups_and_modes_of_the_nodes_of_a_management_spec_come_along() -> None:
    """A node that is open to one group alone is of no use to a program that is not in it."""
    names = ("nvidiactl", "nvidia-uvm", "nvidia0")
    listed = [{"path": f"/dev/{name}", "gid": 44, "fileMode": 0o660, "major": 195, "minor": 1} for name in names]
    edits = {"deviceNodes": listed, "additionalGids": [44]}
    other: dict[str, object] = {"name": "other", "containerEdits": {"additionalGids": [45]}}
    found = real_cards([A], [spec({"name": "all", "containerEdits": edits}, other, version="0.7.0", bare=True)])
    assert found.wire()["additionalGids"] == [44]
    assert found.wire()["deviceNodes"] == [{"path": f"/dev/{name}", "gid": 44, "fileMode": 0o660} for name in names]


def test_every_spec_that_was_looked_at_says_why_it_is_not_used() -> None:
    specs = [
        spec(device("GPU-a", 1), source="/etc/cdi/a.yaml"),
        management("nvidia1", folder=""),
        for_all(1, device("GPU-a", 0), source="/etc/cdi/c.yaml"),
    ]
    reasons = uncovered([A], specs)
    for told in ("a.yaml is out of date", "m.yaml has no device node for the card", "c.yaml also injects another card"):
        assert told in reasons["GPU-a"]
    assert reasons["GPU-a"].count("; run ") == 1


def test_the_reasons_of_many_specs_are_counted() -> None:
    specs = [spec(device("GPU-a", 1), source=f"/etc/cdi/{number}.yaml") for number in range(9)]
    assert "and 4 more; run " in uncovered([A], specs)["GPU-a"]


def test_a_card_that_a_spec_brings_in_is_covered_whatever_the_others_are() -> None:
    assert set(uncovered([A, B], [spec(device("GPU-a", 0))])) == {"GPU-b"}


def test_a_device_that_bears_another_cards_uuid_is_never_taken_whatever_its_node_is() -> None:
    other: dict[str, object] = {
        "name": "GPU-z",
        "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}], "env": ["Z=1"]},
    }
    found = real_cards([A], [spec(other)])
    assert ("Z=1" in str(found.wire()), nodes(found)[-1]) == (False, "/dev/nvidia0")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("all", "injects a card into every container without naming it", id="that names no card"),
        pytest.param("GPU-a", "also injects another card into every container", id="that names the card"),
    ],
)
def test_a_spec_that_brings_every_container_a_card_is_not_used(name: str, message: str) -> None:
    found = for_all(1, device(name, 0), source="/etc/cdi/x.yaml")
    with pytest.raises(CdiError, match=rf"/etc/cdi/x\.yaml {message}"):
        real_cards([A], [found])


def test_the_spec_of_higher_priority_is_used() -> None:
    low, high = spec(device("GPU-a", 0), version="0.7.0"), spec(device("GPU-a", 0), version="0.6.0")
    assert real_cards([A], [low, high]).version == (0, 6, 0)


def test_a_spec_that_names_the_card_comes_before_one_that_names_none() -> None:
    named, general = spec(device("GPU-a", 0), version="0.6.0"), spec(device("all", 0), version="0.7.0")
    assert real_cards([A], [named, general]).version == (0, 6, 0)


def test_a_spec_older_than_a_renumbering_never_brings_in_another_card() -> None:
    stale = spec(device("GPU-a", 1), device("GPU-b", 0), device("all", 0, 1), source="/etc/cdi/old.yaml")
    with pytest.raises(
        CdiError, match=r"/etc/cdi/old\.yaml is out of date: the card is now /dev/nvidia0; run systemctl"
    ):
        real_cards([A], [stale])
    assert nodes(real_cards([A], [spec(device("GPU-a", 0)), stale]))[-1] == "/dev/nvidia0"


@pytest.mark.parametrize(
    ("library", "driver", "message"),
    [
        pytest.param("/usr/lib/libnvidia-ml.so.580.95.05", "580.95.05", "does not inject libcuda.so", id="no CUDA"),
        pytest.param(
            "/usr/lib/libcuda.so.570.12", "580.95.05", "was written for driver 570.12; the driver is now", id="older"
        ),
        pytest.param("/usr/lib/libcuda.so.580.95.05", "580.95.05", "", id="the same"),
        pytest.param("/usr/lib/libcuda.so.1.1", "540.4.0", "", id="no driver's version"),
        pytest.param("/usr/lib/libcuda.so.570.12", "", "", id="driver not known"),
        pytest.param("/usr/lib/libcuda.so.570.12", "simulated", "", id="no version"),
    ],
)
def test_a_spec_without_this_drivers_libraries_is_not_used(library: str, driver: str, message: str) -> None:
    control = [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]
    whole = toolkit(device("GPU-a", 0))
    whole["containerEdits"] = {"mounts": [{"hostPath": library, "containerPath": library}], "deviceNodes": control}
    found = nvidia_spec("/etc/cdi/nvidia.yaml", json.dumps(whole))
    assert found is not None
    if not message:
        assert nodes(real_cards([A], [found], driver=driver))[-1] == "/dev/nvidia0"
        return
    with pytest.raises(CdiError, match=message):
        real_cards([A], [found], driver=driver)


@pytest.mark.parametrize(
    ("card", "message"), [(replace(A, minor=7), "expected /dev/nvidia7"), (replace(A, minor=None), "<n>")]
)
def test_a_card_without_a_device_node_is_refused(card: DriverCard, message: str) -> None:
    with pytest.raises(CdiError, match=message):
        real_cards([card], [spec(device("all", 0))])


def test_a_node_with_a_number_that_python_does_not_read_is_no_card() -> None:
    """It refuses texts of more than 4,300 digits."""
    beside = device("b", 1) | {"containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{'1' * 5_000}"}]}}
    assert "/dev/nvidia0" in nodes(real_cards([A], [spec(device("GPU-a", 0), beside)]))


@given(
    st.lists(st.tuples(st.sampled_from(["GPU-a", "GPU-b", "0", "1", "all"]), st.sets(st.integers(0, 2)))),
    st.none() | st.integers(0, 2),
)
def test_whatever_a_spec_says_a_container_sees_its_own_card_only(
    devices: list[tuple[str, set[int]]], shared: int | None
) -> None:
    listed = [device(name, *minors) for name, minors in devices]
    try:
        found = real_cards([A], [spec(*listed) if shared is None else for_all(shared, *listed)])
    except CdiError:
        return
    assert [path for path in nodes(found) if re.fullmatch(r"/dev/nvidia\d+", path)] == ["/dev/nvidia0"]
