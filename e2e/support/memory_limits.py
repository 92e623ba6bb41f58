"""Pods whose memory NVIDIA's driver limits, on nodes of `nvidia_site`, and the limits that their containers have.

Every container runs `cuda-memory`, which writes the size of each card as its first CUDA call sees it. With a limit on
the container's own cgroup, that is the limit: so the output also shows that the limit was there in time.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from config.protocol import environment, names
from e2e.control_plane.admin import Json
from e2e.node.nvidia_hardware import WORLD
from e2e.support.nvidia_site import END, IMAGE, NvidiaNode
from e2e.support.shared_node import GIB, shared_pod, written_by
from tests.support.nvidia import memory
from tests.support.nvidia.memory import MIB, NO_LIMIT, Limits

CARD_MIB: Final = 81920  # of `world.card`
CONTEXT_MIB: Final = 300  # of each process that uses CUDA: cuda.c
# Variables by which a pod asks NVIDIA's hook for other limits than its own.
OWN_LIMITS: Final = {environment.GPU_MEMORY_REQUEST: "70000", environment.GPU_MEMORY_LIMIT: "80000"}
# A line of the world: the driver refuses to set limits.
FAILS: Final = "fault nvmlDeviceSetMemoryLimits_v1 * 999"
_SIZE: Final = re.compile(r"^total (\S+) (\d+)$", re.MULTILINE)
_UNIFIED: Final = re.compile(r"^0::(.+)$", re.MULTILINE)


def taking(
    units: int,
    *mib: int,
    name: str = "c",
    ends: bool = False,
    variables: Mapping[str, str] | None = None,
    **fields: object,
) -> Json:
    """Return a container that requests these units, and has one process for each of `mib`.

    units: 0: no request, and no use of CUDA, which is absent then. mib: taken of each card beyond a context, by default
    nothing. ends: it ends at once instead of holding its memory.
    """
    command = ["cuda-memory", "leave" if ends else "hold", *map(str, mib or (0,))]
    without = ["sh", "-c", "echo END 0.; exec sleep 1000000"]
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": command if units else without,
        "env": [{"name": key, "value": value} for key, value in (variables or {}).items()],
        "volumeMounts": [{"name": "world", "mountPath": str(WORLD.parent)}],
        **({"resources": {"limits": {names.GPU_MEM: str(units)}}} if units else {}),
        **fields,
    }


def limited_pod(
    on: NvidiaNode,
    name: str,
    *containers: Json,
    init: Sequence[Json] = (),
    cards: int = 1,
    annotations: Mapping[str, str] | None = None,
) -> Json:
    """Return a pod of these containers for that node. cards: of each container."""
    metadata = {"annotations": dict(annotations or {}), "labels": {names.GPU_COUNT: str(cards)} if cards > 1 else {}}
    return shared_pod(
        name,
        containers,
        metadata=metadata,
        initContainers=list(init),
        volumes=[{"name": "world", "hostPath": {"path": str(WORLD.parent), "type": "Directory"}}],
        nodeSelector={"kubernetes.io/hostname": on.node.name},
    )


def expected(found: Json) -> dict[str, dict[str, int]]:
    """Return container -> UUID -> MiB of its request on that card, as the scheduler wrote it."""
    annotations = found["metadata"]["annotations"]
    uuids, every = json.loads(annotations.get(names.CARDS, "{}")), {}
    for field, key in (("initContainers", names.INIT_ALLOCATION), ("containers", names.ALLOCATION)):
        shares = json.loads(annotations.get(key, "{}"))
        for index, container in enumerate(found["spec"].get(field, [])):
            own = shares.get(str(index), {})
            every[container["name"]] = {uuids[card]: units * GIB for card, units in own.items()}
    return every


def sizes(written: str) -> dict[str, int]:
    """Return UUID -> MiB of each card, as the container with this output sees it."""
    return {uuid: int(mib) for uuid, mib in _SIZE.findall(written)}


def cgroup_of(pid: int) -> str:
    """Return the process's path within the tree of cgroup v2."""
    (path,) = _UNIFIED.findall(Path(f"/proc/{pid}/cgroup").read_text())
    return str(path)


def cgroup_of_pod(found: Json) -> str:
    """Return the name of the pod's cgroup, in which its containers have theirs."""
    return f"/pod{found['metadata']['uid']}"


def limits_of(on: NvidiaNode, pid: int) -> dict[str, Limits]:
    """Return UUID -> limits that the driver has for the cgroup of a container's first process."""
    own = cgroup_of(pid)
    every = memory.limits(on.hardware.world(on.node).path)
    return {uuid: limits for (uuid, cgroup), limits in every.items() if cgroup == own}


def wrong(on: NvidiaNode, found: Json, wanted: Mapping[str, Mapping[str, Limits]] | None = None) -> list[str]:
    """Return each container of a running pod whose limits are not those wanted, or that saw others at first.

    wanted: container -> UUID -> limits, by default nothing guaranteed and at most its request.
    """
    by_default = {
        name: {uuid: Limits(0, mib * MIB) for uuid, mib in cards.items()} for name, cards in expected(found).items()
    }
    return [
        line for name, limits in (wanted or by_default).items() for line in _wrong_container(on, found, name, limits)
    ]


def _wrong_container(on: NvidiaNode, found: Json, name: str, limits: Mapping[str, Limits]) -> Iterator[str]:
    container = on.node.container(found, name)
    written = written_by(container, END)[0]
    size = {uuid: CARD_MIB if one.hard == NO_LIMIT else one.hard // MIB for uuid, one in limits.items()}
    who = f"{found['metadata']['name']}/{name}"
    if sizes(written) != size:
        yield f"{who} saw {sizes(written)} at first, expected {size}; it wrote {written!r}"
    really = {uuid: one for uuid, one in limits.items() if one != Limits(0, NO_LIMIT)}
    if container.id not in _ended(found) and limits_of(on, container.pid) != really:
        yield f"{who} has {limits_of(on, container.pid)}, expected {really}"


def _ended(found: Json) -> set[str]:
    """Return the IDs of the pod's init containers that have ended."""
    statuses = found["status"].get("initContainerStatuses", [])
    return {one["containerID"].split("//")[1] for one in statuses if "terminated" in one["state"]}
