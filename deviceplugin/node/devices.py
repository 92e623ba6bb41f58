"""Computes the fake devices to list for the kubelet, from this node's cards and the containers that hold IDs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog

from config.protocol.inventory import Health, Inventory
from deviceplugin.allocation.decision import Undecided, first_cards
from deviceplugin.allocation.pods import NodePod
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.kubelet import device_ids
from deviceplugin.kubelet.checkpoint import CheckpointEntry, CheckpointError
from deviceplugin.kubelet.device_ids import LARGEST_MESSAGE, Listed, message_bytes
from deviceplugin.kubelet.session import FakeDevices
from scheduler.process.clock import Clock

# Longer than an Allocate lasts: KubeletSession waits 5 s; the environment mode takes `allocateWait` plus one answer.
LEAVES_AFTER_S: Final = 30.0
log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class NodeDevices:
    """The node's devices. Owned by the event loop. shown: the list for the kubelet, which already has devices.

    old_style: as in `device_ids.device_ids`.
    """

    view: NodeRecords
    shown: FakeDevices
    old_style: bool
    clock: Clock
    # ID -> since when it has been listed as unhealthy, before it is removed.
    _leaving: dict[str, float] = field(default_factory=dict)

    async def show(self, whole: Inventory, found: Inventory) -> bool:
        """List the devices again, computed from those in use now: `device_ids.listed`. Return False to retry soon.

        whole: including memory used outside. Its units stay in the list, because a container of any card may hold the
        IDs; the same number of free IDs is unhealthy. If `found` is withheld, no free device may be allocated.
        """
        ids = device_ids.device_ids(whole.cards, old_style=self.old_style)
        usable = sum(card.units for card in found.cards if card.health is not Health.UNHEALTHY)
        if found.withheld:
            usable = 0
        try:
            holders = await self._holders(whole)
        except CheckpointError as error:
            log.warning("devices.unknown_holders", reason=str(error))
            if self.shown.now:
                return False
            # The kubelet writes another checkpoint only after it has received devices.
            holders = {}
        well = {card.uuid for card in whole.cards if card.health is not Health.UNHEALTHY}
        spare = device_ids.spare_ids(whole.cards, old_style=self.old_style)
        wanted = device_ids.listed(ids, spare, usable, holders, well, self._unhealthy())
        self.shown.show((*wanted, *self._leave(wanted)))
        return not self._leaving

    def _leave(self, wanted: Listed) -> Listed:
        """Return the list with removed IDs kept as unhealthy for a while: the kubelet may be allocating one.

        The kubelet crashes if an ID vanishes between its choice and the answer to its Allocate (nil pointer,
        pkg/kubelet/cm/devicemanager/manager.go, allocateContainerResources). It does not choose unhealthy IDs.
        """
        stays, now_s = {name for name, _ in wanted}, self.clock.monotonic_s()
        since = {name: self._leaving.get(name, now_s) for name, _ in self.shown.now if name not in stays}
        self._leaving = {name: began_s for name, began_s in since.items() if now_s - began_s < LEAVES_AFTER_S}
        if message_bytes(Counter(len(name) for name in (*stays, *self._leaving))) > LARGEST_MESSAGE:
            self._leaving = {}
        return tuple((name, False) for name in self._leaving)

    async def _holders(self, whole: Inventory) -> dict[str, frozenset[str]]:
        """Return the cards by held device ID, see `held_by`. Raises CheckpointError."""
        view = await self.view.snapshot()
        # Until every pod is known, a record cannot be attributed to a deleted pod.
        before = self._unhealthy() if self.view.pods.complete else frozenset[str]()
        return held_by(view.entries, view.pods, whole, self.view.resources.gpu_mem, before)

    def _unhealthy(self) -> frozenset[str]:
        return frozenset(name for name, healthy in self.shown.now if not healthy)


def held_by(
    entries: Iterable[CheckpointEntry], pods: Iterable[NodePod], found: Inventory, resource: str, before: frozenset[str]
) -> dict[str, frozenset[str]]:
    """Return device ID -> UUIDs of the cards decided for the containers that hold it; empty if they are unknown.

    before: the unhealthy IDs. The kubelet allocates none of these, so one that only a deleted pod holds is free: the
    kubelet keeps the records of dead pods until its next allocation (devicemanager/manager.go).
    """
    by_uid = {pod.uid: pod for pod in pods}
    holders: dict[str, frozenset[str]] = {}
    for entry in entries:
        if entry.resource != resource or (entry.pod_uid not in by_uid and entry.ids <= before):
            continue
        uuids = _cards_of(by_uid.get(entry.pod_uid), entry.container, found)
        for device in entry.ids:
            # A container with an unknown card counts as one on a healthy card.
            known = holders.get(device, uuids)
            holders[device] = known | uuids if known and uuids else frozenset()
    return holders


def _cards_of(pod: NodePod | None, container: str, found: Inventory) -> frozenset[str]:
    """Return the UUIDs of the container's cards, also missing or unshared ones, because the scheduler counts these."""
    if pod is None:
        return frozenset()
    try:
        first = first_cards(pod, found.cards, found.unit_mib)
    except Undecided:
        return frozenset()
    return frozenset(first.units.get(container, ()))
