"""NodeResourcesFit and NodeResourcesBalancedAllocation."""

from random import Random
from typing import Any, Final

from config.protocol import names
from config.protocol.inventory import Card, Inventory, encode
from tests.differential.manifests import Manifest, Scenario, container, node, pod

_CPUS: Final = ("50m", "100m", "250m", "500m", "1", "1500m", "2", "3")
_MEMORY: Final = ("64Mi", "200Mi", "512Mi", "1Gi", "1500M", "2Gi", "3Gi")
_STORAGE: Final = ("100Mi", "1Gi", "5Gi")
_EXTENDED: Final = ("example.com/fpga", "example.com/nic")
_UNIT_MIB: Final = 1024
_PAGES: Final = "hugepages-2Mi"


def resources(rng: Random, name: str) -> Scenario:
    """Nodes that are short of something; what pods ask by containers, init containers, sidecars and overhead."""
    made = Scenario(name, _small_nodes(rng, rng.randint(3, 6)))
    there = made.nodes()
    for number in range(rng.randint(2, 12)):
        made.objects.append(pod(f"r{number}", on=rng.choice(there), **_asks(rng)))
    made.objects.append(pod("done", on=there[0], status={"phase": "Succeeded"}, **_asks(rng)))
    made.objects.append(pod("leaving", on=there[1], meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}, **_asks(rng)))
    made.probes = [pod(f"p{number}", **_asks(rng)) for number in range(7)]
    made.probes.append(pod("nothing"))
    return made


def several_resources(rng: Random, name: str) -> Scenario:
    """Pods that ask everything there is, of nodes that lack some of it: several reasons for one node."""
    made = Scenario(name, _small_nodes(rng, 4))
    for number in range(6):
        asked = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"}
        asked |= {key: rng.choice(("1", "2", "4")) for key in _EXTENDED}
        kept = {key: value for key, value in asked.items() if rng.random() < 0.75}
        limits = {key: value for key, value in kept.items() if key in _EXTENDED}
        made.probes.append(pod(f"p{number}", containers=[container(requests=kept, limits=limits)]))
    made.probes.append(pod("unknown", containers=[container(limits={"example.com/none": "1"})]))
    return made


def balance(rng: Random, name: str) -> Scenario:
    """Large nodes with room, used unevenly in cpu and memory: what counts is the score."""
    made = Scenario(name)
    for number in range(rng.randint(3, 6)):
        cpu, memory = rng.choice(("2", "4", "16", "30500m", "96")), rng.choice(("4Gi", "16Gi", "61Gi", "512Gi"))
        made.objects.append(node(f"n{number}", cpu=cpu, memory=memory))
        for one in range(rng.randint(0, 3)):
            requests = {"cpu": rng.choice(_CPUS), "memory": rng.choice(_MEMORY)}
            made.objects.append(pod(f"r{number}-{one}", on=f"n{number}", requests=requests))
    for number in range(6):
        requests = {"cpu": rng.choice(_CPUS), "memory": rng.choice(_MEMORY)}
        kept = {key: value for key, value in requests.items() if rng.random() < 0.85}
        made.probes.append(pod(f"p{number}", requests=kept))
    made.probes.append(pod("too-much", requests={"cpu": "17"}))
    return made


def resized(rng: Random, name: str) -> Scenario:
    """Pods that run and are being resized: what the kubelet has given counts beside what the spec asks."""
    made = Scenario(name, [node(f"n{number}", cpu="4", memory="8Gi") for number in range(3)])
    for number in range(6):
        given, written = _amounts(rng), _amounts(rng)
        status: Manifest = {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "c",
                    "image": "i",
                    "imageID": "i",
                    "ready": True,
                    "restartCount": 0,
                    "resources": {"requests": given},
                    "allocatedResources": _amounts(rng) if rng.random() < 0.5 else given,
                }
            ],
        }
        if rng.random() < 0.4:
            reason = rng.choice(("Infeasible", "Deferred"))
            status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        made.objects.append(pod(f"r{number}", on=f"n{number % 3}", status=status, requests=written))
    made.probes = [pod(f"p{number}", requests=_amounts(rng, larger=True)) for number in range(7)]
    return made


