"""The environment of a container: the names and values of docs/protocol.md, "Container environment"."""

import re

import pytest

from deviceplugin.allocation.environment import container_environment, replay_objection
from deviceplugin.allocation.pods import Share

ONE = (Share("GPU-b", 1, 3, 15),)
TWO = (Share("GPU-a", 0, 2, 15), Share("GPU-c", 2, 2, 7))
COMMON = {"ALIYUN_COM_GPU_MEM_POD": "3", "ALIYUN_COM_GPU_MEM_CONTAINER": "3", "ALIYUN_COM_GPU_MEM_DEV": "15"}


def test_one_card_without_cdi() -> None:
    expected = {"NVIDIA_VISIBLE_DEVICES": "GPU-b", "GPUSHARE_CARD_UUIDS": "GPU-b", "ALIYUN_COM_GPU_MEM_IDX": "1"}
    assert container_environment(ONE, by_cdi=False) == expected | COMMON


def test_with_cdi_the_runtime_hook_is_told_to_add_no_card() -> None:
    expected = {"NVIDIA_VISIBLE_DEVICES": "void", "GPUSHARE_CARD_UUIDS": "GPU-b", "ALIYUN_COM_GPU_MEM_IDX": "1"}
    assert container_environment(ONE, by_cdi=True) == expected | COMMON


def test_with_two_cards_the_fraction_is_that_of_one_card() -> None:
    assert container_environment(TWO, by_cdi=False) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-c",
        "GPUSHARE_CARD_UUIDS": "GPU-a,GPU-c",
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "4",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "2",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
    }


@pytest.mark.parametrize(("label", "value"), [("true", "true"), ("false", None), ("", None)])
def test_the_nodes_label_switches_cgpu_off(label: str, value: str | None) -> None:
    found = container_environment(ONE, by_cdi=True, node_labels={"cgpu.disable.isolation": label})
    assert found.get("CGPU_DISABLE") == value


@pytest.mark.parametrize("shares", [ONE, TWO])
def test_an_answer_may_be_replayed_for_what_it_was_made_for(shares: tuple[Share, ...]) -> None:
    assert replay_objection(container_environment(shares, by_cdi=False), shares) == ""


def test_an_answer_may_be_replayed_after_the_cards_were_renumbered() -> None:
    before = container_environment(TWO, by_cdi=False)
    assert replay_objection(before, (Share("GPU-c", 0, 2, 7), Share("GPU-a", 3, 2, 15))) == ""


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        pytest.param(ONE, "GPUSHARE_CARD_UUIDS=GPU-b, but its allocation says GPU-a,GPU-c", id="other cards"),
        pytest.param(TWO[:1], "GPUSHARE_CARD_UUIDS=GPU-a,", id="a card less"),
        pytest.param((Share("GPU-a", 0, 1, 15), Share("GPU-c", 2, 1, 7)), "_CONTAINER=1, .* says 2", id="units"),
    ],
)
def test_an_answer_that_was_made_for_another_container_is_not_replayed(
    recorded: tuple[Share, ...], message: str
) -> None:
    assert re.search(message, replay_objection(container_environment(recorded, by_cdi=False), TWO))


@pytest.mark.parametrize(
    ("index", "units", "objection"),
    [
        ("1", "3", ""),
        ("0", "3", "it was allocated with ALIYUN_COM_GPU_MEM_IDX=0, but its allocation says 1"),
        ("1", "2", "it was allocated with ALIYUN_COM_GPU_MEM_CONTAINER=2, but its allocation says 3"),
        ("-1", "3", "it was allocated with ALIYUN_COM_GPU_MEM_IDX=-1, but its allocation says 1"),
    ],
)
def test_the_answer_of_the_legacy_plugin_is_replayed_for_its_card(index: str, units: str, objection: str) -> None:
    recorded = {
        "NVIDIA_VISIBLE_DEVICES": index,
        "ALIYUN_COM_GPU_MEM_IDX": index,
        "ALIYUN_COM_GPU_MEM_POD": units,
        "ALIYUN_COM_GPU_MEM_CONTAINER": units,
        "ALIYUN_COM_GPU_MEM_DEV": "15",
    }
    assert replay_objection(recorded, ONE) == objection


def test_the_answer_of_another_device_plugin_is_not_replayed() -> None:
    assert replay_objection({"NVIDIA_VISIBLE_DEVICES": "1"}, ONE).startswith(
        "it was allocated with GPUSHARE_CARD_UUIDS=nothing"
    )
