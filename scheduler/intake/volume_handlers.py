"""Handlers that put watch events of claims, volumes and other storage objects into the tables.

No handler awaits. An invalid object is reported and treated as absent.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from config.protocol.quantity import QuantityError
from scheduler.kube import port, storage
from scheduler.kube.port import Changed, Deleted, Kind, Undecodable, WatchEvent
from scheduler.kube.problem import Problem
from scheduler.kube.size_limits import TooLargeError
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.volumes.claim import claim_of
from scheduler.state.volumes.storage_class import capacity_of, class_of
from scheduler.state.volumes.volume import Attachment, volume_of
from scheduler.state.volumes.volumes import Volumes

# (namespace, name, object or None if deleted) -> change of the tables.
_Read: TypeAlias = Callable[[str, str, Any], Callable[[Volumes], None]]
# Maximum drivers of a node: some nodes have a dozen.
_MOST_DRIVERS: Final = 64


class VolumeHandlers:
    """Handlers for events of storage objects. Each takes a batch of events in order."""

    def __init__(
        self,
        change: Callable[[Callable[[Volumes], None]], None],
        *,
        report: Callable[[Problem], None],
        seen: Callable[[ClaimKey | str], None],
    ) -> None:
        """change: applies a change to the tables. report: called with each Problem.

        seen: called with the key of each claim, and the name of each volume, that was created, changed or deleted.
        """
        self._change = change
        self._report = report
        self._seen = seen

    def handle(self, kind: Kind[Any], events: Iterable[WatchEvent[Any]]) -> None:
        """Handle a batch. kind: one of `port.OF_STORAGE`."""
        for event in events:
            if isinstance(event, Changed | Deleted):
                meta = event.object.metadata
                self._set(kind, meta.namespace, meta.name, event.object if isinstance(event, Changed) else None)
            elif isinstance(event, Undecodable):
                namespace, _, name = event.name.rpartition("/")
                self._set(kind, namespace, name, None)
                self._report(Problem(kind.api_kind, event.name, event.error, on_object=False))

    def _set(self, kind: Kind[Any], namespace: str, name: str, found: Any) -> None:  # noqa: ANN401 - of the kind
        read = _READERS[kind.name]
        try:
            change = read(namespace, name, found)
        except (QuantityError, TooLargeError) as error:
            change = read(namespace, name, None)
            about = f"{namespace}/{name}" if namespace else name
            self._report(Problem(kind.api_kind, about, str(error), on_object=False))
        self._change(change)
        if kind is port.CLAIMS:
            self._seen((namespace, name))
        elif kind is port.VOLUMES:
            self._seen(name)


def _claim(namespace: str, name: str, found: storage.PersistentVolumeClaim | None) -> Callable[[Volumes], None]:
    claim = None if found is None else claim_of(found)
    return lambda volumes: volumes.set_claim((namespace, name), claim)


def _volume(_: str, name: str, found: storage.PersistentVolume | None) -> Callable[[Volumes], None]:
    volume = None if found is None else volume_of(found)
    return lambda volumes: volumes.set_volume(name, volume)


def _class(_: str, name: str, found: storage.StorageClass | None) -> Callable[[Volumes], None]:
    known = None if found is None else class_of(found)
    return lambda volumes: volumes.set_class(name, known)


def _node(_: str, name: str, found: storage.CSINode | None) -> Callable[[Volumes], None]:
    drivers = () if found is None else (found.spec.drivers or ())[:_MOST_DRIVERS]
    limits = {
        driver.name: driver.allocatable.count
        for driver in drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }
    return lambda volumes: volumes.set_limits(name, limits)


def _driver(_: str, name: str, found: storage.CSIDriver | None) -> Callable[[Volumes], None]:
    tells = found is not None and found.spec.storage_capacity
    return lambda volumes: volumes.set_driver(name, tells_capacity=tells)


def _capacity(namespace: str, name: str, found: storage.CSIStorageCapacity | None) -> Callable[[Volumes], None]:
    capacity = None if found is None else capacity_of(found)
    return lambda volumes: volumes.set_capacity(f"{namespace}/{name}", capacity)


def _attachment(_: str, name: str, found: storage.VolumeAttachment | None) -> Callable[[Volumes], None]:
    spec = None if found is None else found.spec
    counts = spec is not None and spec.attacher and spec.source.persistent_volume_name
    attachment = (
        Attachment(spec.attacher, spec.node_name, spec.source.persistent_volume_name)
        if spec is not None and counts
        else None
    )
    return lambda volumes: volumes.set_attachment(name, attachment)


_READERS: Final[Mapping[str, _Read]] = {
    port.CLAIMS.name: _claim,
    port.VOLUMES.name: _volume,
    port.STORAGE_CLASSES.name: _class,
    port.CSI_NODES.name: _node,
    port.CSI_DRIVERS.name: _driver,
    port.CAPACITIES.name: _capacity,
    port.ATTACHMENTS.name: _attachment,
}
