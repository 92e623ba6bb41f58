"""NVIDIA's specs: a MIG instance gets its parent's node and its own two, and nothing of another."""

import json

import pytest

from deviceplugin.cdi.nvidia_spec import nvidia_spec, real_cards
from deviceplugin.cdi.spec import CdiError
from deviceplugin.driver.cards import DriverCard
from tests.deviceplugin.cdi.nvidia_specs import LIBRARY, B, device, nodes, spec, split, toolkit

INSTANCE = DriverCard(index=1070, uuid="MIG-a", model="M", memory_mib=9856, minor=0, parent="GPU-a", instance=(7, 0))
OF_INSTANCE = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"]
CONTROL = ["/dev/nvidiactl", "/dev/nvidia-uvm"]


def caps(card: DriverCard) -> list[str]:
    return OF_INSTANCE[1:] if card.parent else []


def test_an_instance_comes_with_exactly_its_parents_node_and_its_own_two() -> None:
    found = spec(split("MIG-b", 0, 75, 76), split("MIG-a", 0, 66, 67), device("GPU-b", 1))
    assert nodes(real_cards([INSTANCE], [found], caps=caps)) == [*CONTROL, *OF_INSTANCE]
    assert nodes(real_cards([B], [found], caps=caps)) == [*CONTROL, "/dev/nvidia1"]


@pytest.mark.parametrize(
    "stale",
    [
        pytest.param(split("MIG-a", 0, 75, 76), id="nodes of another instance"),
        pytest.param(split("MIG-a", 0, 66), id="too few"),
        pytest.param(split("MIG-a", 0, 66, 67, 76), id="too many"),
        pytest.param(split("MIG-a", 1, 66, 67), id="another card"),
    ],
)
def test_a_spec_that_names_an_instance_with_other_nodes_is_not_used(stale: dict[str, object]) -> None:
    with pytest.raises(CdiError, match=r"nvidia\.yaml is out of date: MIG-a now has other device nodes"):
        real_cards([INSTANCE], [spec(stale)], caps=caps)


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([split("0:0", 0, 66, 67), split("0:1", 0, 75, 76)], id="named by index"),
        pytest.param([split("MIG-old", 0, 12, 13)], id="written before the instance"),
        pytest.param([device("GPU-a", 0)], id="written before the card was split"),
    ],
)
def test_a_spec_that_does_not_name_the_instance_gives_what_all_need(others: list[dict[str, object]]) -> None:
    found = real_cards([INSTANCE], [spec(*others)], caps=caps)
    assert sorted(nodes(found)) == sorted([*CONTROL, *OF_INSTANCE])


def test_an_instance_whose_nodes_are_unknown_is_not_injected() -> None:
    with pytest.raises(CdiError, match=r"card MIG-a cannot be .*: /proc/driver/nvidia-caps/mig-minors does not list"):
        real_cards([INSTANCE], [spec(split("MIG-a", 0, 66, 67))])


def test_nodes_of_an_instance_are_where_the_driver_has_its_parents() -> None:
    node = {"path": "/dev/nvidia0", "hostPath": "/run/nvidia/driver/dev/nvidia0", "permissions": "rw"}
    found = real_cards([INSTANCE], [spec({"name": "all", "containerEdits": {"deviceNodes": [node]}})], caps=caps)
    assert found.wire()["deviceNodes"][2:] == [  # type: ignore[index]
        {"path": path, "hostPath": f"/run/nvidia/driver{path}", "permissions": "rw"} for path in OF_INSTANCE
    ]


def test_a_spec_that_gives_every_container_an_instance_is_not_used_for_another() -> None:
    edits = {"mounts": [LIBRARY], "deviceNodes": [{"path": "/dev/nvidia-caps/nvidia-cap75"}]}
    for own in (split("MIG-a", 0, 66, 67), split("0:0", 0, 66, 67)):
        found = nvidia_spec("f", json.dumps(toolkit(own) | {"containerEdits": edits}))
        assert found is not None
        with pytest.raises(CdiError, match=r"f (also )?injects a(nother)? card into every container"):
            real_cards([INSTANCE], [found], caps=caps)


def test_an_instance_whose_nodes_the_host_lacks_is_not_injected() -> None:
    found = spec(split("MIG-a", 0, 66, 67))
    with pytest.raises(CdiError, match="names device nodes that do not exist: /dev/nvidia-caps/nvidia-cap67"):
        real_cards([INSTANCE], [found], caps=caps, lacks=lambda path: path.endswith("cap67"))
