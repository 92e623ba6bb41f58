"""What nodes announce and what pods request and hold, by docs/develop/protocol.md and without code of the scheduler."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

SCHEDULER_NAMES: Final = ("gpushare-scheduler", "gpushare")
GPU_MEM: Final = "aliyun.com/gpu-mem"
GPU_COUNT: Final = "aliyun.com/gpu-count"
EXCLUSIVE: Final = "gpushare/exclusive"
INVENTORY: Final = "gpushare/inventory"
ALLOCATION: Final = "scheduler.framework.gpushare.allocation"
INIT_ALLOCATION: Final = "gpushare/init-allocation"
CARDS: Final = "gpushare/cards"
UNIT_MIB: Final = "gpushare/unit-mib"
MEM_IDX: Final = "ALIYUN_COM_GPU_MEM_IDX"
MEM_POD: Final = "ALIYUN_COM_GPU_MEM_POD"
MEM_DEV: Final = "ALIYUN_COM_GPU_MEM_DEV"
MEM_ASSIGNED: Final = "ALIYUN_COM_GPU_MEM_ASSIGNED"
MEM_ASSUME_TIME: Final = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
WRITTEN: Final = (
    *(ALLOCATION, INIT_ALLOCATION, CARDS, UNIT_MIB),
    *(MEM_IDX, MEM_POD, MEM_DEV, MEM_ASSIGNED, MEM_ASSUME_TIME),
)
"""Every annotation that a Binding writes."""
_ENDED: Final = ("Succeeded", "Failed")


class Unreadable(Exception):
    """An allocation that is missing, cannot be read, or is not what the pod asks; the message says which."""


@dataclass(frozen=True, slots=True)
class Announced:
    """Cards of a node. units: of each card, by UUID. unit_mib: MiB in one unit."""

    units: Mapping[str, int]
    unit_mib: int


@dataclass(frozen=True, slots=True)
class Share:
    """What a pod has of a node. units: on each card, by UUID. unit_mib: MiB in one unit, as the Binding says."""

    units: Mapping[str, int]
    unit_mib: int


def annotations(of: Json) -> dict[str, str]:
    """The object's annotations; {} when it has none."""
    return of["metadata"].get("annotations") or {}


def node_of(pod: Json) -> str:
    """The node that the pod is on; "" while it waits."""
    node: str = pod["spec"].get("nodeName") or ""
    return node


def has_ended(pod: Json) -> bool:
    """Whether the pod has given back what it held."""
    return pod.get("status", {}).get("phase") in _ENDED


def is_ours(pod: Json) -> bool:
    """Whether the pod names our scheduler and asks for memory of a card."""
    return pod["spec"].get("schedulerName") in SCHEDULER_NAMES and bool(asked_on_each_card(pod))


def is_exclusive(pod: Json) -> bool:
    """Whether the pod's cards hold no other pod."""
    return annotations(pod).get(EXCLUSIVE) == "true"


def is_marked(pod: Json) -> bool:
    """Whether the device plugin has said that every container of the pod has its cards."""
    return annotations(pod).get(MEM_ASSIGNED) == "true"


def announced(node: Json) -> Announced:
    """The node's inventory; no cards when it has none."""
    document = json.loads(annotations(node).get(INVENTORY, '{"unitMiB":0,"cards":[]}'))
    return Announced({card["uuid"]: card["units"] for card in document["cards"]}, document["unitMiB"])


def given(pod: Json, container: str) -> dict[str, int]:
    """Units on each card that the Binding has given this container, by UUID. Raises Unreadable, KeyError."""
    written, spec = annotations(pod), pod["spec"]
    uuids: dict[str, str] = json.loads(written[CARDS])
    for key, field in ((ALLOCATION, "containers"), (INIT_ALLOCATION, "initContainers")):
        for each, shares in zip(spec.get(field) or [], _shares(written[key], spec.get(field) or []), strict=True):
            if each["name"] == container:
                return {uuids[index]: units for index, units in shares.items()}
    message = f"there is no container {container}"
    raise Unreadable(message)


