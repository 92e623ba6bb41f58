"""State of the node when a call arrives: the watch's pods and the kubelet's records. Decides nothing."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog
from cachetools import LRUCache

from config.protocol import booked_cards
from config.protocol.inventory import Card
from config.protocol.quantity import QuantityError
from config.settings.scheduler import Resources
from deviceplugin.allocation.decision import Undecided, allocated_units, decided
from deviceplugin.allocation.identify import KubeletPod, NodeState
from deviceplugin.allocation.journal import Journal, PodRequests
from deviceplugin.allocation.pods import FirstCards, NodePod, read_pod
from deviceplugin.allocation.start_errors import WatchedPod
from deviceplugin.events import EventRecorder, NodeEvent
from deviceplugin.kubelet import checkpoint
from deviceplugin.kubelet.checkpoint import CheckpointEntry, CheckpointError
from deviceplugin.kubelet.client import PodResources
from scheduler.kube import objects
from scheduler.kube.port import Changed, Deleted, Kind, ListEnds, WatchEvent


def kind_of(node: str) -> Kind[WatchedPod]:
    """Return the watched kind: pods that are bound to `node` and have not finished."""
    selector = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    return Kind("pods", WatchedPod, "/api/v1/pods", selector)


@dataclass(slots=True)
class OwnPods:
    """This node's pods, by UID. `change` returns after each batch. complete: a whole list has been received."""

    complete: bool = False
    _by_uid: dict[str, objects.PodObject] = field(default_factory=dict)
    _waiting: list["asyncio.Future[None]"] = field(default_factory=list)

    def apply(self, batch: Sequence[WatchEvent[objects.PodObject]]) -> None:
        """Apply a batch of watch events."""
        for event in batch:
            match event:
                case Changed(pod):
                    self._by_uid[pod.metadata.uid] = pod
                case Deleted(pod):
                    self._by_uid.pop(pod.metadata.uid, None)
                case ListEnds():
                    self.complete = True
                case _:
                    pass
        self.wake()

    def wake(self) -> None:
        """Make `change` return because something else has changed."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def __iter__(self) -> Iterator[objects.PodObject]:
        return iter(tuple(self._by_uid.values()))

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: str) -> objects.PodObject | None:
        """Return the pod with this UID."""
        return self._by_uid.get(uid)

    def runtime_class(self, uid: str) -> str:
        """Return `runtimeClassName` of the pod with this UID; "" if it has none or is unknown."""
        pod = self.get(uid)
        return pod.spec.runtime_class_name if pod else ""

    async def change(self) -> None:
        """Wait for the next batch or the next call of `wake`."""
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(one)
        await one


# At 100 queries a second, enough for several hundred pods that wait at the same time.
_ANSWERS_WITHIN_S: Final = 5.0
_REMEMBERED: Final = 1024
log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class NodeRecords:
    """The node's records. checkpoint: the kubelet's file. unit_mib: the node's unit.

    cards: this node's, as announced now, including the units used outside: decisions for pods stay valid if another
    process fills the card. Empty before the first announcement; `NodeCards` sets them.
    recorder: reports each pod whose allocation has changed, once.
    Owned by the event loop; files are read in a thread.
    """

    resources: Resources
    pods: OwnPods
    journal: Journal
    kubelet: PodResources
    checkpoint: Path
    recorder: EventRecorder
    unit_mib: int
    cards: tuple[Card, ...] = ()
    _read: dict[str, "_Read"] = field(default_factory=dict)
    _reported: LRUCache[str, None] = field(default_factory=lambda: LRUCache(_REMEMBERED))

    async def snapshot(self) -> NodeState:
        """Return pods and records, without the kubelet's answers about each pod. Raises CheckpointError."""
        entries = await asyncio.to_thread(self._entries)
        return NodeState(self.resources.gpu_mem, self.asking(), entries)

    async def confirmed(self, view: NodeState, uids: Collection[str]) -> NodeState:
        """Return the view with the kubelet's answers for its pods in `uids`.

        Raises KubeletSilent.
        """
        wanted = [pod for pod in view.pods if pod.uid in uids]
        shown = await asyncio.gather(*(self._shown(pod) for pod in wanted))
        return replace(view, shown={pod.uid: one for pod, one in zip(wanted, shown, strict=True)})

    def asking(self) -> list[NodePod]:
        """Return the pods that request GPU memory, each with the first allocation seen on it."""
        # Runs at every call of the kubelet; hardly any pod has changed since the last one.
        known, cards = self._read, self.cards
        self._read = {
            wire.metadata.uid: seen
            if (seen := known.get(wire.metadata.uid)) and seen.wire is wire and (seen.final or seen.cards is cards)
            else self._pod(wire, cards)
            for wire in self.pods
        }
        self._save()
        return [seen.pod for seen in self._read.values() if seen.pod is not None]

    def allocated_units(self) -> dict[str, int]:
        """Return UUID -> units that pods have on the card."""
        return allocated_units(self.asking(), self.cards, self.unit_mib)

    def _pod(self, wire: objects.PodObject, cards: Sequence[Card]) -> "_Read":
        """Read the pod again; `pod` is None if it requests no GPU memory or cannot be read."""
        try:
            resources = self.resources
            pod = read_pod(wire, gpu_mem=resources.gpu_mem, gpu_count=resources.gpu_count, gpu_core=resources.gpu_core)
        except QuantityError as error:
            name = f"{wire.metadata.namespace}/{wire.metadata.name}"
            log.warning("object.bad", kind="Pod", name=name, problem=str(error))
            return _Read(wire, cards, None)
        if not pod.asking():
            return _Read(wire, cards, None)
        pod = self._as_at_first(pod, cards)
        if pod.changed and pod.uid not in self._reported:
            self._reported[pod.uid] = None
            self._report_change(pod)
        return _Read(wire, cards, pod)

    def _report_change(self, pod: NodePod) -> None:
        keys = ", ".join(pod.changed)
        note = f"its allocation changed ({keys}); the change is ignored, and its containers keep their cards"
        self.recorder.record(NodeEvent("GPUAllocationChanged", note, pod.key))

    def _as_at_first(self, pod: NodePod, cards: Sequence[Card]) -> NodePod:
        """Return the pod with its first allocation, requests and cards; decides the cards now if undecided."""
        readable = booked_cards.read(pod.annotations, pod.ask()).decided
        requests = PodRequests(pod.gpu_count, pod.exclusive)
        first = self.journal.first(pod.uid, pod.annotations, requests, readable=readable)
        pod = replace(
            pod,
            annotations=first.annotations,
            gpu_count=first.requests.gpu_count,
            exclusive=first.requests.exclusive,
            changed=first.changed,
            first_cards=self._kept(pod, first.cards),
        )
        if pod.first_cards is None and cards:
            try:
                decision = decided(pod, cards, self.unit_mib).first_cards()
            except Undecided:
                return pod
            self.journal.decide(pod.uid, decision)
            pod = replace(pod, first_cards=decision)
        return pod

    def _kept(self, pod: NodePod, kept: FirstCards | None) -> FirstCards | None:
        """Return the journal's cards; None if they leave out a container: another program then wrote the journal."""
        lacking = sorted({container.name for container in pod.asking()} - kept.units.keys()) if kept else []
        if not lacking:
            return kept
        log.warning("journal.wrong", pod=str(pod), lacking=lacking)
        self.journal.undecide(pod.uid)
        return None

    def _save(self) -> None:
        try:
            self.journal.save()
        except OSError as error:
            # Kept in memory until this process ends.
            log.warning("journal.write_failed", reason=str(error))

    async def _shown(self, pod: NodePod) -> KubeletPod | None:
        held = await self.kubelet.of_pod(pod.namespace, pod.name, timeout_s=_ANSWERS_WITHIN_S)
        return None if held is None else KubeletPod({one.container: one.ids for one in held})

    def _entries(self) -> tuple[CheckpointEntry, ...]:
        try:
            return checkpoint.parse(self.checkpoint.read_bytes())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise CheckpointError(f"kubelet checkpoint cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Read:
    """A pod as it was read while the node had these cards. pod: None if it is irrelevant."""

    wire: objects.PodObject
    cards: Sequence[Card]
    pod: NodePod | None

    @property
    def final(self) -> bool:
        """Whether reading it again would give the same result, whatever the node's cards are."""
        return self.pod is None or self.pod.first_cards is not None
