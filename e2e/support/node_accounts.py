"""Resources that the pods of two schedulers take on small nodes, counted from the API server's own objects.

There is no kubelet: the last write to a bound pod is its binding, so its resource version gives the order, and its
condition PodScheduled gives the time.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final, TypeAlias

from config.protocol import names
from config.protocol.quantity import milli, whole
from e2e.control_plane.admin import Json
from e2e.support.gpu_site import condition, gpu_node

Amounts: TypeAlias = Counter[str]
"""Of a node, or of a pod: cpu in thousandths, memory in bytes, pods."""

HOLDS: Final = Counter(cpu=8_000, memory=32 * 2**30, pods=60)
CARDS: Final = (16, 16)
_COUNTED: Final = re.compile(r"(\d+) (Insufficient (?:cpu|memory)|Too many pods)")
_RESOURCES: Final = {"Insufficient cpu": "cpu", "Insufficient memory": "memory", "Too many pods": "pods"}


def small_node(name: str) -> Json:
    """Return a node that has `HOLDS` and `CARDS`."""
    made = gpu_node(name, CARDS)
    has = {"cpu": f"{HOLDS['cpu']}m", "memory": str(HOLDS["memory"]), "pods": str(HOLDS["pods"])}
    for kind in ("capacity", "allocatable"):
        made["status"][kind] = {**made["status"][kind], **has}
    return made


def small_pod(name: str, scheduler: str, number: int) -> Json:
    """Return a pod of one of several sizes. Ours also request GPU memory."""
    theirs = scheduler != names.SCHEDULER_NAME
    requests = {"cpu": f"{(250 if theirs else 100) + number % 5 * 100}m", "memory": f"{256 * (1 + number % 4)}Mi"}
    limits = {} if theirs else {names.GPU_MEM: str(1 + number % 4)}
    container = {"name": "c", "image": "none", "resources": {"requests": requests, "limits": limits}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "containers": [container]}}


class Accounts:
    """Pods that count at one moment: those that have not failed. waiting: without a node."""

    def __init__(self, nodes: Sequence[str], pods: Iterable[Json]) -> None:
        live = [pod for pod in pods if pod["status"]["phase"] != "Failed"]
        self.nodes = nodes
        self.waiting = [pod for pod in live if not pod["spec"].get("nodeName")]
        self.bound: dict[str, list[Json]] = {name: [] for name in nodes}
        for pod in sorted(live, key=lambda pod: int(pod["metadata"]["resourceVersion"])):
            if node := pod["spec"].get("nodeName"):
                self.bound[node].append(pod)

    def excess(self, node: str, schedulers: Iterable[str]) -> Amounts:
        """Return how far the pods of these schedulers exceed the node."""
        own = set(schedulers)
        taken = _sum(pod for pod in self.bound[node] if pod["spec"]["schedulerName"] in own)
        return taken - HOLDS

    def refused(self, node: str) -> list[Json]:
        """Return the pods that the node's kubelet rejects: each that does not fit next to earlier ones."""
        taken, found = Counter[str](), []
        for pod in self.bound[node]:
            if fits(pod, taken):
                taken += asked(pod)
            else:
                found.append(pod)
        return found

    def behind_s(self, node: str) -> float:
        """Return a lower bound of how long one scheduler missed the other's binding there; 0: not at all."""
        return max([0.0, *(self._behind_s(node, place) for place in range(len(self.bound[node])))])

    def over_committed_cards(self) -> list[str]:
        """Return the cards with a negative remainder."""
        return [
            f"{node}/{index}" for node in self.nodes for index, left in enumerate(self.free_units(node)) if left < 0
        ]

    def free_units(self, node: str) -> list[int]:
        """Return the free units by card."""
        free = list(CARDS)
        for pod in self.bound[node]:
            shares = json.loads(pod["metadata"].get("annotations", {}).get(names.ALLOCATION, "{}"))
            for index, units in (share for of_container in shares.values() for share in of_container.items()):
                free[int(index)] -= units
        return free

    def could_run(self) -> list[str]:
        """Return each pod without a node that would fit on one."""
        return [
            pod["metadata"]["name"] for pod in self.waiting if any(self._has_room(name, pod) for name in self.nodes)
        ]

    def untrue(self, pod: Json) -> str:
        """Return the false claims in a waiting pod's message; "" if all are true.

        Valid while nothing has become free since: a resource that was short still is.
        """
        message: str = condition(pod).get("message", "")
        if not message.startswith(f"0/{len(self.nodes)} nodes are available: "):
            return message or "nothing"
        for number, reason in _COUNTED.findall(message):
            resource = _RESOURCES[reason]
            wants = asked(pod)[resource]
            short = sum(wants > HOLDS[resource] - self._left[node][0][resource] for node in self.nodes)
            if int(number) > short:
                return f"{message} ({resource}: only {short})"
        return ""

    def _has_room(self, node: str, pod: Json) -> bool:
        taken, units = self._left[node]
        return _units(pod) <= units and fits(pod, taken)

    @cached_property
    def _left(self) -> dict[str, tuple[Amounts, int]]:
        """Return, by node, the amounts taken and the free units on its emptiest card."""
        return {node: (_sum(self.bound[node]), max(self.free_units(node))) for node in self.nodes}

    def _behind_s(self, node: str, place: int) -> float:
        *before, pod = self.bound[node][: place + 1]
        own = [one for one in before if one["spec"]["schedulerName"] == pod["spec"]["schedulerName"]]
        seen = [one for one in before if one not in own]
        last_s = _bound_at_s(pod)
        missed_s = last_s
        while seen and not fits(pod, _sum([*own, *seen])):
            missed_s = _bound_at_s(seen.pop())
        return last_s - missed_s


def asked(pod: Json) -> Amounts:
    """Return the amounts that the pod takes on its node."""
    (container,) = pod["spec"]["containers"]
    requests = container["resources"]["requests"]
    return Counter(cpu=milli(requests["cpu"]), memory=whole(requests["memory"]), pods=1)


def fits(pod: Json, taken: Amounts) -> bool:
    """Return whether the pod fits on a node with this much taken."""
    return not (taken + asked(pod)) - HOLDS


def _units(pod: Json) -> int:
    (container,) = pod["spec"]["containers"]
    return int(container["resources"].get("limits", {}).get(names.GPU_MEM, "0"))


def _sum(pods: Iterable[Json]) -> Amounts:
    return sum((asked(pod) for pod in pods), Counter[str]())


def _bound_at_s(pod: Json) -> float:
    return datetime.fromisoformat(condition(pod)["lastTransitionTime"]).timestamp()