def cards_asked(pod: Json) -> int:
    """How many cards the pod asks for."""
    text = annotations(pod).get(GPU_COUNT) or (pod["metadata"].get("labels") or {}).get(GPU_COUNT) or "1"
    return int(text)


def asked_on_each_card(pod: Json) -> int:
    """Units that the pod takes of each of its cards."""
    count, spec = cards_asked(pod), pod["spec"]
    apps = [_asked(container) // count for container in spec["containers"]]
    inits = [(_asked(each) // count, _is_sidecar(each)) for each in spec.get("initContainers") or ()]
    return _of_a_pod(apps, inits)


def share(pod: Json) -> Share:
    """What the Binding has given the pod: exactly what its containers ask. Raises Unreadable."""
    written = annotations(pod)
    if missing := [key for key in WRITTEN if key not in written]:
        message = f"annotations are missing: {', '.join(missing)}"
        raise Unreadable(message)
    try:
        uuids: dict[str, str] = json.loads(written[CARDS])
        apps = _shares(written[ALLOCATION], pod["spec"]["containers"])
        inits = _shares(written[INIT_ALLOCATION], pod["spec"].get("initContainers") or [])
        unit_mib = int(written[UNIT_MIB])
    except (ValueError, TypeError, AttributeError) as error:
        message = f"not readable: {error}"
        raise Unreadable(message) from error
    _check(pod, written, sorted(uuids, key=int), [*apps, *inits])
    sidecars = [_is_sidecar(each) for each in pod["spec"].get("initContainers") or ()]
    units = {
        uuid: _of_a_pod(
            [each.get(index, 0) for each in apps],
            [(each.get(index, 0), sidecar) for each, sidecar in zip(inits, sidecars, strict=True)],
        )
        for index, uuid in uuids.items()
    }
    return Share(units, unit_mib)


def _check(pod: Json, written: Mapping[str, str], indexes: Sequence[str], shares: Sequence[Mapping[str, int]]) -> None:
    """Raise Unreadable unless each container has its own units, evenly on the pod's cards, and the rest agrees."""
    count = cards_asked(pod)
    if len(indexes) != count:
        message = f"is on cards {', '.join(indexes)}, asks for {count}"
        raise Unreadable(message)
    containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]
    for container, given in zip(containers, shares, strict=True):
        units = _asked(container)
        wanted = dict.fromkeys(indexes, units // count) if units else {}
        if given != wanted:
            message = f"container {container['name']} asks {units} units of {count} cards and was given {dict(given)}"
            raise Unreadable(message)
    total = str(asked_on_each_card(pod) * count)
    if (written[MEM_IDX], written[MEM_POD]) != (indexes[0], total):
        message = f"{MEM_IDX}, {MEM_POD} are {written[MEM_IDX]}, {written[MEM_POD]}, not {indexes[0]}, {total}"
        raise Unreadable(message)


def _shares(text: str, containers: Sequence[Json]) -> list[dict[str, int]]:
    """By container: units by card index. Raises ValueError."""
    document: dict[str, dict[str, int]] = json.loads(text)
    if not document.keys() <= {str(number) for number in range(len(containers))}:
        message = f"{text} names containers that the pod lacks"
        raise ValueError(message)
    return [document.get(str(number), {}) for number in range(len(containers))]


def _asked(container: Json) -> int:
    return int(container.get("resources", {}).get("limits", {}).get(GPU_MEM, 0))


def _is_sidecar(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def _of_a_pod(apps: Iterable[int], inits: Iterable[tuple[int, bool]]) -> int:
    """Kubernetes' rule for containers: the larger of (apps + sidecars) and, for each init, (it + sidecars before)."""
    sidecars, most = 0, 0
    for units, is_sidecar in inits:
        most = max(most, sidecars + units)
        sidecars += units if is_sidecar else 0
    return max(most, sum(apps) + sidecars)
