"""A simulated card comes into a container as a file."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from config.protocol.inventory import Card
from deviceplugin.cdi.nvidia_edits import SimulatedEdits
from deviceplugin.cdi.spec import CdiError

CARDS = [
    Card(index=0, uuid="GPU-a", model="M", memory_mib=1024, units=1),
    Card(index=1, uuid="GPU-b", model="M", memory_mib=2048, units=2),
    *(Card(index=2, uuid=uuid, model="M", memory_mib=1, units=1) for uuid in ("../evil", "..", "a\0b")),
]


def test_each_card_is_a_read_only_mount_of_its_description(tmp_path: Path) -> None:
    made = SimulatedEdits(tmp_path / "cards", lambda: CARDS).edits(["GPU-a", "GPU-b"])
    mounts = made.lists["mounts"]
    assert [mount["containerPath"] for mount in mounts] == [  # type: ignore[index]
        "/run/gpushare/cards/GPU-a",
        "/run/gpushare/cards/GPU-b",
    ]
    assert all("ro" in mount["options"] for mount in mounts)  # type: ignore[index]
    about = json.loads((tmp_path / "cards" / "GPU-b").read_text())
    assert about == {"uuid": "GPU-b", "index": 1, "model": "M", "memoryMiB": 2048}


def test_a_description_that_has_changed_is_written_again(tmp_path: Path) -> None:
    cards = [Card(index=0, uuid="GPU-a", model="M", memory_mib=1024, units=1)]
    made = SimulatedEdits(tmp_path, lambda: cards)
    made.edits(["GPU-a"])
    number = (tmp_path / "GPU-a").stat().st_ino
    made.edits(["GPU-a"])
    assert (tmp_path / "GPU-a").stat().st_ino == number
    cards[0] = Card(index=5, uuid="GPU-a", model="M", memory_mib=1024, units=1)
    made.edits(["GPU-a"])
    assert json.loads((tmp_path / "GPU-a").read_text())["index"] == 5


@pytest.mark.usefixtures("slow_writes")
def test_containers_that_start_at_once_both_get_the_description(tmp_path: Path) -> None:
    simulated = SimulatedEdits(tmp_path, lambda: CARDS)
    with ThreadPoolExecutor() as threads:
        for starting in [threads.submit(simulated.edits, ["GPU-a"]) for _ in range(2)]:
            starting.result()
    assert json.loads((tmp_path / "GPU-a").read_text())["index"] == 0


def test_the_files_of_cards_with_similar_names_are_left_alone(tmp_path: Path) -> None:
    cards = [
        Card(index=0, uuid="GPU.tmp", model="M", memory_mib=1024, units=1),
        Card(index=1, uuid="GPU.1", model="M", memory_mib=1024, units=1),
    ]
    made = SimulatedEdits(tmp_path, lambda: cards)
    for uuid in ("GPU.tmp", "GPU.1"):
        made.edits([uuid])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["GPU.1", "GPU.tmp"]
    assert json.loads((tmp_path / "GPU.tmp").read_text())["uuid"] == "GPU.tmp"


@pytest.mark.parametrize(
    ("uuid", "message"),
    [
        ("GPU-z", "no simulated card GPU-z"),
        ("../evil", "with no slash"),
        ("..", "no dot first"),
        ("a\0b", "cannot be a file"),
    ],
)
def test_an_unknown_card_or_a_bad_file_name_is_refused(tmp_path: Path, uuid: str, message: str) -> None:
    with pytest.raises(CdiError, match=message):
        SimulatedEdits(tmp_path / "cards", lambda: CARDS).edits([uuid])
    assert not (tmp_path / "evil").exists()
