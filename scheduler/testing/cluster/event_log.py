"""The Events that clients have written, in order, as a server would accept them.

A note that is too long is cut, as a client does before it sends it; other invalid Events are rejected. Source of the
rules: pkg/apis/core/validation/events.go (validateV1EventSeries and its like), Kubernetes 1.36.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from scheduler.kube.events import cut_note
from scheduler.kube.port import ApiConflict, ApiNotFound, ApiRejected, EventRecord, EventSeries

_FIELD_BYTES: Final = 128
# IsDNS1123Subdomain of apimachinery, pkg/api/validate/content/dns.go.
_NAME_BYTES: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An Event. series: None until it was seen a second time."""

    record: EventRecord
    series: EventSeries | None = None


class EventLog:
    """namespace_exists: checked before an Event is created."""

    def __init__(self, namespace_exists: Callable[[str], bool]) -> None:
        self._namespace_exists = namespace_exists
        self._events: dict[tuple[str, str], StoredEvent] = {}

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[StoredEvent]:
        """Events in order of creation."""
        return iter(self._events.values())

    def about(self, namespace: str, name: str) -> list[StoredEvent]:
        """Events about one object, in order of creation; reads every event."""
        return [e for e in self if (e.record.namespace, e.record.object_name) == (namespace, name)]

    def create(self, record: EventRecord) -> None:
        """Store a new event; raises ApiRejected, ApiNotFound (no such namespace), ApiConflict (the name is taken)."""
        if problem := _problem(record):
            raise ApiRejected(f'Event "{record.name}" is invalid: {problem}', 422)
        key = _key(record)
        if not self._namespace_exists(key[0]):
            raise ApiNotFound(f'namespaces "{key[0]}" not found', 404)
        if key in self._events:
            raise ApiConflict(f'events.events.k8s.io "{record.name}" already exists', 409)
        self._events[key] = StoredEvent(replace(record, note=cut_note(record.note)))

    def update(self, record: EventRecord, series: EventSeries) -> None:
        """Set the series; raises ApiNotFound."""
        key = _key(record)
        if key not in self._events:
            raise ApiNotFound(f'events.events.k8s.io "{record.name}" not found', 404)
        self._events[key] = replace(self._events[key], series=series)

    def expire(self) -> None:
        """Forget every event, as the server does an hour after the last write to each."""
        self._events.clear()


def _key(record: EventRecord) -> tuple[str, str]:
    return record.namespace or "default", record.name


def _problem(record: EventRecord) -> str | None:
    """The first error for which a server would reject it. Lengths are in bytes, as Go's `len`."""
    if len(record.name) > _NAME_BYTES or not _NAME.fullmatch(record.name):
        return f'metadata.name: Invalid value: "{record.name}"'
    fields = {
        "reportingController": record.reporting_controller,
        "reportingInstance": record.reporting_instance,
        "action": record.action,
        "reason": record.reason,
    }
    for name, value in fields.items():
        if not value:
            return f"{name}: Required value"
        if len(value.encode()) > _FIELD_BYTES:
            return f"{name}: can have at most {_FIELD_BYTES} characters"
    if record.type not in {"Normal", "Warning"}:
        return f'type: Invalid value: "{record.type}"'
    return None
