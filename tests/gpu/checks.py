"""The checks of `make test-gpu`: each returns what it found, or raises CheckFailed, or CheckSkipped."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from deviceplugin.doctor.checks import examined_driver
from deviceplugin.doctor.examine import ask_driver
from deviceplugin.doctor.facts import Facts
from deviceplugin.doctor.facts import Verdict as Found
from deviceplugin.driver import calls
from deviceplugin.driver.cards import CardReading, DriverCard, SourceFailed
from deviceplugin.driver.process import DriverProcess
from deviceplugin.driver.supervisor import SupervisedDriver
from tests.gpu.machine import ProgramFailed, cuda_program, driver, memory_limits

ALLOCATED_MIB: Final = 256
_SEEN_WITHIN_S: Final = 15.0
_LOOK_S: Final = 0.5


class CheckFailed(Exception):
    """A check found something else than it expected."""


class CheckSkipped(Exception):
    """Why the check cannot run here."""


@dataclass(slots=True)
class Rig:
    """The driver that the checks share. cards: as described, without those that are split."""

    driver: SupervisedDriver
    cards: tuple[DriverCard, ...] = ()

    async def reading(self, card: DriverCard) -> CardReading:
        """Raises CheckFailed."""
        answer = (await self.driver.readings([card.uuid]))[card.uuid]
        if isinstance(answer, SourceFailed):
            raise CheckFailed(str(answer))
        return answer

    async def readings(self) -> dict[int, CardReading]:
        """By the card's index. Raises CheckFailed."""
        return {card.index: await self.reading(card) for card in self.cards}


async def cards(rig: Rig) -> str:
    """The driver names its cards; without one, nothing can be checked."""
    try:
        found = await rig.driver.cards()
    except SourceFailed as error:
        raise CheckFailed(str(error)) from error
    rig.cards = tuple(card for card in found.cards if not card.mig)
    if not found.cards:
        raise CheckFailed("the driver names no card")
    return "; ".join(map(_card, found.cards))


async def readings(rig: Rig) -> str:
    """Every card answers."""
    return "; ".join(f"card {index}: {_reading(one)}" for index, one in (await rig.readings()).items())


async def optional_facts(rig: Rig) -> str:
    """The driver tells every fact that it supports."""
    read = await rig.readings()
    absent = {card.index: (*card.absent, *read[card.index].absent) for card in rig.cards}
    if any(absent.values()):
        raise CheckFailed("; ".join(f"card {index}: {', '.join(facts)}" for index, facts in absent.items() if facts))
    return "none fails"


async def compute_mode(rig: Rig) -> str:
    """Programs may share every card."""
    modes = {index: one.compute_mode or "DEFAULT" for index, one in (await rig.readings()).items()}
    return ", ".join(f"card {index}: {mode}" for index, mode in modes.items())


async def events(rig: Rig) -> str:
    """The driver lets the plugin wait for a card's errors."""
    worker = await DriverProcess.start()
    try:
        await worker.ask(calls.OPEN)
        found = {}
        for card in rig.cards:
            await worker.ask(calls.describe(card.index))
            found[card.index] = await worker.ask(calls.wait(card.uuid, 0.2))
    except SourceFailed as error:
        raise CheckFailed(str(error)) from error
    finally:
        worker.kill()
        await worker.ended(2.0)
    if None in found.values():
        raise CheckSkipped("the driver reports no errors of these cards")
    return f"{sum(len(xids or ()) for xids in found.values())} errors in {0.2 * len(found):.1f} s"


async def limits(rig: Rig) -> str:
    """The memory limits of the driver can be read, where it has them."""
    try:
        found = [f"card {card.index}: {await asyncio.to_thread(memory_limits, card.uuid)}" for card in rig.cards]
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported) as error:
        raise CheckSkipped(f"this driver has no memory limits: {error}") from error
    except pynvml.NVMLError as error:
        raise CheckFailed(str(error)) from error
    return "; ".join(found)


async def doctor(rig: Rig) -> str:
    """The doctor's checks of the driver, CUDA among them."""
    del rig
    asked = await ask_driver(driver(), trying=True)
    facts = Facts(
        node_name="test-gpu",
        mode="auto",
        simulated=False,
        driver=asked.found.driver,
        driver_problem=asked.problem,
        cards=asked.found.cards,
        cuda=asked.cuda,
        readings=asked.readings,
    )
    findings = examined_driver(facts).findings
    said = "; ".join(f"{one.check} {one.verdict}: {one.found}" for one in findings)
    if any(one.verdict in {Found.FAILED, Found.UNKNOWN} for one in findings):
        raise CheckFailed(said)
    return said


async def memory_use(rig: Rig) -> str:
    """NVML shows the memory of a CUDA program, and that it is free again when the program has ended."""
    if not rig.cards:
        raise CheckSkipped("no card is whole")
    card = rig.cards[0]
    before_mib = (await rig.reading(card)).used_mib
    async with cuda_program(card.uuid) as program:
        try:
            await program.step("start")
            context_mib = (await rig.reading(card)).used_mib
            await program.step(f"allocate {ALLOCATED_MIB}")
            grown = await _until(rig, card, lambda one: one.used_mib >= context_mib + ALLOCATED_MIB)
            await program.step("free")
        except ProgramFailed as error:
            raise CheckFailed(f"the CUDA program: {error}") from error
        freed = await _until(rig, card, lambda one: one.used_mib < context_mib + ALLOCATED_MIB)
    ended = await _until(rig, card, lambda one: all(process.pid != program.pid for process in one.processes))
    listed = next((process.used_mib for process in grown.processes if process.pid == program.pid), None)
    whose = "not listed by this PID: another PID namespace?" if listed is None else f"{listed} MiB of it listed"
    return (
        f"used {before_mib} MiB before, {context_mib} with a context, {grown.used_mib} with {ALLOCATED_MIB} MiB "
        f"allocated ({whose}), {freed.used_mib} freed, {ended.used_mib} after its end"
    )


async def _until(rig: Rig, card: DriverCard, holds: Callable[[CardReading], bool]) -> CardReading:
    """The first reading of which this holds. Raises CheckFailed."""
    reading = await rig.reading(card)
    for _ in range(round(_SEEN_WITHIN_S / _LOOK_S)):
        if holds(reading):
            return reading
        await asyncio.sleep(_LOOK_S)
        reading = await rig.reading(card)
    raise CheckFailed(f"NVML still shows {_reading(reading)} after {_SEEN_WITHIN_S:g} s")


def _card(card: DriverCard) -> str:
    facts = (
        f"{card.memory_mib} MiB, /dev/nvidia{card.minor}, PCI {card.pci}, NUMA {card.numa}, links {dict(card.links)}"
    )
    return f"card {card.index}: {card.model}, {card.uuid}, {'split (MIG)' if card.mig else facts}"


def _reading(one: CardReading) -> str:
    return (
        f"{one.used_mib} MiB used, {one.utilisation} %, {one.temperature_c} °C, {one.power_w} W, ECC "
        f"{one.uncorrected_ecc}, remap {one.remap_pending}, recovery {one.recovery or 'none'}, fabric "
        f"{one.fabric or 'ready or none'}, persistence {'on' if one.persistent else 'off'}"
    )


Check = Callable[[Rig], Awaitable[str]]
# `cards` comes first: without one, the others are skipped.
OTHERS: Final[dict[str, Check]] = {
    "readings": readings,
    "optional facts": optional_facts,
    "compute mode": compute_mode,
    "events": events,
    "memory limits": limits,
    "doctor": doctor,
    "memory of a CUDA program": memory_use,
}
