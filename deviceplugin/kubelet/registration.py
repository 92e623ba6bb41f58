"""Stays registered with the kubelet, from one life of it to the next.

    kubelet.sock appears ──▶ serve our socket ──▶ Register ──▶ REGISTERED ──▶ kubelet.sock appears again …
                                                   │ ▲             └ dropped: Register, with back-off
                                                   └─┘ silent or refuses: again, with back-off

A kubelet that starts removes our socket with all others, so each registration has a server of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from deviceplugin.kubelet import client, server
from deviceplugin.kubelet.checkpoint import CheckpointError
from deviceplugin.kubelet.client import KubeletSilent, RegistrationRefused

SOCKET_NAME: Final = "gpushare.sock"
# level, event and fields of a log line; structlog itself takes long to import.
Say: TypeAlias = Callable[[str, str, Mapping[str, object]], None]


@dataclass(frozen=True, slots=True)
class Listeners:
    """Told what becomes of the registration. problem: why it fails; "" once it succeeded.

    registering: awaited before each attempt, which it puts off by raising KubeletSilent or CheckpointError.
    """

    registering: Callable[[], Awaitable[None]]
    registered: Callable[[], None]
    unregistered: Callable[[], None]
    problem: Callable[[str], None]


@dataclass(slots=True)
class Registration:
    """backoff_s: seconds to wait after so many failures in a row. say: takes the lines of its log."""

    plugin: server.KubeletPlugin
    device_plugin_dir: Path
    resource: str
    listeners: Listeners
    backoff_s: Callable[[int], float]
    say: Say
    _dropped: asyncio.Event = field(default_factory=asyncio.Event)

    def dropped(self) -> None:
        """No kubelet watches the devices: one that is still running has to be registered with again."""
        self._dropped.set()

    async def run(self) -> None:
        """Serve and register forever; cancelling removes the socket.

        Raises, in a group, what serving does, and client.DirectoryGone.
        """
        life: asyncio.Task[None] | None = None
        # A life that fails, for one because the socket cannot be made, ends the others and this: nobody would serve.
        async with asyncio.TaskGroup() as lives:
            async for _ in client.restarts(self.device_plugin_dir):
                await _ended(life)
                life = lives.create_task(self._one_life())

    async def _one_life(self) -> None:
        """Serve from one start of the kubelet to the next, which cancels this."""
        self.listeners.unregistered()
        async with server.serving(self.plugin, self.device_plugin_dir / SOCKET_NAME):
            drops = 0
            while True:
                self._dropped.clear()
                await self._register()
                await self._dropped.wait()
                drops += 1
                self.say("warning", "kubelet.disconnected", {"resource": self.resource, "times": drops})
                # A kubelet that ends drops us too: its successor cuts this short.
                await asyncio.sleep(self.backoff_s(drops))

    async def _register(self) -> None:
        failures = 0
        while True:
            try:
                await self.listeners.registering()
                await client.register(self.device_plugin_dir, SOCKET_NAME, self.resource)
            except (KubeletSilent, RegistrationRefused, CheckpointError) as error:
                failures += 1
                self.listeners.problem(str(error))
                self.say("warning", "register.failed", {"reason": str(error), "attempt": failures})
                await asyncio.sleep(self.backoff_s(failures))
            else:
                self.say("info", "registered", {"resource": self.resource, "socket": SOCKET_NAME})
                self.listeners.problem("")
                self.listeners.registered()
                return


async def _ended(life: "asyncio.Task[None] | None") -> None:
    if life is not None:
        life.cancel()
        # Not `await life`: to be cancelled meanwhile would be taken for the end of the life, and passed over.
        await asyncio.wait({life})
