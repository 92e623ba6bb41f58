"""The socket that takes faults, over a real socket."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from deviceplugin.driver.cards import CardFailed, DriverCard, SourceFailed, Xid
from deviceplugin.driver.fault_control import serve, tell
from deviceplugin.driver.simulated import SimulatedDriver
from deviceplugin.line_socket import Refusal

CARDS = (
    DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=1024),
    DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=2048),
)


@pytest.fixture
def driver() -> SimulatedDriver:
    return SimulatedDriver(CARDS, ())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "faults.sock"


async def test_errors_readings_use_and_the_driver_can_be_set(driver: SimulatedDriver, path: Path) -> None:
    session = driver.opened()
    async with serve(path, driver):
        await tell(path, {"card": 0, "xid": 79})
        assert session.wait("GPU-a", 0) == (Xid("GPU-a", 79),)
        await tell(path, {"card": 0, "pid": 4242, "usedMiB": 512})
        await tell(path, {"card": 0, "reading": {"remapPending": True, "temperatureC": 91}})
        await tell(path, {"card": 0, "reading": {"uncorrectedEcc": 2}})
        reading = session.read("GPU-a")
        assert (reading.used_mib, reading.remap_pending, reading.temperature_c) == (512, True, 91)
        assert reading.uncorrected_ecc == 2
        await tell(path, {"fail": True})
        await tell(path, {"fail": False})
        assert session.open().version == "simulated"


async def test_cards_go_come_back_and_are_reset(driver: SimulatedDriver, path: Path) -> None:
    session = driver.opened()
    async with serve(path, driver):
        await tell(path, {"card": "GPU-b", "lost": True})
        with pytest.raises(CardFailed):
            session.read("GPU-b")
        await tell(path, {"card": "1", "back": True})
        session.describe("GPU-b")
        with pytest.raises(Refusal, match="cannot be reset"):
            await tell(path, {"card": 1, "reset": True})
        await tell(path, {"card": 0, "reset": True})


async def test_a_card_hangs_and_the_process_dies(driver: SimulatedDriver, path: Path) -> None:
    session = driver.opened()
    async with serve(path, driver):
        await tell(path, {"card": 0, "hang": True})
        assert driver.states["GPU-a"].hangs
        await tell(path, {"card": 0, "hang": False})
        await tell(path, {"die": True})
        with pytest.raises(SourceFailed, match="has ended"):
            session.open()
        assert driver.opened().open().count == 2


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"card": 7, "xid": 79}, "no card 7; cards: 0"),
        ({"xid": 79}, "expected card"),
        ({"card": 0}, "expected one of xid"),
        ({"card": 0, "xid": 79, "lost": True}, "expected one of xid"),
        ({"card": 0, "xid": 79, "pid": 4242}, "expected one of xid"),
        ({"card": 0, "pid": 4242}, "pid with usedMiB"),
        ({"card": 0, "lost": True, "usedMiB": 5}, "expected one of xid"),
        ({"card": "", "xid": 79}, "expected card"),
        ({"card": 0, "fail": True}, "expected no card"),
        ({"card": 0, "xid": "many"}, "xid"),
        ({"card": 0, "heat": 3}, "heat"),
        ({"card": 0, "reading": {"heat": 3}}, "heat"),
        ({"card": 0, "reading": {"recovery": "pray"}}, "recovery"),
        ({"slowS": -1}, "slowS"),
    ],
)
async def test_a_fault_that_makes_no_sense_is_refused_with_the_reason(
    driver: SimulatedDriver, path: Path, fault: dict[str, object], message: str
) -> None:
    async with serve(path, driver):
        with pytest.raises(Refusal, match=message):
            await tell(path, fault)
    assert driver.opened().wait("GPU-a", 0) == ()


async def test_a_bad_line_does_not_affect_the_next_one(driver: SimulatedDriver, path: Path) -> None:
    async with serve(path, driver):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b'nonsense\n{"card":0,"xid":79}\n')
        answers = [json.loads(await reader.readline()) for _ in range(2)]
        writer.close()
    assert [answer["ok"] for answer in answers] == [False, True]
    assert driver.opened().wait("GPU-a", 0) == (Xid("GPU-a", 79),)


async def test_a_line_without_end_is_refused(driver: SimulatedDriver, path: Path) -> None:
    async with serve(path, driver):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"x" * 200_000)
        assert "at most 65536 bytes" in json.loads(await reader.readline())["error"]
        writer.close()


async def test_a_simulation_that_ends_before_it_answers_is_reported(path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    async with await asyncio.start_unix_server(hang_up, path):
        with pytest.raises(ConnectionError, match="ended before it answered"):
            await tell(path, {"fail": True})


def mode(path: Path) -> str:
    return stat.filemode(path.stat().st_mode) if path.exists() else "nothing"


@pytest.fixture
def left_behind(path: Path) -> None:
    path.touch()


@pytest.mark.usefixtures("left_behind")
async def test_the_socket_is_private_replaces_an_old_one_and_is_removed(driver: SimulatedDriver, path: Path) -> None:
    async with serve(path, driver):
        assert mode(path) == "srw-------"
    assert mode(path) == "nothing"
    with pytest.raises(OSError, match="No such file"):
        await tell(path, {"fail": True})
