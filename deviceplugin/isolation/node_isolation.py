"""Isolation on this node: one description, carried out for each container."""

import asyncio
from pathlib import Path
from typing import Final

from config.settings.isolation import IsolationMechanism
from deviceplugin.allocation.container_share import ContainerShare
from deviceplugin.cdi.additions import Additions
from deviceplugin.isolation import fill
from deviceplugin.isolation.directories import ContainerDirectories
from deviceplugin.isolation.mps_cards import MpsCards

DIRECTORY: Final = "isolation"
# A plugin that has just started has its daemons within a second or two; the kubelet comes again later.
_READY_WITHIN_S: Final = 5.0


class NodeIsolation:
    """`allocation.allocators.Isolation`. Owned by the event loop; files are written in a thread.

    directories: files made for containers. mps: the daemons.
    """

    def __init__(self, mechanism: IsolationMechanism, state: Path, mps: MpsCards) -> None:
        """state: the plugin's state directory. mps: its cards have daemons where the description says so."""
        self._mechanism, self.mps = mechanism, mps
        self._state = state / DIRECTORY
        self.directories = ContainerDirectories(self._state, mechanism)

    def objection(self, share: ContainerShare) -> str:
        """Why the container can never be isolated; "" when it can."""
        if self._mechanism.host_ipc and not share.pod.host_ipc:
            return "isolation on this node needs the node's shared memory; add hostIPC: true to the pod"
        if self._mechanism.preparation == "mps" and len(share.shares) > 1:
            return (
                f"container {share.container.name} has {len(share.shares)} cards; with MPS a container has one: "
                "each card has a daemon of its own, and a program finds one of them"
            )
        return ""

    async def prepare(self, share: ContainerShare) -> str:
        """Make directories and wait for the MPS daemon; why the container must not start yet, or ""."""
        await asyncio.to_thread(self.directories.make, share)
        if self._mechanism.preparation == "mps":
            return await self.mps.ready(share.shares[0].uuid, _READY_WITHIN_S)
        return ""

    def additions(self, share: ContainerShare) -> Additions:
        """Additions from the description."""
        return fill.additions(self._mechanism, share, str(self._state))
