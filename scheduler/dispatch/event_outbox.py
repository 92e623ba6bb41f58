"""Events about pods and nodes. Repeated ones become a series; of too many, the oldest of the namespace are dropped."""

from collections.abc import Sequence
from typing import Final, TypeAlias

from scheduler.dispatch.outbox import Outbox
from scheduler.dispatch.sender import Sender, Write
from scheduler.kube.events import Regarding, RepeatedEvents, Reporter, SeriesUpdate
from scheduler.kube.port import ApiConflict, ApiError, ApiNotFound, Cluster, EventRecord, PodKey
from scheduler.metrics.observer import ServiceObserver
from scheduler.process.clock import Clock
from scheduler.state.cards.booking import CardShare

# Per namespace.
_MOST_EVENTS: Final = 20_000

_Event: TypeAlias = EventRecord | SeriesUpdate


class EventOutbox(Outbox[_Event]):
    """Writer of Events. Nothing waits for them, and none is retried after a definite answer."""

    def __init__(
        self, cluster: Cluster, sender: Sender, observer: ServiceObserver, *, clock: Clock, reporter: Reporter
    ) -> None:
        super().__init__(_MOST_EVENTS)
        self._cluster = cluster
        self._sender = sender
        self._observer = observer
        self._clock = clock
        self._reporter = reporter
        self._repeated = RepeatedEvents()
        self._latest_ns = 0

    def bound(self, pod: PodKey, node: str, cards: Sequence[CardShare] = ()) -> None:
        """Report that the pod is bound, to these cards."""
        note = f"Successfully assigned {pod} to {node}{_on(cards)}"
        self._put(self._event(_regarding(pod), "Scheduled", "Binding", note, warning=False))

    def preempted(self, victim: PodKey, note: str) -> None:
        """Report that the pod is evicted for another one."""
        self._put(self._event(_regarding(victim), "Preempted", "Preempting", note, warning=False))

    def failed_scheduling(self, pod: PodKey, note: str, constant_text: tuple[str, ...]) -> None:
        """Report an attempt that did not place the pod. constant_text: see `RepeatedEvents.next_write`."""
        self._put_repeated(self._event(_regarding(pod), "FailedScheduling", "Scheduling", note), constant_text)

    def about(self, kind: str, name: str, uid: str, reason: str, note: str) -> None:
        """Report a warning about a Pod (`namespace/name`) or a Node.

        Events about nodes are in namespace `default`, with the node's name as UID, as the kubelet writes them.
        """
        namespace, _, short = name.rpartition("/")
        about = Regarding(kind, namespace or "default", short, uid or short)
        self._put_repeated(self._event(about, reason, "Scheduling", note), (note,))

    def _event(self, about: Regarding, reason: str, action: str, note: str, *, warning: bool = True) -> EventRecord:
        now_ns = self._clock.wall_ns()
        # Strictly increasing, even if the clock is set back.
        self._latest_ns = max(self._latest_ns + 1, now_ns)
        return self._reporter.event(
            about,
            warning=warning,
            reason=reason,
            action=action,
            note=note,
            now_ns=now_ns,
            unique_ns=self._latest_ns,
        )

    def _put_repeated(self, event: EventRecord, constant_text: tuple[str, ...]) -> None:
        entry = self._repeated.next_write(event, constant_text, self._clock.monotonic_s())
        if entry is not None:
            self._put(entry)

    def _put(self, entry: _Event) -> None:
        event = _record_of(entry)
        dropped = self.put(event.namespace, event.name, entry)
        if dropped is not None:
            self._observer.record_lost(
                _name_of(dropped), f"more than {_MOST_EVENTS} events of the namespace are waiting"
            )

    async def _write(self, entry: _Event) -> None:
        try:
            if self._ends:
                await self._request(entry)
            else:
                await self._sender.deliver(Write.EVENT, _record_of(entry).namespace, self._request, entry)
        except (ApiConflict, ApiNotFound):
            return  # an earlier request wrote it, or its namespace is gone
        except ApiError as error:
            self._observer.record_lost(_name_of(entry), error.message)

    async def _request(self, entry: _Event) -> None:
        if isinstance(entry, SeriesUpdate):
            try:
                await self._cluster.update_event(entry.event, entry.series)
            except ApiNotFound:
                # The first Event has expired, so this one becomes the first.
                entry = entry.event
            else:
                return
        await self._cluster.create_event(entry)


def _regarding(pod: PodKey) -> Regarding:
    return Regarding("Pod", pod.namespace, pod.name, pod.uid)


def _on(cards: Sequence[CardShare]) -> str:
    """Index and units of each card, as `, card 0 (4) and 1 (4)`; "" if there are no cards."""
    named = " and ".join(f"{share.index} ({share.units})" for share in cards)
    return f", card {named}" if named else ""


def _record_of(entry: _Event) -> EventRecord:
    return entry.event if isinstance(entry, SeriesUpdate) else entry


def _name_of(entry: _Event) -> str:
    event, what = _record_of(entry), "event series" if isinstance(entry, SeriesUpdate) else "event"
    return f"{what} {event.reason} on {event.namespace}/{event.object_name}"
