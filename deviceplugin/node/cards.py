"""Announces the node's cards to the API server and to the kubelet, and keeps the announcements current.

states of the cards ─┐
cordon (node)        ├──▶ inventory ──▶ publisher (node annotation, capacity)
use outside          ┘        │
pods, checkpoint ─────────────┴──────▶ fake devices (kubelet): the held ones, and one free one per remaining unit
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog

from config.protocol import inventory, names
from config.protocol.inventory import Health, Inventory
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.cdi.mode import Injection
from deviceplugin.driver.cards import and_instances
from deviceplugin.driver.cuda import sentence
from deviceplugin.events import EventRecorder, NodeEvent
from deviceplugin.health.record import HealthFile, LastKnownFile
from deviceplugin.health.rules import GOOD_FOR_S, RECOVERING, RELEASED
from deviceplugin.health.states import CardStates, HealthChange, as_reported, health_changes
from deviceplugin.kubelet import device_ids
from deviceplugin.node.card_isolation import CardIsolation, NodeCardIsolation
from deviceplugin.node.devices import NodeDevices
from deviceplugin.node.inventory import NodePatch, Terms, announcement, cordoned_uuids, node_inventory, unknown_names
from deviceplugin.node.publisher import NodePublisher
from scheduler.kube import objects
from scheduler.process.clock import Clock

_AGAIN_S: Final = 1.0
# A driver of many cards takes a few seconds; the plugin does not wait for a missing one.
_DRIVER_WITHIN_S: Final = 5.0
# Longer than any start of the plugin. A kubelet reports at least every five minutes, and on every change.
HELD_FOR_S: Final = 60.0
_SHOWN_WORDS: Final = 256
_DESTROYED: Final = "GPUInstanceDestroyed"
_HEALTHY: Final = (Health.HEALTHY, "")
_UNCOVERED: Final = (Health.SUSPECT, inventory.NO_INJECTION)
log = structlog.get_logger()


class _ReleaseAnnotation(Protocol):
    """Port: `health.releases.Releases`."""

    async def follow(self, text: str) -> bool:
        """Apply the text of the annotation `gpushare/release`. Return whether it is served and can be removed."""
        ...


@dataclass(slots=True, kw_only=True)
class NodeCards:
    """Announcements of the node's cards. Owned by the event loop. Only `run` does the work; others request a run.

    gpu_core: whether compute is announced too. moved: set to request a run: the states of the cards, or the pods, may
    have changed. changed: called after each announcement. untrusted_until_s: Unix seconds until which the scheduler is
    asked to wait although a kubelet follows the devices.
    """

    terms: Terms
    gpu_core: bool
    states: CardStates
    view: NodeRecords
    publisher: NodePublisher
    devices: NodeDevices
    healths: HealthFile
    last_known: LastKnownFile
    clock: Clock
    recorder: EventRecorder
    releases: _ReleaseAnnotation
    injection: Injection
    isolation: NodeCardIsolation
    moved: asyncio.Event
    changed: Callable[[], None]
    untrusted_until_s: float = 0.0
    latest: Inventory | None = None
    problem: str = ""
    _shown: objects.Node | None = None
    _node: objects.Node | None = None
    _outside_mib: Mapping[str, int] = field(default_factory=dict)
    _reported: dict[str, tuple[Health, str]] = field(default_factory=dict)
    _cleared: str = ""
    _release_over: bool = False
    _followed: bool = False
    _held_until: str | None = None
    _reported_cordon: str = ""
    _reported_cuda: str = ""
    _named: asyncio.Event = field(default_factory=asyncio.Event)
    _listed: asyncio.Event = field(default_factory=asyncio.Event)
    _soon: asyncio.TimerHandle | None = None

    @property
    def cards(self) -> tuple[inventory.Card, ...]:
        """The announced cards; empty before the first announcement."""
        return self.latest.cards if self.latest else ()

    def seen(self, node: objects.Node | None) -> None:
        """Record the node as the watch shows it now."""
        self._shown = node
        self.moved.set()

    def registered(self, *, now: bool) -> None:
        """Record whether a kubelet follows the devices; while none does, the scheduler is asked to wait."""
        self._followed = now
        self._held_until = self._asked_wait()
        if self.latest:
            # At once: a stopping plugin waits until the current announcement is written.
            self.publisher.want_also({names.HELD_UNTIL: self._held_until})
        self.moved.set()

    def asking_to_wait(self) -> dict[str, str]:
        """Ask the scheduler to wait from now on, because this plugin is about to end. Return the annotation for it."""
        return {names.HELD_UNTIL: _time(self.clock.wall_s() + HELD_FOR_S)}

    async def listed(self) -> None:
        """Wait until devices are listed, from cards that the driver names, or from remembered ones if it is slow."""
        await self._listed.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRIVER_WITHIN_S):
                await self._named.wait()

    def outside(self, used_mib: Mapping[str, int]) -> None:
        """Record the MiB that unregistered processes use on each card, which the announcement then leaves out."""
        self._outside_mib = dict(used_mib)
        self.moved.set()

    async def run(self) -> None:
        """Announce forever. Raises device_ids.TooManyDevices: the unit is too small for these cards."""
        while True:
            await self.moved.wait()
            self.moved.clear()
            # One snapshot of the node per round: an order that arrives meanwhile is not removed with the previous one.
            self._node = self._shown
            if not self.states.cards and not self.states.driver:
                continue  # The driver has named no card yet, and none is remembered.
            self._clear_health()
            # The node's annotations are unknown, or its object is missing: no operator has reclaimed cards by that.
            if self._node is not None:
                self._release_over = await self.releases.follow(self._annotation(names.RELEASE))
            await self._announce()

    async def follow_pods(self) -> None:
        """Request a run whenever pods come or go, because pods determine which devices are unhealthy."""
        while True:
            await self.view.pods.change()
            self.moved.set()

    def _clear_health(self) -> None:
        text = self._operator_text(names.CLEAR_HEALTH)
        if text and text != self._cleared:
            uuids = and_instances(cordoned_uuids(text, self.states.cards)[0], self.states.cards)
            log.info("health.cleared", uuids=sorted(uuids), annotation=text)
            self.states.cleared(uuids, self.clock.wall_s())
        self._cleared = text

    async def _announce(self) -> None:
        cordoned, cordon = cordoned_uuids(self._operator_text(names.CORDON), self.states.cards)
        announced = self._usable(self.states.announced())
        withheld = inventory.NO_INJECTION if self.injection.withheld or self.states.cuda_problem() else ""
        isolation, unknown = self.isolation.for_inventory(), CardIsolation()

        def described(outside_mib: Mapping[str, int]) -> Inventory:
            found = node_inventory(self.states.driver, self.states.cards, announced, cordoned, self.terms, outside_mib)
            cards = tuple(
                replace(card, isolation=one.kind, unenforced=one.unenforced, compute=one.compute)
                for card in found.cards
                for one in (isolation.get(card.uuid, unknown),)
            )
            return replace(found, cards=cards, withheld=withheld)

        whole, found = described({}), described(self._outside_mib)
        self._check(whole)
        self._report_destroyed(whole.cards)
        self.latest, self.view.cards = found, whole.cards
        wanted = announcement(found, self.view.resources, gpu_core=self.gpu_core)
        said = {names.HELD_UNTIL: self._held_until, **self._answers(cordon)}
        self.publisher.want(NodePatch({**wanted.annotations, **said}, wanted.capacity))
        # Only now: an announcement for the earlier node might revert an operator's newer annotation.
        self.publisher.seen(self._node)
        reported = as_reported(self._reported, announced)
        for change in health_changes(self.states.cards, self._reported, reported):
            self.recorder.record(_node_event(change, self.injection.uncovered.get(change.card.uuid, "")))
        self._report_stray_cordon()
        self._report_cuda()
        self._reported = reported
        self._save(found)
        self._again(wanted=not await self.devices.show(whole, found))
        self._listed.set()
        if self.states.driver:
            self._named.set()
        self.changed()

    def _usable(self, healths: Mapping[str, tuple[Health, str]]) -> dict[str, tuple[Health, str]]:
        """Return the health of each card; a card that containers cannot get takes no new pods and affects no other."""
        out = {uuid: _UNCOVERED for uuid in self.injection.uncovered if healths.get(uuid) == _HEALTHY}
        return {**healths, **out}

    def _again(self, *, wanted: bool) -> None:
        """Plan another round if `wanted`, and cancel the one that was planned before."""
        if self._soon is not None:
            self._soon.cancel()
        self._soon = asyncio.get_running_loop().call_later(_AGAIN_S, self.moved.set) if wanted else None

    def _asked_wait(self) -> str | None:
        """Return the time until which the scheduler is asked to wait; None if it is not asked."""
        now_s = self.clock.wall_s()
        if not self._followed:
            return _time(max(now_s + HELD_FOR_S, self.untrusted_until_s))
        if now_s >= self.untrusted_until_s:
            return None
        asyncio.get_running_loop().call_later(self.untrusted_until_s - now_s, self._trusted)
        return _time(self.untrusted_until_s)

    def _trusted(self) -> None:
        if self._followed:
            self.registered(now=True)

    def _check(self, whole: Inventory) -> None:
        shared = [card.memory_mib for card in whole.cards if card.units]
        device_ids.check(shared, whole.unit_mib, old_style=self.devices.old_style)

    def problems(self) -> list[str]:
        """Return messages for operators: rejected writes, and cordons that name no card."""
        return [text for text in (self.publisher.problem, self._stray_cordon(), self._untrusted()) if text]

    def _untrusted(self) -> str:
        if self.clock.wall_s() >= self.untrusted_until_s:
            return ""
        until = _time(self.untrusted_until_s)
        return f"the plugin was killed twice in a row; it accepts no GPU pods until {until}"

    def _stray_cordon(self) -> str:
        stray = unknown_names(self._operator_text(names.CORDON), self.states.cards)
        if not stray:
            return ""
        return f"{names.CORDON} lists cards that this node does not have: {', '.join(stray)[:_SHOWN_WORDS]}"

    def _report_stray_cordon(self) -> None:
        """Report a cordon that names no card, once per text, because its author expects it to have an effect."""
        stray = self._stray_cordon()
        if stray and stray != self._reported_cordon:
            self.recorder.record(NodeEvent("GPUCordonUnknown", f"{stray}; these entries have no effect"))
        self._reported_cordon = stray

    def _report_destroyed(self, now: Sequence[inventory.Card]) -> None:
        """Report MIG instances that no longer exist, on the node and on the pods that have them."""
        there = {card.uuid for card in now}
        for card in self.view.cards:
            if not card.parent or card.uuid in there:
                continue
            gone = f"MIG instance {card.uuid} (card {card.index}) of card {card.parent} was destroyed"
            pods = [pod for pod in self.view.asking() if pod.has_card(card.uuid)]
            self.recorder.record(NodeEvent(_DESTROYED, f"{gone}; pods on it: {len(pods)}"))
            for pod in pods:
                self.recorder.record(NodeEvent(_DESTROYED, f"{gone}, which this pod has: delete the pod", pod.key))

    def _report_cuda(self) -> None:
        """Report once that CUDA starts on no card."""
        problem = self.states.cuda_problem()
        if problem and problem != self._reported_cuda:
            self.recorder.record(NodeEvent("GPUNotReady", problem))
        self._reported_cuda = problem

    def _answers(self, cordon: str) -> dict[str, str | None]:
        """Return replies to operators' annotations: indexes become UUIDs, a served request is removed."""
        answers: dict[str, str | None] = {}
        if cordon != self._operator_text(names.CORDON):
            answers[names.CORDON] = cordon
        if self._cleared:
            answers[names.CLEAR_HEALTH] = None
        if self._release_over:
            answers[names.RELEASE] = None
        return answers

    def _operator_text(self, key: str) -> str:
        """Return an operator's annotation; "" until the driver has named its cards, because it may hold indexes."""
        return self._annotation(key) if self.states.driver else ""

    def _annotation(self, key: str) -> str:
        annotations = self._node.metadata.annotations if self._node else None
        return (annotations or {}).get(key, "")

    def _save(self, found: Inventory) -> None:
        try:
            if self.states.driver:  # Remembered cards must not count as known since the machine started.
                self.last_known.save(inventory.encode(found))
            self.healths.save(self.states.healths)
        except OSError as error:
            self.problem = f"cannot write to the state directory: {error}"
            log.warning("state.write_failed", reason=str(error))
        else:
            self.problem = ""