def shared_gpu_nodes(rng: Random, name: str) -> Scenario:
    """Nodes that share GPUs, and pods on their cards: a pod that asks none of it is judged as on any other node."""
    made = Scenario(name)
    for number in range(4):
        each = node(f"n{number}", cpu=rng.choice(("1", "4")))
        if number % 2:
            units = rng.choice((15, 80))
            card = Card(index=0, uuid=f"GPU-n{number}-0", model="M", memory_mib=units * _UNIT_MIB, units=units)
            each["metadata"]["annotations"] = {names.INVENTORY: encode(Inventory(_UNIT_MIB, "", (card,)))}
            each["status"]["allocatable"] |= {names.GPU_MEM: str(units), names.GPU_COUNT: "1"}
        made.objects.append(each)
    for number in range(rng.randint(1, 3)):
        asked = container(requests={"cpu": "300m"}, limits={names.GPU_MEM: "3"})
        held = {names.ALLOCATION: '{"0":{"0":3}}', names.UNIT_MIB: str(_UNIT_MIB)}
        made.objects.append(pod(f"shares{number}", on="n1", containers=[asked], meta={"annotations": held}))
    made.probes = [pod(f"p{number}", **_asks(rng)) for number in range(6)]
    return made


def _small_nodes(rng: Random, count: int) -> list[Manifest]:
    made = []
    for number in range(count):
        more = {key: rng.choice(("0", "1", "3")) for key in _EXTENDED if rng.random() < 0.6}
        if rng.random() < 0.4:
            more[_PAGES] = rng.choice(("64Mi", "1Gi"))
        made.append(
            node(
                f"n{number}",
                more=more,
                cpu=rng.choice(("500m", "1", "2", "4", "3900m")),
                memory=rng.choice(("512Mi", "1Gi", "3Gi", "7600Mi")),
                pods=rng.choice(("1", "2", "3", "110")),
                ephemeral_storage=rng.choice(("1Gi", "10Gi")),
            )
        )
    return made


def _amounts(rng: Random, *, larger: bool = False) -> dict[str, str]:
    return {
        "cpu": rng.choice(_CPUS[-4:] if larger else _CPUS),
        "memory": rng.choice(_MEMORY[-3:] if larger else _MEMORY),
    }


def _asks(rng: Random) -> Manifest:
    """Fields of a spec."""
    asked: Manifest = {"containers": [_container(rng, f"c{number}") for number in range(rng.choice((1, 1, 2, 3)))]}
    if rng.random() < 0.35:
        asked["initContainers"] = [_container(rng, f"i{number}", init=True) for number in range(rng.randint(1, 3))]
    if rng.random() < 0.15:
        asked["overhead"] = _amounts(rng)
        asked["runtimeClassName"] = "kata"
    return asked | _pod_level(rng) if rng.random() < 0.15 else asked


def _pod_level(rng: Random) -> Manifest:
    """The pod's own request, at least the sum of its containers'; of what it does not name the sum counts."""
    requests = {"cpu": rng.choice(_CPUS[3:]), "memory": rng.choice(_MEMORY[2:])}
    kept = {key: value for key, value in requests.items() if rng.random() < 0.8} or requests
    inner = [container("c0", {"cpu": "100m", "memory": "64Mi"}), container("c1", {"cpu": "200m"})]
    return {"resources": {"requests": kept}, "containers": inner, "initContainers": []}


def _container(rng: Random, name: str, *, init: bool = False) -> Manifest:
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    if rng.random() < 0.75:
        requests["cpu"] = rng.choice(_CPUS)
    if rng.random() < 0.75:
        requests["memory"] = rng.choice(_MEMORY)
    if rng.random() < 0.2:
        requests["ephemeral-storage"] = rng.choice(_STORAGE)
    if rng.random() < 0.2:
        limits[rng.choice(_EXTENDED)] = rng.choice(("1", "2"))
    if rng.random() < 0.1:
        limits[_PAGES] = "64Mi"
        limits["memory"] = requests["memory"] = "1Gi"
    if rng.random() < 0.15:
        limits["cpu"] = "3"
    fields: dict[str, Any] = {"restartPolicy": "Always"} if init and rng.random() < 0.5 else {}
    return container(name, requests, limits, **fields)
