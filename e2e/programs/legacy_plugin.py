"""The legacy device plugin as a kubelet sees it, for tests: equal cards, and an answer with the index of a card.

Source: gpushare-device-plugin, pkg/gpu/nvidia/nvidia.go, server.go, allocate.go.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Self

from config.protocol import environment, names
from deviceplugin.kubelet import client, server
from deviceplugin.kubelet.server import ContainerResponse, Devices

SOCKET: Final = "aliyungpushare.sock"


class LegacyPlugin:
    """On one node. index: of the card for the next Allocate; the real one takes that of the pod which it guesses."""

    def __init__(self, folder: Path, cards: Sequence[str], card_units: int) -> None:
        """folder: where the kubelet's socket is. cards: UUIDs."""
        self.index = 0
        self._folder = folder
        self._ids = tuple(f"{uuid}-_-{number}" for uuid in cards for number in range(card_units))
        self._card_units = card_units

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Registered with the kubelet; at the end its socket is gone."""
        async with server.serving(self, self._folder / SOCKET):
            await client.register(self._folder, SOCKET, names.GPU_MEM)
            yield self

    async def devices(self) -> AsyncIterator[Devices]:
        """All of them, healthy for ever."""
        yield tuple((name, True) for name in self._ids)
        await asyncio.Event().wait()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """For a container of as many units."""
        units, index = str(len(ids)), str(self.index)
        return ContainerResponse(
            environment={
                environment.VISIBLE_DEVICES: index,
                names.MEM_IDX: index,
                names.MEM_POD: units,
                environment.MEM_CONTAINER: units,
                names.MEM_DEV: str(self._card_units),
            }
        )

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Nothing."""