def _time(unix_s: float) -> str:
    """Return the time as the kubelet writes it: the two are compared as text."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))


def _node_event(change: HealthChange, uncovered: str) -> NodeEvent:
    """Return the Event on a change of health. uncovered: why containers cannot get the card; "" if they can."""
    now, reason = change.now
    of = f"card {change.card.index} ({change.card.uuid})"
    if change.now == _UNCOVERED and uncovered:
        return NodeEvent("GPUSuspect", f"{of} takes no new pods: {uncovered}")
    if now is Health.HEALTHY:
        return NodeEvent("GPUHealthy", f"{of} is healthy again", warning=False)
    if reason == RECOVERING:
        return NodeEvent(
            "GPURecovering",
            f"{of} is recovering: it takes new pods after {GOOD_FOR_S:g} s of good readings",
            warning=False,
        )
    if reason == RELEASED:
        return NodeEvent("GPUReleased", f"{of} is released for maintenance and takes no new pods", warning=False)
    if now is Health.SUSPECT:
        why = ": ".join(filter(None, (reason, sentence(reason))))
        return NodeEvent("GPUSuspect", f"{of} is suspect and takes no new pods: {why}")
    return NodeEvent("GPUUnhealthy", f"{of} is unhealthy: {reason}; its memory units are no longer allocatable")
