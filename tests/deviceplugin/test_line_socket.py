"""The socket that takes lines, and what becomes of those who are connected when it ends."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from deviceplugin.line_socket import Refusal, ask, serve

LEFT_OPEN = """
import asyncio, sys
from pathlib import Path
from deviceplugin.line_socket import serve
async def serve_line(line):
    return await asyncio.Event().wait()
async def main():
    path = Path(sys.argv[1])
    async with serve(path, serve_line):
        idle = await asyncio.open_unix_connection(path)
        reader, asking = await asyncio.open_unix_connection(path)
        asking.write(b"{}\\n")
        await asyncio.sleep(0.05)
    print(await idle[0].read(), await reader.read())
asyncio.run(main())
"""


async def told(line: bytes) -> str:
    return line.decode().strip()


async def refused(line: bytes) -> str:
    raise Refusal(line.decode().strip())


async def test_a_line_is_answered(tmp_path: Path) -> None:
    async with serve(tmp_path / "s", told):
        assert await ask(tmp_path / "s", {"a": 1}) == '{"a":1}'
    assert not (tmp_path / "s").exists()


async def test_a_refusal_is_told(tmp_path: Path) -> None:
    async with serve(tmp_path / "s", refused):
        with pytest.raises(Refusal, match=r'\{"a":1\}'):
            await ask(tmp_path / "s", {"a": 1})


def test_connections_that_are_open_at_the_end_are_cut_off_without_a_trace(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, tmp_path / "s"], capture_output=True, text=True, timeout=30, check=True
    )
    assert (ended.stdout, ended.stderr) == ("b'' b''\n", "")


async def test_what_fails_inside_is_raised_as_it_is(tmp_path: Path) -> None:
    """Not in a group: whoever serves handles it by its type."""

    async def fails() -> None:
        async with serve(tmp_path / "s", told):
            message = "of the caller"
            raise LookupError(message)

    with pytest.raises(LookupError, match="of the caller"):
        await asyncio.wait_for(fails(), 5)
