"""Allocate responses as recorded in the kubelet's checkpoint."""

from google.protobuf.message import DecodeError

from deviceplugin.allocation.container_share import RecordedAnswer
from deviceplugin.kubelet.checkpoint import CheckpointEntry, CheckpointError
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2


def recorded_answer(entry: CheckpointEntry) -> RecordedAnswer:
    """Return the answer that the kubelet replays for one container. Raises CheckpointError if it is damaged."""
    try:
        wire = deviceplugin_pb2.ContainerAllocateResponse.FromString(entry.answer())
    except DecodeError as error:
        message = f"kubelet checkpoint: cannot read the response recorded for container {entry.container}: {error}"
        raise CheckpointError(message) from error
    return RecordedAnswer(dict(wire.envs), frozenset(device.name for device in wire.cdi_devices))


def device_names(entry: CheckpointEntry) -> frozenset[str]:
    """Return the names of our CDI devices in the entry; none if it is damaged and its container cannot start again."""
    try:
        return recorded_answer(entry).device_names
    except CheckpointError:
        return frozenset()
