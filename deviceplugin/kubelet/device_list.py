"""The list of fake devices that the kubelet follows: the newest one, to each follower, as soon as it changes."""

import asyncio
from collections.abc import AsyncIterator

from deviceplugin.kubelet.server import Devices


class FakeDevices:
    """One list, any number of followers. Owned by the event loop."""

    def __init__(self) -> None:
        """Nothing is listed before the first `show`: a follower waits for it."""
        self._devices: Devices | None = None
        self._moved = asyncio.Event()

    @property
    def now(self) -> Devices:
        """The current list."""
        return self._devices or ()

    def show(self, devices: Devices) -> None:
        """List these from now on; followers do not get an equal list again."""
        if devices != self._devices:
            self._devices = devices
            self._moved.set()
            self._moved = asyncio.Event()

    async def shown(self) -> None:
        """Return once there is a list."""
        while self._devices is None:
            await self._moved.wait()

    async def follow(self) -> AsyncIterator[Devices]:
        """Yield the list as it is, then each newer one; what was replaced before it could be sent is skipped."""
        while True:
            moved, devices = self._moved, self._devices
            if devices is not None:
                yield devices
            if moved is self._moved:
                await moved.wait()
