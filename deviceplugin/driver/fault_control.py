"""A unix socket that injects faults into simulated cards: one JSON object a line, one in answer.

    {"card": 0, "xid": 79}                        {"card": "GPU-…", "lost": true}        {"card": 0, "back": true}
    {"card": 0, "pid": 4242, "usedMiB": 512}      memory in use by that process; 0: none
    {"card": 0, "reading": {"remapPending": true, "uncorrectedEcc": 1, "recovery": "reset", "temperatureC": 91}}
    {"slowS": 2.5}    {"hang": true}    {"fail": true}       the driver as a whole; {"fail": false}: healthy again

The answer is {"ok": true}, or {"ok": false, "error": "…"}. An index or a UUID names a card. A line says one of these
and nothing beside it; what a line about the driver leaves out is healthy again.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec

from deviceplugin.driver.simulated import (
    BackFault,
    DriverFault,
    Fault,
    FaultError,
    LostFault,
    ReadingFault,
    SimulatedSource,
    UseFault,
    XidFault,
)

_LONGEST_LINE: Final = 65_536
_ANSWER_S: Final = 5.0
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
    pid: Annotated[int, msgspec.Meta(ge=1)] | None = None
    used_mib: _Amount | None = msgspec.field(default=None, name="usedMiB")
    reading: _Reading | None = None
    slow_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] | None = None
    hang: bool | None = None
    fail: bool | None = None


class _Answer(msgspec.Struct, omit_defaults=True):
    ok: bool
    error: str = ""


class FaultRefused(Exception):
    """The simulation refused a fault; the message says why."""


@asynccontextmanager
async def serve(path: Path, source: SimulatedSource) -> AsyncIterator[None]:
    """Take faults at `path` while the context lasts; root alone may connect."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(msgspec.json.encode(_done(source, line)) + b"\n")
                await writer.drain()
        except ValueError:
            error = f"a line may have at most {_LONGEST_LINE} bytes"
            writer.write(msgspec.json.encode(_Answer(ok=False, error=error)) + b"\n")
        except ConnectionError:
            return
        finally:
            writer.close()

    _remove(path)
    server = await asyncio.start_unix_server(converse, path, limit=_LONGEST_LINE)
    _for_its_owner_alone(path)
    try:
        yield
    finally:
        server.close()
        _remove(path)


async def tell(path: Path, fault: Mapping[str, object]) -> None:
    """Let this happen, written as above. Raises FaultRefused; OSError and TimeoutError when nobody takes it."""
    async with asyncio.timeout(_ANSWER_S):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(msgspec.json.encode(fault) + b"\n")
            line = await reader.readline()
        finally:
            writer.close()
    if not line.endswith(b"\n"):
        message = f"{path}: the simulation ended before it answered"
        raise ConnectionError(message)
    answer = msgspec.json.decode(line, type=_Answer)
    if not answer.ok:
        raise FaultRefused(answer.error)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _for_its_owner_alone(path: Path) -> None:
    path.chmod(0o600)


def _done(source: SimulatedSource, line: bytes) -> _Answer:
    try:
        source.happen(_fault(msgspec.json.decode(line, type=_Line)))
    except (msgspec.DecodeError, UnicodeError, RecursionError, FaultError) as error:
        return _Answer(ok=False, error=str(error))
    return _Answer(ok=True)


def _fault(line: _Line) -> Fault:
    """Raises FaultError unless the line says one thing."""
    said: list[Fault] = []
    card = "" if line.card is None else str(line.card)
    if line.slow_s is not None or line.hang is not None or line.fail is not None:
        said.append(DriverFault(line.slow_s or 0.0, hang=bool(line.hang), fail=bool(line.fail)))
    if line.xid is not None:
        said.append(XidFault(card, line.xid))
    if line.lost:
        said.append(LostFault(card))
    if line.back:
        said.append(BackFault(card))
    if line.pid is not None or line.used_mib is not None:
        said.append(UseFault(card, line.pid or 0, line.used_mib or 0))
    if line.reading is not None:
        said.append(ReadingFault(card, _fields(line.reading)))
    if len(said) != 1 or (line.pid is None) != (line.used_mib is None):
        message = "expected one of xid, lost, back, pid with usedMiB, reading; or slowS, hang, fail for the driver"
        raise FaultError(message)
    if isinstance(said[0], DriverFault) and line.card is not None:
        message = "expected no card: slowS, hang and fail apply to the driver"
        raise FaultError(message)
    if not isinstance(said[0], DriverFault) and not card:
        message = "expected card: an index or a UUID"
        raise FaultError(message)
    return said[0]


def _fields(reading: _Reading) -> dict[str, object]:
    found = msgspec.structs.asdict(reading)
    return {name: value for name, value in found.items() if value is not msgspec.UNSET}
