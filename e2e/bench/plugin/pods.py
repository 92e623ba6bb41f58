"""The pods that one node runs in a measurement of the device plugin, and what its kubelet has on record of them."""

import base64
import dataclasses
import json
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from config.protocol import allocation, names
from config.protocol.allocation import Allocation, LegacyFields
from deviceplugin.allocation.container_share import container_environment
from deviceplugin.allocation.decision import Share
from deviceplugin.cdi import spec
from deviceplugin.cdi.mode import Mode
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire
from e2e.bench import workload
from e2e.control_plane.admin import Json

CARDS: Final = 8
CARD_MIB: Final = 81_920
UNIT_MIB: Final = 256
CARD_UNITS: Final = CARD_MIB // UNIT_MIB

_CHECKPOINT: Final = "kubelet_internal_checkpoint"
_LARGEST_POD_UNITS: Final = 4
_SEED: Final = 4  # of the device ids: the kubelet picks at random


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod on the node; its first container asks. ids: the devices that the kubelet picks for it, one per unit."""

    namespace: str
    name: str
    uid: str
    card: int
    ids: tuple[str, ...]

    @property
    def units(self) -> int:
        """What the container asks."""
        return len(self.ids)

    @property
    def card_uuid(self) -> str:
        """Of the card that was decided for it."""
        return uuid(self.card)


class TooMany(ValueError):
    """The cards have no room for so many pods."""


def uuid(card: int) -> str:
    """Of the card with that index."""
    return f"GPU-{card:08d}-0000-4000-8000-000000000000"


def manifests(count: int, node: str) -> list[Json]:
    """Pods as a Deployment's, of 1 to 4 units, bound to the node with the scheduler's annotations. Raises TooMany."""
    made = [_manifest(number, node) for number in range(count)]
    if sum(map(_units, range(count))) > CARDS * CARD_UNITS:
        message = f"{count} pods ask more than {CARDS} cards have"
        raise TooMany(message)
    return made


def bound_pods(created: Sequence[Json]) -> list[BoundPod]:
    """The pods as the API server made them from `manifests`, each with devices of its own."""
    every = [f"u{unit}" for unit in range(CARDS * CARD_UNITS)]
    random.Random(_SEED).shuffle(every)  # noqa: S311 - spreads, guards nothing
    free = iter(every)
    found = []
    for pod in created:
        meta = pod["metadata"]
        units, card = int(meta["annotations"][names.MEM_POD]), int(meta["annotations"][names.MEM_IDX])
        ids = tuple(next(free) for _ in range(units))
        found.append(BoundPod(meta["namespace"], meta["name"], meta["uid"], card, ids))
    return found


def main_container() -> str:
    """Name of the container that asks, the same in every pod."""
    name: str = workload.pod(0, workload.template(0))["spec"]["containers"][0]["name"]
    return name


class Checkpoint:
    """The kubelet's record of who holds which devices, in its own file.

    Source: pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go of Kubernetes 1.36; the checksum is none of Go's.
    """

    def __init__(self, folder: Path, pods: Sequence[BoundPod], mode: Mode) -> None:
        """Nothing is written yet. mode: how the containers on record have got their cards."""
        self._path = folder / _CHECKPOINT
        self._entries = {pod.uid: _entry(pod, _answer(pod, mode)) for pod in pods}
        self._registered = {names.GPU_MEM: [f"u{unit}" for unit in range(CARDS * CARD_UNITS)]}

    def record(self, pod: BoundPod, answer: wire.ContainerAllocateResponse) -> None:
        """Take note of what was answered for the pod's container."""
        self._entries[pod.uid] = _entry(pod, answer)

    def write(self, *, without: Collection[BoundPod] = ()) -> None:
        """Every pod but those, by rename, as the kubelet does."""
        missing = {pod.uid for pod in without}
        entries = [entry for uid, entry in self._entries.items() if uid not in missing]
        document = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": self._registered}, "Checksum": 0}
        beside = self._path.with_suffix(".tmp")
        beside.write_bytes(msgspec.json.encode(document))
        beside.replace(self._path)


def wrong_by_cdi(pod: BoundPod, folder: Path, answer: wire.ContainerAllocateResponse) -> str:
    """What the CDI spec of the pod has beside, or instead of, its card; "" when it has that card alone."""
    (device,) = spec.device_names(device.name for device in answer.cdi_devices)
    document = json.loads((folder / f"gpushare-{device}.json").read_text(encoding="utf-8"))
    edits = document["devices"][0]["containerEdits"]
    variables = dict(line.split("=", 1) for line in edits["env"])
    mounts = [mount["containerPath"] for mount in edits["mounts"]]
    found = (variables["GPUSHARE_CARD_UUIDS"], variables["NVIDIA_VISIBLE_DEVICES"], mounts)
    expected = (pod.card_uuid, "void", [f"/run/gpushare/cards/{pod.card_uuid}"])
    return "" if found == expected else f"{pod.name}: the CDI spec has {found}; the scheduler chose {expected}"


def wrong_by_environment(pod: BoundPod, answer: wire.ContainerAllocateResponse) -> str:
    """The same for the environment that Allocate answered."""
    found = (answer.envs["GPUSHARE_CARD_UUIDS"], answer.envs["NVIDIA_VISIBLE_DEVICES"])
    expected = (pod.card_uuid, pod.card_uuid)
    return "" if found == expected else f"{pod.name}: the environment has {found}; the scheduler chose {expected}"


def _units(number: int) -> int:
    return 1 + number % _LARGEST_POD_UNITS


def _manifest(number: int, node: str) -> Json:
    units, card = _units(number), number % CARDS
    pod = workload.pod(number, dataclasses.replace(workload.template(number % 50), gpu_mem=units))
    decided = Allocation({0: {card: units}}, {}, {card: uuid(card)})
    pod["metadata"]["annotations"] |= allocation.encode(decided, LegacyFields(units, CARD_UNITS, number + 1))
    pod["spec"]["nodeName"] = node
    return pod


def _answer(pod: BoundPod, mode: Mode) -> wire.ContainerAllocateResponse:
    if mode == "cdi":
        name = spec.qualified(f"{int(pod.ids[0].removeprefix('u')):016x}")
        return wire.ContainerAllocateResponse(cdi_devices=[wire.CDIDevice(name=name)])
    share = Share(pod.card_uuid, pod.card, pod.units, CARD_UNITS)
    return wire.ContainerAllocateResponse(envs=container_environment([share], by_cdi=False))


def _entry(pod: BoundPod, answer: wire.ContainerAllocateResponse) -> Json:
    return {
        "PodUID": pod.uid,
        "ContainerName": main_container(),
        "ResourceName": names.GPU_MEM,
        "DeviceIDs": {"-1": pod.ids},
        "AllocResp": base64.b64encode(answer.SerializeToString()).decode(),
    }
