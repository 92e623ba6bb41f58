"""What the node announces of its cards, to the API server and to the kubelet, kept current.

states of the cards ─┐
cordon (node)        ├──▶ inventory ──▶ publisher (node annotation, capacity)
use outside          ┘        │
pods, checkpoint ─────────────┴──────▶ fake devices (kubelet): so many units, those of unhealthy cards unhealthy
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from config.protocol import inventory, names
from config.protocol.inventory import Health, Inventory
from deviceplugin.allocation.decision import Undecided, decided
from deviceplugin.allocation.pods import NodePod
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.health.last_known import LastKnownFile
from deviceplugin.health.record import HealthFile
from deviceplugin.health.rules import GOOD_FOR_S, RECOVERING
from deviceplugin.health.states import CardStates, Turn, turns
from deviceplugin.kubelet import device_ids
from deviceplugin.kubelet.checkpoint import CheckpointEntry, CheckpointError
from deviceplugin.kubelet.device_list import FakeDevices
from deviceplugin.node.events import Notice
from deviceplugin.node.inventory import NodePatch, Terms, announcement, cordoned_uuids, node_inventory
from deviceplugin.node.publisher import NodePublisher
from scheduler.kube import objects

_AGAIN_S: Final = 1.0
_NO_CARD: Final = ""  # nobody holds ids of it, so its units are taken from the free ones
log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class NodeCards:
    """Owned by the event loop. `run` works; everything else only says that there is something to do.

    gpu_core: whether compute is announced too. tell: takes a notice on the node. changed: called after each
    announcement. whole: the cards as announced, with the units that are used outside: what was decided for pods stays
    decided when somebody else fills the card.
    """

    terms: Terms
    gpu_core: bool
    old_style_ids: bool
    states: CardStates
    view: NodeRecords
    publisher: NodePublisher
    devices: FakeDevices
    healths: HealthFile
    last_known: LastKnownFile
    wall_s: Callable[[], float]
    tell: Callable[[Notice], None]
    changed: Callable[[], None]
    latest: Inventory | None = None
    whole: tuple[inventory.Card, ...] = ()
    problem: str = ""
    _node: objects.Node | None = None
    _outside_mib: Mapping[str, int] = field(default_factory=dict)
    _announced: dict[str, tuple[Health, str]] = field(default_factory=dict)
    _cleared: str = ""
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def cards(self) -> tuple[inventory.Card, ...]:
        """As announced; none before the first announcement."""
        return self.latest.cards if self.latest else ()

    def moved(self) -> None:
        """The states of the cards, or the pods, may be different."""
        self._moved.set()

    def seen(self, node: objects.Node | None) -> None:
        """The node as the watch shows it now."""
        self._node = node
        self._moved.set()

    def outside(self, used_mib: Mapping[str, int]) -> None:
        """MiB that processes outside the books use, by card: announced as less free."""
        self._outside_mib = dict(used_mib)
        self._moved.set()

    async def run(self) -> None:
        """Announce forever. Raises device_ids.TooManyDevices: the unit is too small for these cards."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            if not self.states.cards and not self.states.driver:
                continue  # The driver has named no card yet, and none is remembered.
            self._obey_operator()
            await self._announce()

    async def follow_pods(self) -> None:
        """Look again whenever pods come and go: it decides which of the devices are unhealthy."""
        while True:
            await self.view.pods.change()
            self._moved.set()

    def _obey_operator(self) -> None:
        text = self._said(names.CLEAR_HEALTH)
        if text and text != self._cleared:
            uuids, _ = cordoned_uuids(text, self.states.cards)
            log.info("health.cleared", uuids=sorted(uuids), annotation=text)
            self.states.cleared(uuids, self.wall_s())
        self._cleared = text

    async def _announce(self) -> None:
        cordoned, cordon = cordoned_uuids(self._said(names.CORDON), self.states.cards)
        announced = self.states.announced()

        def described(outside_mib: Mapping[str, int]) -> Inventory:
            return node_inventory(self.states.driver, self.states.cards, announced, cordoned, self.terms, outside_mib)

        whole, found = described({}), described(self._outside_mib)
        self._check(whole)
        self.latest, self.whole = found, whole.cards
        wanted = announcement(found, self.view.resources, gpu_core=self.gpu_core)
        self.publisher.want(NodePatch({**wanted.annotations, **self._answers(cordon)}, wanted.capacity))
        # Only now: what was wanted of the node as it was before may undo what somebody has just said on it.
        self.publisher.seen(self._node)
        for turn in turns(self.states.cards, self._announced, announced):
            self.tell(_notice(turn))
        self._announced = announced
        self._save(found)
        await self._list(whole, found)
        self.changed()

    def _check(self, whole: Inventory) -> None:
        shared = [card.memory_mib for card in whole.cards if card.units]
        device_ids.check(shared, whole.unit_mib, old_style=self.old_style_ids)

    def _answers(self, cordon: str) -> dict[str, str | None]:
        """Answers to what people wrote on the node: indexes become UUIDs, an order that was obeyed is removed."""
        answers: dict[str, str | None] = {}
        if cordon != self._said(names.CORDON):
            answers[names.CORDON] = cordon
        if self._cleared:
            answers[names.CLEAR_HEALTH] = None
        return answers

    def _said(self, key: str) -> str:
        """What people wrote on the node; nothing before the driver has named its cards: only then is an index known."""
        annotations = self._node.metadata.annotations if self._node and self.states.driver else None
        return (annotations or {}).get(key, "")

    def _save(self, found: Inventory) -> None:
        try:
            if self.states.driver:  # What is only remembered must not pass for known since the machine started.
                self.last_known.save(inventory.encode(found))
            self.healths.save(self.states.healths)
        except OSError as error:
            self.problem = f"cannot write the state directory: {error}"
            log.warning("state.write_failed", reason=str(error))
        else:
            self.problem = ""

    async def _list(self, whole: Inventory, found: Inventory) -> None:
        """The devices for the kubelet. Which units are unhealthy: `device_ids.unhealthy`.

        whole: without what is used outside. Its units stay in the list, since a container of any card may hold the ids;
        as many free ones are unhealthy.
        """
        ids = device_ids.device_ids(whole.cards, old_style=self.old_style_ids)
        unhealthy_units = {card.uuid: card.units for card in whole.cards if card.health is Health.UNHEALTHY}
        given_up = sum(
            full.units - left.units
            for full, left in zip(whole.cards, found.cards, strict=True)
            if left.health is not Health.UNHEALTHY
        )
        unhealthy: frozenset[str] = frozenset()
        if any(unhealthy_units.values()) or given_up:
            try:
                view = await self.view.look()
            except CheckpointError as error:
                log.warning("devices.unknown_holders", reason=str(error))
                asyncio.get_running_loop().call_later(_AGAIN_S, self._moved.set)
                return
            before = frozenset(name for name, healthy in self.devices.now if not healthy)
            holders = held_by(view.entries, view.pods, whole, self.view.resources.gpu_mem, before)
            unhealthy = device_ids.unhealthy(ids, {**unhealthy_units, _NO_CARD: given_up}, holders, before)
        self.devices.show(device_ids.listed(ids, unhealthy))


