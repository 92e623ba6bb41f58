"""A server of ours as a process of its own, which logs JSON lines and answers probes and metrics.

    new --start--> RUNNING --stop (SIGTERM) | kill (SIGKILL)--> ended --start--> RUNNING (same address, same log)

Leaving the context ends it and writes the end of its log to standard output, which pytest shows for a test that failed.
Start it from a thread that outlives it: it is tied to that thread.
"""

import asyncio
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from prometheus_client.parser import text_string_to_metric_families

from e2e.control_plane import readiness
from e2e.control_plane.admin import Json
from e2e.control_plane.processes import Child

_ANSWER_WITHIN_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.02
_ASK_EVERY_S: Final = 0.1
_SHOWN_LINES: Final = 60


class NotSaid(Exception):
    """The server did not log what was waited for; the message has the end of its log."""


class ServerProcess:
    """One such process; enter it to start it."""

    def __init__(self, launch: Callable[[], Child], log: Path, port: int) -> None:
        """launch: starts it, with its output appended to `log` and its probes at `port`."""
        self._launch = launch
        self.log = log
        self.port = port
        self._child: Child | None = None

    def __enter__(self) -> Self:
        """Start, without waiting for anything."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, and show what it said last."""
        self.child.stop()
        sys.stdout.write("\n".join([f"-- end of {self.log.name}", *self._said()[-_SHOWN_LINES:], ""]))

    @property
    def child(self) -> Child:
        """The process of the last `start`; RuntimeError before the first."""
        if self._child is None:
            message = f"{self.log.name}: not started: enter it first"
            raise RuntimeError(message)
        return self._child

    def start(self) -> None:
        """Start it, again after `stop` or `kill`."""
        self._child = self._launch()

    def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        self.child.stop()

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.child.kill()

    async def ready(self) -> None:
        """Return once `/readyz` answers 200. Raises Died, NotReady."""
        answers = readiness.missing_at_http(self.port, "/readyz")
        await asyncio.to_thread(readiness.wait_until, self.child, answers)

    async def listens(self) -> None:
        """Return once `/healthz` answers 200. Raises Died, NotReady."""
        answers = readiness.missing_at_http(self.port, "/healthz")
        await asyncio.to_thread(readiness.wait_until, self.child, answers)

    async def readyz(self) -> str:
        """What `/readyz` says, whatever its status; ConnectionError while nobody listens."""
        return await self.page("/readyz")

    async def readyz_until(self, holds: Callable[[str], bool], *, within_s: float = 60.0) -> str:
        """What `/readyz` says as soon as that holds. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while not holds(said := await self.readyz()):  # noqa: ASYNC110 - nothing tells when it changes
                await asyncio.sleep(_ASK_EVERY_S)
        return said

    async def page(self, path: str) -> str:
        """What any page says, whatever its status; ConnectionError while nobody listens."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            return await asyncio.to_thread(_body, url)
        except urllib.error.HTTPError as error:
            return error.read().decode()

    async def metrics(self) -> dict[tuple[str, str], float]:
        """Sum up `/metrics`: value by sample name and the value of its first label ("" without labels)."""
        text = await asyncio.to_thread(_body, f"http://127.0.0.1:{self.port}/metrics")
        found: dict[tuple[str, str], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, next(iter(sample.labels.values()), ""))
                found[key] = found.get(key, 0.0) + sample.value
        return found

    def lines(self, event: str = "") -> list[Json]:
        """What it has logged so far, of all its starts: the lines of that event, or all."""
        lines = [json.loads(line) for line in self._said() if line.startswith("{")]
        return [line for line in lines if not event or line["event"] == event]

    async def said(self, event: str, *, within_s: float = 15.0, **fields: object) -> Json:
        """Wait for the first line of that event with these fields. Raises NotSaid."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    for line in self.lines(event):
                        if fields.items() <= line.items():
                            return line
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError:
            message = f"no line {event} {fields} within {within_s} s\n" + "\n".join(self._said()[-_SHOWN_LINES:])
            raise NotSaid(message) from None

    def _said(self) -> list[str]:
        # The line that is being written at this moment is not one yet.
        return self.log.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if self.log.exists() else []


def _body(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_ANSWER_WITHIN_S) as answer:  # noqa: S310 - http, to our own process
        text: str = answer.read().decode()
    return text
