"""The cards as last announced, kept over restarts."""

from pathlib import Path

from config.protocol import inventory
from config.protocol.inventory import Inventory
from deviceplugin.driver.cards import DriverCard
from deviceplugin.health.record import LastKnown, LastKnownFile

CARDS = (
    inventory.Card(
        index=0, uuid="GPU-a", model="A100", memory_mib=81559, units=79, numa=0, pci="0000:07:00.0", links={"1": "NV12"}
    ),
    inventory.Card(index=1, uuid="GPU-b", model="A100", memory_mib=81559, units=0, reason="mig"),
)
TEXT = inventory.encode(Inventory(1024, "580.1", CARDS))


def test_what_was_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    LastKnownFile(tmp_path, "boot-1").save(TEXT)
    assert LastKnownFile(tmp_path, "boot-1").load() == LastKnown(
        (
            DriverCard(
                index=0, uuid="GPU-a", model="A100", memory_mib=81559, pci="0000:07:00.0", numa=0, links={"1": "NV12"}
            ),
            DriverCard(index=1, uuid="GPU-b", model="A100", memory_mib=81559, mig=True),
        ),
        same_boot=True,
    )


def test_another_boot_is_noticed(tmp_path: Path) -> None:
    LastKnownFile(tmp_path, "boot-1").save(TEXT)
    known = LastKnownFile(tmp_path, "boot-2").load()
    assert (len(known.cards), known.same_boot) == (2, False)


def test_without_a_file_nothing_is_known_and_there_is_no_problem(tmp_path: Path) -> None:
    assert LastKnownFile(tmp_path, "boot-1").load() == LastKnown()


def test_a_file_that_cannot_be_read_is_reported_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "inventory.json").write_text('{"bootId":')
    file = LastKnownFile(tmp_path, "boot-1")
    assert "inventory.json cannot be read" in file.load().problem
    file.save(TEXT)
    assert file.load().problem == ""


def test_the_same_inventory_is_not_written_again(tmp_path: Path) -> None:
    file = LastKnownFile(tmp_path, "boot-1")
    file.save(TEXT)
    (tmp_path / "inventory.json").unlink()
    file.save(TEXT)
    assert not (tmp_path / "inventory.json").exists()
