"""Cards that come after the driver was opened."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deviceplugin.backends import attached_cards
from deviceplugin.driver.calls import Worker
from deviceplugin.driver.processes import DriverLimits
from deviceplugin.driver.supervisor import SupervisedDriver
from tests.support.nvidia import libraries
from tests.support.nvidia.sessions import threads
from tests.support.nvidia.world import VARIABLE, World, card, pci_of, uuid_of


@pytest.fixture
def world(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """One card."""
    made = World(tmp_path / "world", [card(0)])
    made.write()
    monkeypatch.setenv(VARIABLE, str(made.path))
    with libraries.pynvml_with(library):
        yield made


def test_the_kernel_shows_the_cards_by_pci_address(tmp_path: Path) -> None:
    (tmp_path / pci_of(0)).mkdir()
    assert attached_cards(tmp_path) == {pci_of(0)}
    assert attached_cards(tmp_path / "hidden") == frozenset()


@dataclass
class Starts:
    """Sessions that were started. attached: as the kernel shows it."""

    count: int = 0
    attached: frozenset[str] = field(default_factory=lambda: frozenset({pci_of(0)}))

    async def start(self) -> Worker:
        self.count += 1
        return await threads()

    def driver(self, recount_s: float) -> SupervisedDriver:
        return SupervisedDriver(self.start, DriverLimits(recount_s=recount_s), attached=lambda: self.attached)


async def found(driver: SupervisedDriver) -> list[str]:
    return [card.uuid for card in (await driver.cards()).cards]


async def test_a_card_that_comes_is_found_at_the_next_count(world: World) -> None:
    driver = Starts().driver(recount_s=0.0)
    assert await found(driver) == [uuid_of(0)]
    world.cards.append(card(1))
    world.write()
    assert await found(driver) == [uuid_of(0), uuid_of(1)]
    await driver.close()


async def test_a_card_that_the_kernel_shows_is_looked_for_at_once(world: World) -> None:
    starts = Starts()
    driver = starts.driver(recount_s=3600.0)
    assert await found(driver) == [uuid_of(0)]
    world.cards.append(card(1))
    world.write()
    starts.attached |= {pci_of(1)}
    assert driver.grown()
    assert await found(driver) == [uuid_of(0), uuid_of(1)]
    assert (driver.grown(), driver.problems()) == (False, ())
    await driver.close()


@pytest.mark.usefixtures("world")
async def test_a_card_that_this_container_may_not_use_is_a_problem_with_its_remedy() -> None:
    starts = Starts()
    driver = starts.driver(recount_s=3600.0)
    await found(driver)
    starts.attached |= {pci_of(1)}
    assert await found(driver) == [uuid_of(0)]
    (problem,) = driver.problems()
    assert (pci_of(1) in problem, "delete the plugin's pod" in problem, driver.grown()) == (True, True, False)
    await driver.close()


@pytest.mark.usefixtures("world")
async def test_the_cards_are_counted_seldom_and_the_process_stays_while_there_are_no_more() -> None:
    starts = Starts()
    driver = starts.driver(recount_s=3600.0)
    await found(driver)
    await found(driver)
    assert starts.count == 1
    await driver.close()
    often = Starts()
    driver = often.driver(recount_s=0.0)
    await found(driver)
    await found(driver)
    assert often.count == 2
    await driver.close()
