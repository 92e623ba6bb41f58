"""Builders with defaults: pods of a node for identification, the node's cards, the kubelet's entries."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from config.protocol import allocation, names
from config.protocol.allocation import Allocation, LegacyFields
from config.protocol.container_formula import ContainerKind
from config.protocol.inventory import Card, Health
from deviceplugin.allocation.pods import NodePod, read_pod
from deviceplugin.kubelet.checkpoint import CheckpointEntry
from scheduler.kube import objects

UNIT_MIB = 1024
CARDS = (
    Card(index=0, uuid="GPU-a", model="M", memory_mib=16384, units=16),
    Card(index=1, uuid="GPU-b", model="M", memory_mib=16384, units=16),
    Card(index=2, uuid="GPU-c", model="M", memory_mib=8192, units=8),
    Card(index=3, uuid="GPU-m", model="M", memory_mib=0, units=0, health=Health.UNHEALTHY, reason="mig"),
)


def container(name: str, units: int, *, sidecar: bool = False) -> dict[str, object]:
    limits = {"cpu": "1", **({names.GPU_MEM: str(units)} if units else {})}
    return {"name": name, "resources": {"limits": limits}, **({"restartPolicy": "Always"} if sidecar else {})}


def wire_pod(
    name: str,
    app: Sequence[int],
    *,
    init: Sequence[int] = (),
    sidecars: Collection[int] = (),
    uid: str = "",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    terminating: bool = False,
    scheduler: str = "",
    **status: object,
) -> objects.PodObject:
    """Return a pod object. app, init: units of each container. sidecars: indexes in `init` that keep running."""
    meta = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "annotations": annotations, "labels": labels}
    whole = {
        "metadata": {**meta, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if terminating else {})},
        "spec": {
            "containers": [container(f"c{i}", units) for i, units in enumerate(app)],
            "initContainers": [container(f"i{i}", units, sidecar=i in sidecars) for i, units in enumerate(init)],
            "schedulerName": scheduler,
        },
        "status": status,
    }
    return msgspec.json.decode(msgspec.json.encode(whole), type=objects.PodObject)


def node_pod(name: str, app: Sequence[int], **options: object) -> NodePod:
    """Return the pod of `wire_pod`."""
    return read_pod(wire_pod(name, app, **options))  # type: ignore[arg-type]


def on(pod: NodePod, *cards: Card) -> NodePod:
    """Return the pod with the annotations that our scheduler writes after choosing these cards."""
    shares = {c: {card.index: c.units // len(cards) for card in cards} for c in pod.asking()}
    written = Allocation(
        containers={c.index: share for c, share in shares.items() if c.kind is ContainerKind.APP},
        init_containers={c.index: share for c, share in shares.items() if c.kind is not ContainerKind.APP},
        cards={card.index: card.uuid for card in cards},
        unit_mib=UNIT_MIB,
    )
    legacy = LegacyFields(sum(c.units for c in pod.asking()), cards[0].units, 1)
    return replace(pod, annotations={**pod.annotations, **allocation.encode(written, legacy)})


def entry(pod: NodePod, container_name: str, *ids: str, resource: str = names.GPU_MEM) -> CheckpointEntry:
    return CheckpointEntry(pod.uid, container_name, resource, frozenset(ids))
