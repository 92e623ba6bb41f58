"""Isolation of each container, and for each card in the inventory."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from config.protocol import names
from deviceplugin.allocation.container_share import ContainerShare, DriverLimit
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.cdi.edits import Additions
from deviceplugin.driver.cards import DriverCard
from deviceplugin.isolation import driver_limits, fill
from deviceplugin.isolation.directories import ContainerDirectories
from deviceplugin.isolation.driver_limits import LimitSupport
from deviceplugin.isolation.kind import DRIVER, MPS, NOTHING, NodeKind
from deviceplugin.isolation.mps_cards import MpsCards

# After a start, the plugin has its daemons within a second or two; the kubelet retries later.
_READY_WITHIN_S: Final = 5.0
_AGAIN_S: Final = 5.0
_UNNAMED: Final = "the driver does not name it"


@dataclass(slots=True, kw_only=True)
class NodeIsolation:
    """`allocation.allocators.Isolation`. Owned by the event loop; files are written in a thread.

    kind: the node's. required: no container starts unless its share is enforced. directories: files made for
    containers. mps: the daemons. driver_cards: the node's, as the driver
    describes them. support: what limits by the driver need besides the card. view: the node's pods.
    """

    kind: NodeKind
    required: bool
    directories: ContainerDirectories
    mps: MpsCards
    driver_cards: Callable[[], Sequence[DriverCard]]
    support: Callable[[], LimitSupport]
    view: NodeRecords

    def objection(self, share: ContainerShare) -> str:
        """Return why the container can never be isolated; "" if it can."""
        mechanism = self.kind.mechanism
        if mechanism.host_ipc and not share.pod.host_ipc:
            return "isolation on this node needs the node's shared memory; add hostIPC: true to the pod"
        if mechanism.preparation == MPS and len(share.shares) > 1:
            return (
                f"container {share.container.name} has {len(share.shares)} cards; MPS supports only one per container: "
                "each card has its own daemon, and a program can connect to only one"
            )
        return ""

    async def prepare(self, share: ContainerShare) -> str:
        """Create directories and wait for the MPS daemon. Return why the container must not start yet, or ""."""
        lacking = self._unenforced(share)
        if lacking and (self.required or share.pod.annotations.get(names.ISOLATION) == names.ISOLATION_REQUIRED):
            return f"container {share.container.name} needs memory isolation ({self._required_by()}): {lacking}"
        await asyncio.to_thread(self.directories.make, share, self.kind.mechanism)
        if self.kind.mechanism.preparation == MPS:
            return await self.mps.ready(share.shares[0].uuid, _READY_WITHIN_S)
        return ""

    def additions(self, share: ContainerShare) -> Additions:
        added = fill.additions(self.kind.mechanism, share, str(self.directories.state))
        limit = self.limit(share)
        return replace(added, env={**added.env, **limit.variables()}) if limit else added

    def limit(self, share: ContainerShare) -> DriverLimit | None:
        """Return the limits that the driver enforces for the container from its next start; None if it has none."""
        if self.kind.now != DRIVER or self._unenforced(share):
            return None
        return share.driver_limit(self.view.cards())

    def of_cards(self) -> dict[str, str]:
        """Return UUID -> what enforces shares of the card, as in the inventory; "" if nothing does."""
        word, cards = self.kind.of_card(), self.driver_cards()
        if self.kind.now == DRIVER:
            return {uuid: "" if lacking else word for uuid, lacking in self.missing().items()}
        return {card.uuid: "" if card.mig else word for card in cards}

    def missing(self) -> dict[str, str]:
        """Return UUID -> why the driver cannot enforce shares of the card; "" if it can."""
        support = self.support()
        return {card.uuid: driver_limits.missing(card, support) for card in self.driver_cards()}

    def _unenforced(self, share: ContainerShare) -> str:
        """Return why nothing enforces the container's share; "" if something does."""
        if self.kind.now == NOTHING:
            return "nothing enforces it on this node (isolation: none)"
        if self.kind.now != DRIVER:
            return ""
        found = self.missing()
        lacking = [f"card {uuid}: {found.get(uuid, _UNNAMED)}" for uuid in share.uuids if found.get(uuid, _UNNAMED)]
        return "; ".join(lacking)

    def _required_by(self) -> str:
        return "enforcement: required" if self.required else f"{names.ISOLATION}: {names.ISOLATION_REQUIRED}"

    async def decided(self) -> None:
        """Choose the kind before any container starts, unless a plugin has already chosen it for this node."""
        while not self.kind.now:
            if self.view.pods.complete:
                self._settle()
            else:
                await self.view.pods.change()

    async def follow(self, allocating: Callable[[], bool], moved: Callable[[], None]) -> None:
        """Choose another kind if the node is idle, forever. moved: called when the cards' isolation has changed.

        allocating: whether the kubelet waits for an Allocate.
        """
        before = self.of_cards()
        while True:
            await asyncio.sleep(_AGAIN_S)
            if self.view.pods.complete and not allocating():
                self._settle()
            now = self.of_cards()
            if now != before:
                before = now
                moved()

    def _settle(self) -> None:
        limits = not all(self.missing().values())
        possible = any(card.limits for card in self.driver_cards())
        if self.kind.settle(limits=limits, possible=possible, holders=len(self.view.asking())):
            self.mps.cards_changed()
