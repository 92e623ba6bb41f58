"""A card's compute mode is set for MPS, and given back as it was, by another process too."""

from pathlib import Path

import pytest

from deviceplugin.driver.cards import EXCLUSIVE_PROCESS, CardReading, NoAnswer
from deviceplugin.isolation.compute_modes import FILE, ComputeModes


class Cards:
    """A driver; readings are of this moment."""

    def __init__(self, **modes: str) -> None:
        self.modes = modes
        self.fails = False

    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        if self.fails:
            message = "no permission"
            raise NoAnswer(message)
        self.modes[uuid] = mode

    @property
    def readings(self) -> dict[str, CardReading]:
        return {uuid: CardReading(used_mib=0, compute_mode=mode) for uuid, mode in self.modes.items()}

    def kept_in(self, folder: Path) -> ComputeModes:
        return ComputeModes(folder, self, self)


@pytest.mark.parametrize("before", ["", "PROHIBITED"])
async def test_the_mode_of_before_comes_back(tmp_path: Path, before: str) -> None:
    cards = Cards(a=before)
    assert await cards.kept_in(tmp_path).exclusive("a") == ""
    assert cards.modes == {"a": EXCLUSIVE_PROCESS}
    # Another process, after this one was killed.
    assert await cards.kept_in(tmp_path).restore("a") == ""
    assert (cards.modes, cards.kept_in(tmp_path).before) == ({"a": before}, {})


async def test_what_was_exclusive_before_is_not_ours_to_give_back(tmp_path: Path) -> None:
    cards = Cards(a=EXCLUSIVE_PROCESS)
    modes = cards.kept_in(tmp_path)
    assert (await modes.exclusive("a"), await modes.restore("a")) == ("", "")
    assert (cards.modes, modes.before) == ({"a": EXCLUSIVE_PROCESS}, {})


async def test_set_again_after_the_driver_has_forgotten_it(tmp_path: Path) -> None:
    cards = Cards(a="")
    modes = cards.kept_in(tmp_path)
    await modes.exclusive("a")
    cards.modes["a"] = ""
    assert await modes.exclusive("a") == ""
    assert (cards.modes, modes.before) == ({"a": EXCLUSIVE_PROCESS}, {"a": ""})


async def test_a_card_that_has_not_been_read_is_left_alone(tmp_path: Path) -> None:
    cards = Cards()
    assert "has not reported" in await cards.kept_in(tmp_path).exclusive("a")
    assert not cards.modes


async def test_what_the_driver_refuses_is_said_and_tried_again(tmp_path: Path) -> None:
    cards = Cards(a="")
    cards.fails = True
    modes = cards.kept_in(tmp_path)
    assert await modes.exclusive("a") == "its compute mode cannot be set: no permission"
    assert await modes.restore("a") == "card a: its compute mode cannot be restored: no permission"
    cards.fails = False
    assert await modes.exclusive("a") == ""


@pytest.mark.parametrize("text", ["{", '{"version":1,"x":' + "[" * 100_000], ids=["cut off", "nested too deep"])
async def test_a_damaged_record_starts_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert Cards(a="").kept_in(tmp_path).before == {}
