"""CDI specs: what a device brings in, and by which name."""

import re

from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.cdi import spec as cdi_spec
from deviceplugin.cdi.edits import Edits, Json, combined
from deviceplugin.cdi.spec import container_spec, device_name, simulated_card


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
