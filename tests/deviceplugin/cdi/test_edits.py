"""Container edits: how parts combine, what a device's spec is made of, and a simulated card as a file."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol.inventory import Card
from deviceplugin.cdi import spec as cdi_spec
from deviceplugin.cdi.edits import Edits, combined, device_nodes, from_wire
from deviceplugin.cdi.nvidia_edits import SimulatedEdits
from deviceplugin.cdi.spec import CdiError, container_spec, simulated_card

TEXTS = st.sampled_from(["a", "b", "c"])
EDITS = st.builds(
    Edits,
    env=st.dictionaries(TEXTS, TEXTS),
    lists=st.dictionaries(TEXTS, st.lists(TEXTS, min_size=1, unique=True)),
    objects=st.dictionaries(st.sampled_from(["x", "y"]), TEXTS),
    version=st.sampled_from([(0, 5, 0), (0, 7, 0), (1, 1, 0)]),
)


def test_what_two_parts_bring_is_brought_once_and_in_order() -> None:
    both = combined([device_nodes(["/dev/x", "/dev/y"]), device_nodes(["/dev/y", "/dev/z"])])
    assert both.wire() == {"deviceNodes": [{"path": "/dev/x"}, {"path": "/dev/y"}, {"path": "/dev/z"}]}


def test_the_highest_version_that_a_part_needs_is_needed() -> None:
    assert combined([Edits(), Edits(version=(0, 10, 0)), Edits(version=(0, 7, 0))]).version == (0, 10, 0)


def test_the_edits_of_a_spec_come_out_as_they_went_in() -> None:
    document = {
        "env": ["A=1", "B=x=y"],
        "deviceNodes": [{"path": "/dev/x", "major": 195}],
        "hooks": [{"hookName": "createContainer", "path": "/hook", "args": ["hook", "update-ldcache"]}],
        "additionalGids": [44],
        "intelRdt": {"closID": "c"},
        "netDevices": [{"hostInterfaceName": "ib0"}],
    }
    edits = from_wire(document, (1, 1, 0))
    assert edits.wire() == document
    assert edits.version == (1, 1, 0)


@given(st.lists(EDITS), st.lists(EDITS))
def test_it_makes_no_difference_which_parts_are_combined_first(some: list[Edits], others: list[Edits]) -> None:
    assert combined([combined(some), combined(others)]) == combined([*some, *others])


class Compared(dict[str, str]):
    """Counts how often it is compared with another."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    __hash__ = None


def test_ten_thousand_mounts_are_not_each_compared_with_all_others() -> None:
    mounts = [Compared(hostPath=f"/lib/{number}") for number in range(10_000)]

    assert (
        len(combined([Edits(lists={"mounts": mounts}), Edits(lists={"mounts": mounts[:10]})]).lists["mounts"]) == 10_000
    )
    assert Compared.times < 100_000


def test_device_names_of_ours_are_found_among_others() -> None:
    ours, others = "0123456789abcdef", ("nvidia.com/gpu=0", "gpushare/handle=", "gpushare/handle=0123456789ABCDEF", "")
    assert cdi_spec.device_names([cdi_spec.qualified(ours), *others]) == {ours}


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


CARDS = [
    Card(index=0, uuid="GPU-a", model="M", memory_mib=1024, units=1),
    Card(index=1, uuid="GPU-b", model="M", memory_mib=2048, units=2),
    *(Card(index=2, uuid=uuid, model="M", memory_mib=1, units=1) for uuid in ("../evil", "..", "a\0b")),
]


@dataclass
class Announced:
    cards: Sequence[Card]


def test_each_card_is_a_read_only_mount_of_its_description(tmp_path: Path) -> None:
    made = SimulatedEdits(tmp_path / "cards", Announced(CARDS)).edits(["GPU-a", "GPU-b"])
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
    made = SimulatedEdits(tmp_path, Announced(cards))
    made.edits(["GPU-a"])
    number = (tmp_path / "GPU-a").stat().st_ino
    made.edits(["GPU-a"])
    assert (tmp_path / "GPU-a").stat().st_ino == number
    cards[0] = Card(index=5, uuid="GPU-a", model="M", memory_mib=1024, units=1)
    made.edits(["GPU-a"])
    assert json.loads((tmp_path / "GPU-a").read_text())["index"] == 5


@pytest.mark.usefixtures("slow_writes")
def test_containers_that_start_at_once_both_get_the_description(tmp_path: Path) -> None:
    simulated = SimulatedEdits(tmp_path, Announced(CARDS))
    with ThreadPoolExecutor() as threads:
        for starting in [threads.submit(simulated.edits, ["GPU-a"]) for _ in range(2)]:
            starting.result()
    assert json.loads((tmp_path / "GPU-a").read_text())["index"] == 0


@pytest.mark.parametrize(
    ("uuid", "message"),
    [
        ("GPU-z", "no simulated card GPU-z"),
        ("../evil", "expected no slash"),
        ("..", "no leading dot"),
        ("a\0b", "cannot be a file name"),
    ],
)
def test_an_unknown_card_or_a_bad_file_name_is_refused(tmp_path: Path, uuid: str, message: str) -> None:
    with pytest.raises(CdiError, match=message):
        SimulatedEdits(tmp_path / "cards", Announced(CARDS)).edits([uuid])
    assert not (tmp_path / "evil").exists()
