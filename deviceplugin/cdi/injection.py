"""Chooses the injection mode, waits until the node supports one, and reports why it does not."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import structlog

from config.settings.deviceplugin import Mode as ConfiguredMode
from deviceplugin import daemon_thread
from deviceplugin.cdi.mode import (
    Coverage,
    InjectionSupport,
    Mode,
    NoInjectionMode,
    brings_nvml,
    mode_of,
    takes_volume_mounts,
)
from deviceplugin.events import EventRecorder, NodeEvent

T = TypeVar("T")


class ToolkitSilent(Exception):
    """The call did not return in time, or an earlier one has not returned yet; the message says which."""


class ToolkitThread:
    """Runs one call at a time: while one hangs, further calls fail."""

    def __init__(self) -> None:
        self._last: asyncio.Future[Any] | None = None

    async def call(self, function: Callable[[], T], *, timeout_s: float) -> T:
        """Return the function's result or raise its exception. Raises ToolkitSilent."""
        if self._last is not None and not self._last.done():
            raise ToolkitSilent("an earlier call has not returned yet")
        # Before the wait: a caller that is cancelled during it leaves the thread running.
        answer = daemon_thread.call(function, "toolkit")
        self._last = answer
        done, _ = await asyncio.wait({answer}, timeout=timeout_s)
        if not done:
            raise ToolkitSilent(f"no answer within {timeout_s:g} s")
        return answer.result()


# Longer than the timeout of nvidia-ctk (nvidia_edits).
_PREPARED_WITHIN_S: Final = 120.0
# The toolkit may be installed at any time, or its specs rewritten after a change of driver.
_AGAIN_S: Final = 15.0
# Longer than it takes to remove a spec and write it again.
_SETTLED_S: Final = 5.0
_MOUNTINFO: Final = Path("/proc/self/mountinfo")
log = structlog.get_logger()


class _Preparable(Protocol):
    """Port: CDI edits of the cards."""

    @property
    def coverage(self) -> Coverage:
        """Coverage of the cards at the last `prepare`."""
        ...

    @property
    def known(self) -> bool:
        """Whether the driver has named its cards."""
        ...

    def prepare(self) -> None:
        """Read the specs again. Blocks. Raises OSError."""
        ...


_THROUGH: Final[Mapping[Mode, str]] = {"cdi": "CDI", "environment": "the environment and the NVIDIA runtime"}


