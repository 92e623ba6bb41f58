"""Isolation of each container, and for each card in the inventory."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from config.protocol import names
from config.protocol.isolation import DRIVER, MPS
from config.settings.isolation import NONE, IsolationMechanism, mps_namespace
from deviceplugin.allocation.container_share import ContainerShare, DriverLimit
from deviceplugin.allocation.start_errors import limit_hook_error
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.cdi.edits import Additions
from deviceplugin.cdi.spec import CdiError
from deviceplugin.driver.cards import DriverCard
from deviceplugin.events import EventRecorder, NodeEvent
from deviceplugin.health.states import CardStates
from deviceplugin.isolation import driver_limits, fill
from deviceplugin.isolation.directories import ContainerDirectories
from deviceplugin.isolation.driver_limits import LimitSupport
from deviceplugin.isolation.kind import NOTHING, NodeKind
from deviceplugin.isolation.mps_cards import MpsCards
from deviceplugin.isolation.mps_namespaces import MpsNamespace, namespace_of
from deviceplugin.kubelet.session import Calls
from deviceplugin.node.card_isolation import CardIsolation
from deviceplugin.report.status import AllocationStatus
from scheduler.kube.objects import PodObject

# After a start, the plugin has its daemons within a second or two; the kubelet retries later.
_READY_WITHIN_S: Final = 5.0
_AGAIN_S: Final = 5.0
_UNNAMED: Final = "the driver does not name it"


@dataclass(slots=True, kw_only=True)
class NodeIsolation:
    """`allocation.allocators.Isolation`. Owned by the event loop; files are written in a thread.

    kind: the node's. required: no container starts unless its share is enforced. soft_limits: the driver
    guarantees the request of a pod that may use more. directories: files made for containers. mps: the daemons.
    support: what limits by the driver need besides the card. view: the node's pods. again_s: seconds between two looks
    at the kind. ready_within_s: how long a container waits for its card's MPS daemon.
    """

    kind: NodeKind
    required: bool
    soft_limits: bool
    directories: ContainerDirectories
    mps: MpsCards
    states: CardStates
    support: Callable[[], LimitSupport]
    view: NodeRecords
    recorder: EventRecorder
    again_s: float = _AGAIN_S
    ready_within_s: float = _READY_WITHIN_S
    _unlimited: dict[tuple[str, str], str] = field(default_factory=dict)

    def objection(self, share: ContainerShare) -> str:
        """Return why the container can never be isolated; "" if it can."""
        mechanism = self._mechanism(share)
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
        required, mechanism = self._required_by(share), self._mechanism(share)
        if required:
            self._unlimited.pop((share.pod.uid, share.container.name), None)
        else:
            self._give_up_limits(share)
        if required and (lacking := self._unenforced(share)):
            return f"container {share.container.name} needs memory isolation ({required}): {lacking}"
        await asyncio.to_thread(self.directories.make, share, mechanism)
        if mechanism.preparation != MPS:
            return ""
        uuid = share.shares[0].uuid
        lacking = await self.mps.ready(uuid, self.ready_within_s)
        if lacking or not self._has_namespace(share):
            return lacking
        return await self.mps.admit(uuid, self._namespace(share))

    def additions(self, share: ContainerShare) -> Additions:
        """Raises CdiError if the container requires a limit that its cards have lost since `prepare`."""
        added = fill.additions(self._mechanism(share), share, str(self.directories.state))
        if limit := self.limit(share):
            return replace(added, env={**added.env, **limit.variables()})
        limited = self.kind.now == DRIVER and self.support().cdi
        if limited and (required := self._required_by(share)):
            lost = "its cards changed a moment ago, and the driver cannot limit it now"
            raise CdiError(f"container {share.container.name} needs memory isolation ({required}): {lost}")
        return added

    def limit(self, share: ContainerShare) -> DriverLimit | None:
        """Return the limits that the driver enforces for the container from its next start; None if it has none."""
        by_driver = self.kind.now == DRIVER or self._has_namespace(share)
        if not by_driver or self._without_driver(share):
            return None
        limit = share.driver_limit(self.view.cards)
        return replace(limit, soft_mib=limit.soft_mib if self.soft_limits else 0) if limit else None

    def shown(self, containers: Iterable[AllocationStatus]) -> tuple[AllocationStatus, ...]:
        """Return the containers with what enforces their shares."""
        of_cards = self.of_cards()
        given_up = {(wire.metadata.namespace, wire.metadata.name, name) for wire, name in self._without_limits()}

        def kind(one: AllocationStatus) -> str:
            kinds = {of_cards.get(uuid, "") for uuid in one.units}
            without = (one.namespace, one.pod, one.container) in given_up
            return kinds.pop() if len(kinds) == 1 and not without else ""

        return tuple(msgspec.structs.replace(one, isolation=kind(one)) for one in containers)

    def _without_limits(self) -> Iterator[tuple[PodObject, str]]:
        for uid, container in self._unlimited:
            if wire := self.view.pods.get(uid):
                yield wire, container

    def of_cards(self) -> dict[str, str]:
        """Return UUID -> what enforces shares of the card, as in the inventory; "" if nothing does."""
        if self.kind.now == DRIVER:
            return {uuid: "" if lacking else DRIVER for uuid, lacking in self.missing().items()}
        word, missing = self.kind.of_card(), self.missing()

        def kind(card: DriverCard) -> str:
            by_driver = self.kind.now == MPS and self.mps.has_namespaces(card.uuid) and not missing[card.uuid]
            return "" if card.mig or card.parent else DRIVER if by_driver else word

        return {card.uuid: kind(card) for card in self.states.cards}

    def compute_of_cards(self) -> dict[str, str]:
        """Return UUID -> how programs share the card's processors, as in the inventory."""
        serving = self.mps.serving()
        return {card.uuid: MPS if card.uuid in serving else "" for card in self.states.cards}

    def for_inventory(self) -> dict[str, CardIsolation]:
        """Return UUID -> what the inventory says of the card."""
        kinds, compute, missing = self.of_cards(), self.compute_of_cards(), self.missing()

        def unenforced(uuid: str) -> str:
            if kinds[uuid]:
                return ""
            # With another kind, limits by the driver would not be used even if they were supported.
            return missing[uuid] or f"isolation: {self.kind.now or NOTHING}"

        return {uuid: CardIsolation(kinds[uuid], unenforced(uuid), compute[uuid]) for uuid in kinds}

    def missing(self) -> dict[str, str]:
        """Return UUID -> why the driver cannot enforce shares of the card; "" if it can."""
        support = self.support()
        return {card.uuid: driver_limits.missing(card, support) for card in self.states.cards}

    def _mechanism(self, share: ContainerShare) -> IsolationMechanism:
        """Return the mechanism for the container: none on a MIG instance."""
        instances = {card.uuid for card in self.states.cards if card.parent}
        if not instances.isdisjoint(share.uuids):
            return NONE
        return self._by_namespace(share) if self._has_namespace(share) else self.kind.mechanism

    def _by_namespace(self, share: ContainerShare) -> IsolationMechanism:
        return mps_namespace(self.mps.settings, namespace_of(share.pod.uid, share.container.name))

    def _has_namespace(self, share: ContainerShare) -> bool:
        return self.kind.now == MPS and self.mps.has_namespaces(share.shares[0].uuid)

    def _namespace(self, share: ContainerShare) -> MpsNamespace:
        """Return the container's namespace. MPS limits its memory only where the driver does not."""
        limit = None if self.limit(share) else share.driver_limit(self.view.cards)
        name = namespace_of(share.pod.uid, share.container.name)
        return MpsNamespace(name, share.pod.uid, share.percent, limit.hard_mib if limit else None)

    def _unenforced(self, share: ContainerShare) -> str:
        """Return why nothing enforces the container's share; "" if something does."""
        if self.kind.now == NOTHING:
            return "nothing enforces it on this node (isolation: none)"
        if self.kind.now != DRIVER:
            return "a MIG instance is not divided further" if self._mechanism(share) is NONE else ""
        return self._without_driver(share)

    def _without_driver(self, share: ContainerShare) -> str:
        """Return why the driver does not enforce the container's share; "" if it does."""
        found = self.missing()
        lacking = [f"card {uuid}: {why}" for uuid in share.uuids if (why := found.get(uuid, _UNNAMED))]
        return "; ".join(lacking) or self._unlimited.get((share.pod.uid, share.container.name), "")

    def _give_up_limits(self, share: ContainerShare) -> None:
        """Start the container without limits from now on, if NVIDIA's hook has failed for it."""
        key = share.pod.uid, share.container.name
        error = limit_hook_error(self.view.pods.get(share.pod.uid), share.container.name)
        if not error or key in self._unlimited or self.limit(share) is None:
            return
        live = {one.metadata.uid for one in self.view.pods}
        self._unlimited = {one: why for one, why in self._unlimited.items() if one[0] in live}
        self._unlimited[key] = "NVIDIA's hook could not set its limit"
        note = (
            f"container {share.container.name} starts without a memory limit: NVIDIA's hook could not set it: {error}"
        )
        self.recorder.record(NodeEvent("GPUNotEnforced", note, share.pod.key))

    def _required_by(self, share: ContainerShare) -> str:
        """Return which setting requires that the container's share is enforced; "" if none does.

        A pod that has its cards to itself needs no limit.
        """
        if share.pod.exclusive:
            return ""
        if share.pod.annotations.get(names.ISOLATION) == names.ISOLATION_REQUIRED:
            return f"{names.ISOLATION}: {names.ISOLATION_REQUIRED}"
        return "enforcement: required" if self.required else ""

    async def decided(self) -> None:
        """Choose the kind before any container starts, unless a plugin has already chosen it for this node."""
        while not self.kind.now:
            if self.view.pods.complete:
                self._settle()
            else:
                await self.view.pods.change()

    async def follow(self, calls: Calls, moved: Callable[[], None]) -> None:
        """Choose another kind if the node is idle, forever. moved: called when the cards' isolation has changed."""
        before = self.for_inventory()
        while True:
            await asyncio.sleep(self.again_s)
            if self.view.pods.complete and not calls.allocating:
                self._settle()
            now = self.for_inventory()
            if now != before:
                before = now
                moved()

    def _settle(self) -> None:
        known = self.support().known
        if self.kind.now and not known:
            return
        limits = known and not all(self.missing().values())
        possible = any(card.limits for card in self.states.cards)
        if self.kind.settle(limits=limits, possible=possible, holders=len(self.view.asking())):
            self.mps.cards_changed()
