"""A unix socket for this machine's root: one JSON object per line, answered by `{"ok": true, …}` or by an error.

Its file mode allows only root to connect, so the file system and the rights to `kubectl exec` control access.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

_LONGEST_LINE: Final = 65_536
_ANSWER_S: Final = 5.0


class Refusal(Exception):
    """The request cannot be served; the message says why."""


class _Answer(msgspec.Struct, omit_defaults=True):
    ok: bool
    error: str = ""
    said: str = ""


@asynccontextmanager
async def serve(path: Path, serve_line: Callable[[bytes], Awaitable[str]]) -> AsyncIterator[None]:
    """Accept lines at `path` while the context lasts; then disconnect remaining clients.

    serve_line: serves one line; returns the answer. Raises Refusal.
    """

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(msgspec.json.encode(await _answer(serve_line, line)) + b"\n")
                await writer.drain()
        except ValueError:
            error = f"a line may have at most {_LONGEST_LINE} bytes"
            writer.write(msgspec.json.encode(_Answer(ok=False, error=error)) + b"\n")
        except ConnectionError:
            return
        finally:
            writer.close()

    conversations: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Our own task: one that asyncio creates lasts until the loop ends, which then logs a trace for it (3.11).
        conversation = asyncio.create_task(converse(reader, writer))
        conversations.add(conversation)
        conversation.add_done_callback(conversations.discard)

    _remove(path)
    server = await asyncio.start_unix_server(accept, path, limit=_LONGEST_LINE)
    _for_its_owner_alone(path)
    try:
        yield
    finally:
        server.close()
        _remove(path)
        for conversation in conversations:
            conversation.cancel()
        if conversations:
            await asyncio.wait(conversations)


async def ask(path: Path, line: Mapping[str, object], *, within_s: float = _ANSWER_S) -> str:
    """Send the line and return the answer. Raises Refusal; OSError and TimeoutError if no process serves the socket."""
    async with asyncio.timeout(within_s):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(msgspec.json.encode(line) + b"\n")
            heard = await reader.readline()
        finally:
            writer.close()
    if not heard.endswith(b"\n"):
        raise ConnectionError(f"{path}: the listening process ended before it answered")
    answer = msgspec.json.decode(heard, type=_Answer)
    if not answer.ok:
        raise Refusal(answer.error)
    return answer.said


async def _answer(serve_line: Callable[[bytes], Awaitable[str]], line: bytes) -> _Answer:
    try:
        return _Answer(ok=True, said=await serve_line(line))
    except (msgspec.DecodeError, UnicodeError, RecursionError, Refusal) as error:
        return _Answer(ok=False, error=str(error))


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _for_its_owner_alone(path: Path) -> None:
    path.chmod(0o600)
