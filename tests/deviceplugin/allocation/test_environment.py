"""The environment of a container: the names and values of docs/develop/protocol.md, "Container environment"."""

import re

import pytest

from deviceplugin.allocation.container_share import RecordedAnswer, container_environment, replay_objection
from deviceplugin.allocation.decision import Share

HANDLE = "gpushare/handle=0123456789abcdef"
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


def objection(recorded: dict[str, str], shares: tuple[Share, ...]) -> str:
    return replay_objection(RecordedAnswer(recorded), shares)


@pytest.mark.parametrize("shares", [ONE, TWO])
def test_an_answer_may_be_replayed_for_what_it_was_made_for(shares: tuple[Share, ...]) -> None:
    assert objection(container_environment(shares, by_cdi=False), shares) == ""


def test_an_answer_may_be_replayed_after_the_cards_were_renumbered() -> None:
    before = container_environment(TWO, by_cdi=False)
    assert objection(before, (Share("GPU-c", 0, 2, 7), Share("GPU-a", 3, 2, 15))) == ""


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
    assert re.search(message, objection(container_environment(recorded, by_cdi=False), TWO))


LEGACY = {
    "NVIDIA_VISIBLE_DEVICES": "1",
    "ALIYUN_COM_GPU_MEM_IDX": "1",
    "ALIYUN_COM_GPU_MEM_POD": "3",
    "ALIYUN_COM_GPU_MEM_CONTAINER": "3",
    "ALIYUN_COM_GPU_MEM_DEV": "15",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({}, "", id="the same"),
        pytest.param({"NVIDIA_VISIBLE_DEVICES": "GPU-b"}, "", id="by UUID"),
        pytest.param(
            {"ALIYUN_COM_GPU_MEM_IDX": "0", "NVIDIA_VISIBLE_DEVICES": "0"},
            "it was allocated with ALIYUN_COM_GPU_MEM_IDX=0, but its allocation says 1",
            id="renumbered since",
        ),
        pytest.param(
            {"NVIDIA_VISIBLE_DEVICES": "0"},
            "it was allocated with NVIDIA_VISIBLE_DEVICES=0, but its allocation says 1",
            id="two minds",
        ),
        pytest.param(
            {"ALIYUN_COM_GPU_MEM_CONTAINER": "2"},
            "it was allocated with ALIYUN_COM_GPU_MEM_CONTAINER=2, but its allocation says 3",
            id="other units",
        ),
        pytest.param(
            {"ALIYUN_COM_GPU_MEM_IDX": "-1", "NVIDIA_VISIBLE_DEVICES": "no-gpu-has-3GiB-to-run"},
            "it was allocated with ALIYUN_COM_GPU_MEM_IDX=-1, but its allocation says 1",
            id="its failure",
        ),
    ],
)
def test_the_answer_of_the_legacy_plugin_is_replayed_for_its_card(changes: dict[str, str], message: str) -> None:
    assert objection(LEGACY | changes, ONE) == message


def test_the_answer_of_another_device_plugin_is_not_replayed() -> None:
    assert objection({"NVIDIA_VISIBLE_DEVICES": "1"}, ONE).startswith(
        "it was allocated with GPUSHARE_CARD_UUIDS=nothing"
    )


def test_a_variable_of_the_runtime_that_names_another_card_is_not_replayed() -> None:
    ours = container_environment(ONE, by_cdi=False) | {"NVIDIA_VISIBLE_DEVICES": "all"}
    assert objection(ours, ONE) == "it was allocated with NVIDIA_VISIBLE_DEVICES=all, but its allocation says GPU-b"


def test_our_cdi_device_may_be_replayed_and_no_other() -> None:
    assert replay_objection(RecordedAnswer({}, {HANDLE}), ONE) == ""
    other = "nvidia.com/gpu=0"
    assert replay_objection(RecordedAnswer({}, {other}), ONE) == f"it was allocated without a card ({other})"
    assert replay_objection(RecordedAnswer({}), ONE) == "it was allocated without a card (empty response)"
