"""Handlers that put watch events of claims, volumes and other storage objects into the tables.

No handler awaits. An invalid object is reported and treated as absent.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from config.protocol.quantity import QuantityError
from scheduler.intake.reports import Reports
from scheduler.kube import port, storage
from scheduler.kube.port import Changed, Deleted, Kind, Undecodable, WatchEvent
from scheduler.kube.problem import Problem
from scheduler.kube.size_limits import TooLargeError
from scheduler.state.tables import Tables
from scheduler.state.volumes.claim import claim_of
from scheduler.state.volumes.storage_class import capacity_of, class_of
from scheduler.state.volumes.volume import Attachment, volume_of
from scheduler.state.volumes.volumes import Volumes

# Called with namespace, name, and the object or None if it was deleted. Raises before it changes the volumes.
_Write: TypeAlias = Callable[[Volumes, str, str, Any], None]
# Maximum drivers of a node: some nodes have a dozen.
_MOST_DRIVERS: Final = 64


class VolumeHandlers:
    """Handlers for events of storage objects. Each takes a batch of events in order."""

    def __init__(self, tables: Tables, reports: Reports) -> None:
        """reports: gets each problem, and the key of each claim or volume that was created, changed or deleted."""
        self._tables, self._reports = tables, reports

    def handle(self, kind: Kind[Any], events: Iterable[WatchEvent[Any]]) -> None:
        """Handle a batch. kind: one of `port.OF_STORAGE`."""
        for event in events:
            if isinstance(event, Changed | Deleted):
                meta = event.object.metadata
                self._set(kind, meta.namespace, meta.name, event.object if isinstance(event, Changed) else None)
            elif isinstance(event, Undecodable):
                namespace, _, name = event.name.rpartition("/")
                self._set(kind, namespace, name, None)
                self._reports.problem(Problem(kind.api_kind, event.name, event.error, on_object=False))

    def _set(self, kind: Kind[Any], namespace: str, name: str, found: Any) -> None:  # noqa: ANN401 - of the kind
        write, volumes = _WRITERS[kind.name], self._tables.volumes
        try:
            write(volumes, namespace, name, found)
        except (QuantityError, TooLargeError) as error:
            write(volumes, namespace, name, None)
            about = f"{namespace}/{name}" if namespace else name
            self._reports.problem(Problem(kind.api_kind, about, str(error), on_object=False))
        self._tables.volumes_changed()
        if kind is port.CLAIMS:
            self._reports.volume_seen((namespace, name))
        elif kind is port.VOLUMES:
            self._reports.volume_seen(name)


def _claim(volumes: Volumes, namespace: str, name: str, found: storage.PersistentVolumeClaim | None) -> None:
    volumes.set_claim((namespace, name), None if found is None else claim_of(found))


def _volume(volumes: Volumes, _: str, name: str, found: storage.PersistentVolume | None) -> None:
    volumes.set_volume(name, None if found is None else volume_of(found))


def _class(volumes: Volumes, _: str, name: str, found: storage.StorageClass | None) -> None:
    volumes.set_class(name, None if found is None else class_of(found))


def _node(volumes: Volumes, _: str, name: str, found: storage.CSINode | None) -> None:
    drivers = () if found is None else (found.spec.drivers or ())[:_MOST_DRIVERS]
    limits = {driver.name: None if driver.allocatable is None else driver.allocatable.count for driver in drivers}
    volumes.set_drivers(name, limits)


def _driver(volumes: Volumes, _: str, name: str, found: storage.CSIDriver | None) -> None:
    tells = found is not None and found.spec.storage_capacity
    needed = found is not None and bool(found.spec.prevent_pod_scheduling_if_missing)
    volumes.set_driver(name, tells_capacity=tells, needed=needed)


def _capacity(volumes: Volumes, namespace: str, name: str, found: storage.CSIStorageCapacity | None) -> None:
    volumes.set_capacity(f"{namespace}/{name}", None if found is None else capacity_of(found))


def _attachment(volumes: Volumes, _: str, name: str, found: storage.VolumeAttachment | None) -> None:
    spec = None if found is None else found.spec
    counts = spec is not None and spec.attacher and spec.source.persistent_volume_name
    attachment = (
        Attachment(spec.attacher, spec.node_name, spec.source.persistent_volume_name)
        if spec is not None and counts
        else None
    )
    volumes.set_attachment(name, attachment)


_WRITERS: Final[Mapping[str, _Write]] = {
    port.CLAIMS.name: _claim,
    port.VOLUMES.name: _volume,
    port.STORAGE_CLASSES.name: _class,
    port.CSI_NODES.name: _node,
    port.CSI_DRIVERS.name: _driver,
    port.CAPACITIES.name: _capacity,
    port.ATTACHMENTS.name: _attachment,
}
