"""The device plugin's first second: it registers with the kubelet before anything else has answered.

    lock ──▶ session.json, checkpoint ──▶ Register ─────────────────────────▶ …
                                              └▶ import the rest ──▶ app.run (API server, driver, cards, pods)

Imports little, because pods wait for these imports: see `deviceplugin.kubelet.session`.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin.kubelet.client import DirectoryGone
from deviceplugin.kubelet.server import Say
from deviceplugin.kubelet.session import KubeletSession, SessionFile
from deviceplugin.lock import AlreadyRunning, InstanceLock, LockUnknown
from scheduler.process.startup import StartupError, first_message, stop_requested

# Registering takes some hundredths of a second if a kubelet runs; otherwise it does not delay the start.
_AHEAD_S: Final = 0.5
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 2.0
_LONGEST_EXPONENT: Final = 10


class Program(Protocol):
    """The rest of the program: `deviceplugin.app.run`."""

    async def __call__(
        self,
        configuration: DevicePluginConfiguration,
        environment: Mapping[str, str],
        session: KubeletSession,
        stop: asyncio.Event,
    ) -> None:
        """Serve until `stop`."""
        ...


class _Log:
    """Keeps log lines until the log is open."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, str, Mapping[str, object]]] = []
        self._write: Say | None = None

    def say(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        if self._write is None:
            self._kept.append((level, event, {**fields, "after_s": round(_since_exec_s(), 3)}))
        else:
            self._write(level, event, fields)

    def through(self, write: Say) -> None:
        self._write = write
        for line in self._kept:
            write(*line)
        self._kept.clear()


async def run(configuration: DevicePluginConfiguration, environment: Mapping[str, str], ignored: Sequence[str]) -> None:
    """Serve this node until SIGTERM or SIGINT. ignored: flags to warn about. Raises StartupError."""
    stop, log = stop_requested(), _Log()
    state = Path(configuration.state_dir)
    try:
        with InstanceLock(state):
            session = KubeletSession(
                Path(configuration.kubelet.device_plugin_dir),
                configuration.resources.gpu_mem,
                SessionFile(state),
                _backoff(random.Random()),  # noqa: S311 - spreads retries, guards nothing
                log.say,
            )
            await _serve(configuration, environment, session, log, stop, ignored)
    except* (AlreadyRunning, LockUnknown, DirectoryGone) as mistakes:
        raise StartupError(first_message(mistakes)) from None


async def _serve(  # noqa: PLR0917 - each a different type: none can take another's place
    configuration: DevicePluginConfiguration,
    environment: Mapping[str, str],
    session: KubeletSession,
    log: _Log,
    stop: asyncio.Event,
    ignored: Sequence[str],
) -> None:
    resumed = session.resume()
    async with asyncio.TaskGroup() as tasks:
        registering = tasks.create_task(session.run())
        if resumed:
            # Imports at this point would keep the kubelet waiting.
            await session.registered_within(_AHEAD_S)
        program = await asyncio.to_thread(_rest, configuration, log, ignored)
        await program(configuration, environment, session, stop)
        registering.cancel()


def _rest(configuration: DevicePluginConfiguration, log: _Log, ignored: Sequence[str]) -> Program:
    """Import the slow modules and open the log."""
    import structlog  # noqa: PLC0415

    from deviceplugin.app import run as program  # noqa: PLC0415
    from scheduler.process.logs import configure  # noqa: PLC0415

    configure(configuration.log_level, configuration.log_format)
    logger = structlog.get_logger()
    log.through(lambda level, event, fields: getattr(logger, level)(event, **fields))
    if ignored:
        logger.warning(
            "flags.ignored", flags=list(ignored), reason="flags of the legacy plugin that have no effect here"
        )
    return program


def _backoff(rng: random.Random) -> Callable[[int], float]:
    def delay_s(failures: int) -> float:
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(failures, _LONGEST_EXPONENT))
        return rng.uniform(longest / 2, longest)

    return delay_s


def _since_exec_s() -> float:
    """Return the seconds since this process began. Source: proc_pid_stat(5), field 22, in ticks since boot."""
    ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
