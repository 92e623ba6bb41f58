"""The kubelet's record of device plugin resources: `kubelet_internal_checkpoint`. Pure.

A private format of the kubelet, unchanged since 1.20, and the only local place that has pod UIDs and init containers.
It keeps entries of dead pods until the next allocation: match on the UID, never on device IDs alone.
The checksum is ignored: it covers Go's own printing of the values, and the file is replaced by rename anyway. Source:
pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go of Kubernetes 1.36.
"""

import base64
from dataclasses import dataclass
from itertools import chain
from typing import Final

import msgspec


@dataclass(frozen=True, slots=True)
class KubeletContainer:
    """One container of a pod that the kubelet knows, with its device IDs of our resource; no UID: the API has none."""

    namespace: str
    pod: str
    container: str
    ids: frozenset[str]


# Ten thousand devices in one pod make 3.4 MB; a file a hundred times larger is not a checkpoint.
_LARGEST: Final = 268_435_456


class CheckpointError(ValueError):
    """A checkpoint that cannot be read; the message says where."""


class CheckpointEntry(msgspec.Struct, frozen=True):
    """Devices of one resource that one container holds.

    ids: device IDs, of all NUMA nodes. encoded_answer: like `answer`, in base64.
    """

    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]
    encoded_answer: str = ""

    def answer(self) -> bytes:
        """Return the ContainerAllocateResponse (protobuf) that the kubelet replays at every start of the container.

        Empty if none was recorded. Raises CheckpointError. Decoded on demand, because few answers are needed.
        """
        try:
            return base64.b64decode(self.encoded_answer, validate=True)
        except ValueError as error:  # includes binascii.Error and the error for non-ASCII text
            message = f"kubelet checkpoint: cannot read the response recorded for container {self.container}: {error}"
            raise CheckpointError(message) from error


class _WireEntry(msgspec.Struct, rename="pascal"):
    container_name: str
    resource_name: str
    pod_uid: str = msgspec.field(name="PodUID")
    # By NUMA node. Go writes every field, so a missing field has been renamed and does not count as empty.
    device_ids: dict[int, list[str] | None] | None = msgspec.field(name="DeviceIDs")
    # Any type is accepted: a damaged answer affects one container and must not hide the other records.
    alloc_resp: object


class _WireData(msgspec.Struct, rename="pascal"):
    pod_device_entries: list[_WireEntry] | None
    registered_devices: dict[str, list[str] | None] | None


class _WireCheckpoint(msgspec.Struct, rename="pascal"):
    data: _WireData


_UNREADABLE: Final = "!"  # no base64
_DECODE: Final = msgspec.json.Decoder(_WireCheckpoint).decode


def parse(text: bytes) -> tuple[CheckpointEntry, ...]:
    """Return every entry of every resource, in the file's order. Raises CheckpointError."""
    return tuple(_entry(entry) for entry in _data(text).pod_device_entries or ())


def registered(text: bytes) -> frozenset[str]:
    """Return the resources whose devices the kubelet knows. Raises CheckpointError."""
    return frozenset(_data(text).registered_devices or ())


def _data(text: bytes) -> _WireData:
    if len(text) > _LARGEST:
        raise CheckpointError(f"kubelet checkpoint has {len(text)} bytes; expected at most {_LARGEST}")
    try:
        return _DECODE(text).data
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CheckpointError(f"kubelet checkpoint cannot be read: {error}") from error


def _entry(wire: _WireEntry) -> CheckpointEntry:
    by_numa = wire.device_ids or {}
    return CheckpointEntry(
        wire.pod_uid,
        wire.container_name,
        wire.resource_name,
        frozenset(chain.from_iterable(ids or () for ids in by_numa.values())),
        wire.alloc_resp if isinstance(wire.alloc_resp, str) else _UNREADABLE if wire.alloc_resp else "",
    )
