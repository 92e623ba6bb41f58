"""Finds the injection mode, waits until the node supports one, and reports why it does not."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import structlog

from config.settings.deviceplugin import Mode as ConfiguredMode
from deviceplugin import daemon_thread
from deviceplugin.cdi.mode import InjectionSupport, Mode, NoInjectionMode, brings_nvml, mode_of

T = TypeVar("T")


class ToolkitSilent(Exception):
    """The call did not come back in time, or an earlier one has not yet; the message says which."""


class ToolkitThread:
    """One call at a time: while one hangs, further calls fail."""

    def __init__(self) -> None:
        self._last: asyncio.Future[Any] | None = None

    async def call(self, function: Callable[[], T], *, timeout_s: float) -> T:
        """The function's result, or what it raises; ToolkitSilent."""
        if self._last is not None and not self._last.done():
            raise ToolkitSilent("an earlier call still hangs")
        # Before the wait: a caller that is cancelled in it leaves the thread running.
        answer = daemon_thread.call(function, "toolkit")
        self._last = answer
        done, _ = await asyncio.wait({answer}, timeout=timeout_s)
        if not done:
            raise ToolkitSilent(f"no answer within {timeout_s:g} s")
        return answer.result()


# More than nvidia-ctk is given (nvidia_edits).
_PREPARED_WITHIN_S: Final = 120.0
# The toolkit may be installed, or its specs rewritten after a change of driver, at any time.
_AGAIN_S: Final = 15.0
_MOUNTINFO: Final = Path("/proc/self/mountinfo")
log = structlog.get_logger()


class Preparable(Protocol):
    """Port: CDI edits of the cards."""

    @property
    def lacking(self) -> str:
        """Why some cards cannot be injected; "" while all can."""
        ...

    @property
    def known(self) -> bool:
        """Whether the driver has named its cards."""
        ...

    def prepare(self) -> None:
        """Look again. Blocks. Raises OSError."""
        ...


class InjectionMode:
    """Owned by the event loop; specs are read in a thread.

    chosen: None until the mode is. problem: why containers cannot get their cards; "" while they can.
    nvidia_runtime: it runs this very container.
    """

    def __init__(
        self,
        configured: ConfiguredMode,
        edits: Preparable,
        *,
        real: bool,
        record: Callable[[str], None],
        last: str,
        again_s: float = _AGAIN_S,
        mountinfo: Path = _MOUNTINFO,
    ) -> None:
        """real: whether the cards are. record: takes each new problem. again_s: between two looks.

        last: the mode that was chosen last, which holds while the driver does not answer; "" where none is known.
        """
        self._configured: ConfiguredMode = configured
        self._edits, self._real, self._record, self._again_s = edits, real, record, again_s
        self._last: Mode | None = "cdi" if last == "cdi" else "environment" if last == "environment" else None
        self._changed, self._toolkit = asyncio.Event(), ToolkitThread()
        self.chosen: Mode | None = None
        self.problem = ""
        self.nvidia_runtime = brings_nvml(mountinfo.read_text(encoding="utf-8", errors="replace"))

    def cards_changed(self) -> None:
        """Look again soon."""
        self._changed.set()

    async def mode(self, runtime_version: str) -> Mode:
        """The configured mode, or the one that the node supports; waits until it supports one."""
        self.chosen = await self._choose(runtime_version)
        return self.chosen

    async def follow(self) -> None:
        """Check the CDI specs forever: when the cards change, and every `again_s`."""
        while True:
            await self._soon()
            await self._prepare()
            self._say(self._edits.lacking)

    async def _choose(self, runtime_version: str) -> Mode:
        while True:
            await self._prepare()
            try:
                mode = mode_of(self._configured, self._support(runtime_version))
            except NoInjectionMode as error:
                if not self._edits.known and self._last:
                    return self._last
                self._say(str(error))
                await self._soon()
            else:
                self._say(self._edits.lacking if mode == "cdi" else "")
                return mode

    def _support(self, runtime_version: str) -> InjectionSupport:
        return InjectionSupport(
            runtime_version=runtime_version,
            lacking=self._edits.lacking,
            nvidia_runtime=self.nvidia_runtime,
            real=self._real,
        )

    async def _prepare(self) -> None:
        self._changed.clear()
        try:
            await self._toolkit.call(self._edits.prepare, timeout_s=_PREPARED_WITHIN_S)
        except (ToolkitSilent, OSError) as error:
            log.warning("cdi.prepare_failed", reason=str(error))

    async def _soon(self) -> None:
        # Not wait_for: on Python 3.11 it drops a cancellation that comes together with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._again_s):
                await self._changed.wait()

    def _say(self, problem: str) -> None:
        if problem != self.problem and problem:
            self._record(problem)
        elif problem != self.problem:
            log.info("way_in.found")
        self.problem = problem