class InjectionMode:
    """Injection mode of the node. Owned by the event loop; specs are read in a thread.

    chosen: None until a mode is chosen. problem: why containers get no card at all; "" while they get some. withheld:
    as `problem`, but "" until that is certain. uncovered: UUID -> why containers cannot get that card, while they get
    others. nvidia_runtime: whether the NVIDIA runtime runs this container. volume_mounts: whether containers request
    cards from that runtime by mounts.
    """

    def __init__(
        self,
        configured: ConfiguredMode,
        edits: _Preparable,
        recorder: EventRecorder,
        changed: Callable[[], None],
        *,
        real: bool,
        last: str,
        again_s: float = _AGAIN_S,
        mountinfo: Path = _MOUNTINFO,
    ) -> None:
        """changed: called when an attribute has changed. real: whether the cards are real. last: previous run's mode.

        again_s: seconds between two checks.
        """
        self._configured: ConfiguredMode = configured
        self._edits, self._real, self._again_s = edits, real, again_s
        self._recorder, self._on_change = recorder, changed
        self._last: Mode | None = "cdi" if last == "cdi" else "environment" if last == "environment" else None
        self._changed, self._toolkit = asyncio.Event(), ToolkitThread()
        self.chosen: Mode | None = None
        self.problem = self.withheld = ""
        self.uncovered: Mapping[str, str] = {}
        mounted = mountinfo.read_text(encoding="utf-8", errors="replace")
        self.nvidia_runtime, self.volume_mounts = brings_nvml(mounted), takes_volume_mounts(mounted)

    def cards_changed(self) -> None:
        """Check the CDI specs again soon, because the cards have changed."""
        self._changed.set()

    async def mode(self, runtime_version: Callable[[], str]) -> Mode:
        """Return the configured mode, or a supported one; wait until the node supports one."""
        while True:
            await self._prepare()
            try:
                mode = self._supported(runtime_version())
            except NoInjectionMode as error:
                self._show(str(error), {})
                await self._soon()
            else:
                self._choose(mode)
                return mode

    async def follow(self, runtime_version: Callable[[], str], idle: Callable[[], bool]) -> None:
        """Check the CDI specs forever: when the cards change, and every `again_s` seconds.

        idle: whether no container of the node has a card or is about to get one. CDI then replaces the environment mode
        if the specs appeared too late for the first choice.
        """
        while True:
            await self._soon()
            await self._prepare()
            if self._lost_cards():
                # The spec may be in the middle of a rewrite. The kubelet fails pods that it admits while devices are
                # withheld.
                await asyncio.sleep(min(_SETTLED_S, self._again_s))
                await self._prepare()
            with contextlib.suppress(NoInjectionMode):
                if self.chosen == "environment" and idle() and self._supported(runtime_version()) == "cdi":
                    self._choose("cdi")
            self._report()

    def problems(self) -> tuple[str, ...]:
        """Return messages for operators."""
        return (self.problem,) if self.problem else tuple(self.uncovered.values())

    def _lost_cards(self) -> bool:
        """Return whether the CDI specs no longer inject a card that they did inject."""
        lost = self._edits.coverage.uncovered.keys() - self.uncovered.keys()
        return self.chosen == "cdi" and not self.problem and bool(lost)

    def _supported(self, runtime_version: str) -> Mode:
        """Return the supported mode. Raises NoInjectionMode."""
        last = self.chosen or self._last
        if self._configured == "auto" and last and not self._edits.known:
            return last
        coverage = self._edits.coverage
        support = InjectionSupport(
            runtime_version=runtime_version,
            lacking=coverage.lacking,
            some=coverage.some,
            nvidia_runtime=self.nvidia_runtime,
            real=self._real,
            last=last,
        )
        return mode_of(self._configured, support)

    def _choose(self, mode: Mode) -> None:
        before, self.chosen = self.chosen or self._last, mode
        if before and before != mode:
            note = (
                f"new containers now get their cards through {_THROUGH[mode]}, no longer through {_THROUGH[before]}; "
            )
            note += "containers that already have cards keep them"
            self._recorder.record(NodeEvent("GPUInjectionMode", note, warning=False))
        if self._edits.known:
            self._report()
        self._on_change()

    def _report(self) -> None:
        coverage = self._edits.coverage
        if self.chosen != "cdi":
            self._show("", {})
        elif coverage.some:
            self._show("", coverage.uncovered)
        elif self._configured == "auto" and self.nvidia_runtime and self._edits.known:
            hint = "to use the NVIDIA runtime instead, set mode: environment"
            self._show(f"waiting for the CDI specs that this node had before: {coverage.lacking}; {hint}", {})
        else:
            self._show(coverage.lacking, {})

    async def _prepare(self) -> None:
        self._changed.clear()
        try:
            await self._toolkit.call(self._edits.prepare, timeout_s=_PREPARED_WITHIN_S)
        except (ToolkitSilent, OSError) as error:
            log.warning("cdi.prepare_failed", reason=str(error))

    async def _soon(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._again_s):
                await self._changed.wait()

    def _show(self, problem: str, uncovered: Mapping[str, str]) -> None:
        # A silent driver says nothing about the specs: with the previous cards, the previous mode holds.
        withheld = problem if self.chosen is None or self._edits.known else ""
        before, now = (self.problem, self.withheld, self.uncovered), (problem, withheld, uncovered)
        if now == before:
            return
        self.problem, self.withheld, self.uncovered = now
        if problem and problem != before[0]:
            self._recorder.record(NodeEvent("GPUNotReady", problem))
        elif before[0] and not problem:
            log.info("way_in.found")
        self._on_change()
