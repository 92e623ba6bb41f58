"""A unix socket that injects faults into simulated cards: one JSON object per line, one in answer.

    {"card": 0, "xid": 79}                        {"card": "GPU-…", "lost": true}        {"card": 0, "back": true}
    {"card": 0, "reset": true}                    {"card": 0, "hang": true}              {"card": 0, "hang": false}
    {"card": 0, "pid": 4242, "usedMiB": 512}      memory that the process uses; 0 if none
    {"card": 0, "reading": {"remapPending": true, "uncorrectedEcc": 1, "recovery": "reset", "temperatureC": 91}}
    {"slowS": 2.5}    {"hang": true}    {"fail": true}       the driver as a whole; {"fail": false}: healthy again
    {"die": true}                                 the process that queries the driver

The answer is {"ok": true}, or {"ok": false, "error": "…"}. An index or a UUID names a card. A line contains exactly one
of these; anything that a line about the driver leaves out becomes healthy again.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import msgspec

from deviceplugin import line_socket
from deviceplugin.driver.simulated import (
    BackFault,
    DieFault,
    DriverFault,
    Fault,
    FaultError,
    HangFault,
    LostFault,
    ReadingFault,
    ResetFault,
    SimulatedDriver,
    UseFault,
    XidFault,
)

_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class _Reading(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    utilisation: Annotated[int, msgspec.Meta(ge=0, le=100)] | msgspec.UnsetType = msgspec.UNSET
    temperature_c: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="temperatureC")
    power_w: float | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="powerW")
    remap_pending: bool | msgspec.UnsetType = msgspec.UNSET
    uncorrected_ecc: _Amount | msgspec.UnsetType = msgspec.UNSET
    recovery: Annotated[str, msgspec.Meta(pattern="^(reset|reboot|drain|drain-reset)?$")] | msgspec.UnsetType = (
        msgspec.UNSET
    )


class _Line(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    card: int | str | None = None
    xid: Annotated[int, msgspec.Meta(ge=0, le=65_535)] | None = None
    lost: bool = False
    back: bool = False
    reset: bool = False
    die: bool = False
    pid: Annotated[int, msgspec.Meta(ge=1)] | None = None
    used_mib: _Amount | None = msgspec.field(default=None, name="usedMiB")
    reading: _Reading | None = None
    slow_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] | None = None
    hang: bool | None = None
    fail: bool | None = None


@asynccontextmanager
async def serve(path: Path, driver: SimulatedDriver) -> AsyncIterator[None]:
    """Accept faults at `path` while the context lasts; only root may connect."""

    async def happen(line: bytes) -> str:
        try:
            driver.happen(_fault(msgspec.json.decode(line, type=_Line)))
        except FaultError as error:
            raise line_socket.Refusal(str(error)) from error
        return ""

    async with line_socket.serve(path, happen):
        yield


async def tell(path: Path, fault: Mapping[str, object]) -> None:
    """Send this fault, in the format above. Raises line_socket.Refusal; OSError, TimeoutError if nobody accepts it."""
    await line_socket.ask(path, fault)


def _fault(line: _Line) -> Fault:
    """Parse the line. Raises FaultError unless it contains exactly one fault."""
    card = "" if line.card is None else str(line.card)
    said: list[Fault] = [*_of_a_card(line, card), *_of_the_driver(line)]
    if len(said) != 1 or (line.pid is None) != (line.used_mib is None):
        raise FaultError(
            "for a card, expected one of xid, lost, back, reset, hang, reading, or pid with usedMiB; "
            "for the driver, slowS, hang and fail, or die"
        )
    of_the_driver = isinstance(said[0], DriverFault | DieFault)
    if of_the_driver and line.card is not None:
        raise FaultError("expected no card: slowS, fail and die apply to the driver")
    if not of_the_driver and not card:
        raise FaultError("expected card: an index or a UUID")
    return said[0]


def _of_a_card(line: _Line, card: str) -> Iterator[Fault]:
    if line.xid is not None:
        yield XidFault(card, line.xid)
    if line.lost:
        yield LostFault(card)
    if line.back:
        yield BackFault(card)
    if line.reset:
        yield ResetFault(card)
    if line.card is not None and line.hang is not None:
        yield HangFault(card, hang=line.hang)
    if line.pid is not None or line.used_mib is not None:
        yield UseFault(card, line.pid or 0, line.used_mib or 0)
    if line.reading is not None:
        yield ReadingFault(card, _fields(line.reading))


def _of_the_driver(line: _Line) -> Iterator[Fault]:
    hang = line.hang if line.card is None else None
    if line.slow_s is not None or hang is not None or line.fail is not None:
        yield DriverFault(line.slow_s or 0.0, hang=bool(hang), fail=bool(line.fail))
    if line.die:
        yield DieFault()


def _fields(reading: _Reading) -> dict[str, object]:
    found = msgspec.structs.asdict(reading)
    return {name: value for name, value in found.items() if value is not msgspec.UNSET}