def held_by(
    entries: Iterable[CheckpointEntry], pods: Iterable[NodePod], found: Inventory, resource: str, before: frozenset[str]
) -> dict[str, frozenset[str]]:
    """Device id -> UUIDs of the cards decided for the containers that hold it; none of them where that is not known.

    before: the unhealthy ids. Nobody is given such an id, so one that only a pod that is gone holds is free: the
    kubelet keeps the records of the dead until its next allocation (devicemanager/manager.go).
    """
    by_uid = {pod.uid: pod for pod in pods}
    holders: dict[str, frozenset[str]] = {}
    for entry in entries:
        if entry.resource != resource or (entry.pod_uid not in by_uid and entry.ids <= before):
            continue
        uuids = _cards_of(by_uid.get(entry.pod_uid), entry.container, found)
        for device in entry.ids:
            # A container whose card is not known counts as one on a healthy card.
            known = holders.get(device, uuids)
            holders[device] = known | uuids if known and uuids else frozenset()
    return holders


def _cards_of(pod: NodePod | None, container: str, found: Inventory) -> frozenset[str]:
    if pod is None:
        return frozenset()
    try:
        shares = decided(pod, found.cards, found.unit_mib).shares.get(container, ())
    except Undecided:
        return frozenset()
    return frozenset(share.uuid for share in shares)


def _notice(turn: Turn) -> Notice:
    now, reason = turn.now
    of = f"card {turn.card.index} ({turn.card.uuid})"
    if now is Health.HEALTHY:
        return Notice("GPUHealthy", f"{of} is healthy again", warning=False)
    if reason == RECOVERING:
        return Notice(
            "GPURecovering",
            f"{of} is recovering: it takes new pods after {GOOD_FOR_S:g} s of good readings",
            warning=False,
        )
    if now is Health.SUSPECT:
        return Notice("GPUSuspect", f"{of} is suspect and takes no new pods: {reason}")
    return Notice("GPUUnhealthy", f"{of} is unhealthy: {reason}; its memory units are no longer allocatable")
