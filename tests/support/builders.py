"""Builders with defaults: wire objects, pods, nodes, and whole clusters as tables."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from config.protocol import names
from config.protocol.inventory import Card, Health, Inventory, encode
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.engine import Engine
from scheduler.kube import objects
from scheduler.kube.port import EventRecord
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod, PodReader
from scheduler.state.tables import Tables

READER = PodReader(ResourceNames())
UNIT_MIB = 1024


def card(index: int, units: int, *, node: str = "a", health: Health = Health.HEALTHY, model: str = "M") -> Card:
    return Card(
        index=index, uuid=f"GPU-{node}-{index}", model=model, memory_mib=units * UNIT_MIB, units=units, health=health
    )


def wire_node(
    name: str,
    cards: Sequence[int | Card] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: tuple[objects.Taint, ...] = (),
    unschedulable: bool = False,
    gpu_mem: int | None = None,
    unit_mib: int = UNIT_MIB,
    images: Mapping[str, int] | None = None,
    features: tuple[str, ...] = (),
    more: Mapping[str, str] | None = None,
    **allocatable: str,
) -> objects.Node:
    """Return a node of 64 cores and 256 GiB; `cards` in units, or as announced; more, allocatable: resources.

    gpu_mem: the allocatable units, by default the sum over cards that are not unhealthy. images: name -> MiB. features:
    declared by its kubelet.
    """
    amounts: dict[str, str | int | float] = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    amounts |= {key.replace("_", "-"): value for key, value in allocatable.items()} | dict(more or {})
    written = dict(annotations or {})
    if cards is not None:
        announced = tuple(c if isinstance(c, Card) else card(i, c, node=name) for i, c in enumerate(cards))
        written.setdefault(names.INVENTORY, encode(Inventory(unit_mib, "", announced)))
        total = sum(c.units for c in announced if c.health is not Health.UNHEALTHY) if gpu_mem is None else gpu_mem
        amounts |= {names.GPU_MEM: str(total), names.GPU_COUNT: str(len(announced))}
    return objects.Node(
        metadata=objects.ObjectMeta(
            name, uid=f"node-{name}", labels={"kubernetes.io/hostname": name, **(labels or {})}, annotations=written
        ),
        spec=objects.NodeSpec(unschedulable, taints),
        status=objects.NodeStatus(
            allocatable=amounts,
            capacity=amounts,
            images=tuple(objects.ContainerImage((name,), mib * 2**20) for name, mib in (images or {}).items()),
            declared_features=features,
        ),
    )


def manifest(
    name: str = "p",
    gpu_mem: int | list[int] = 0,
    *,
    init_gpu_mem: list[int] | None = None,
    namespace: str = "default",
    node: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    priority: int = 0,
    uid: str = "",
    requests: Mapping[str, str] | None = None,
    scheduler: str = names.SCHEDULER_NAME,
    **spec: object,
) -> dict[str, object]:
    """Return a Pod manifest, one container per entry of `gpu_mem`. spec: more fields of the spec, as in YAML."""
    asks = gpu_mem if isinstance(gpu_mem, list) else [gpu_mem]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{namespace}-{name}",
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "schedulerName": scheduler,
            "nodeName": node,
            "priority": priority,
            "containers": [_container(f"c{i}", units, requests) for i, units in enumerate(asks)],
            "initContainers": [_container(f"i{i}", units, None) for i, units in enumerate(init_gpu_mem or [])],
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def wire_pod(name: str = "p", gpu_mem: int | list[int] = 0, **options: object) -> objects.PodObject:
    """Return the pod of `manifest`, decoded like the API server's bytes."""
    return msgspec.json.decode(msgspec.json.encode(manifest(name, gpu_mem, **options)), type=objects.PodObject)  # type: ignore[arg-type]


def pod(name: str = "p", gpu_mem: int | list[int] = 0, **options: object) -> Pod:
    """Return the pod of `manifest` in the scheduler's form."""
    return READER.read(wire_pod(name, gpu_mem, **options))


def away_from(app: str, topology_key: str = "kubernetes.io/hostname") -> dict[str, object]:
    """Return the affinity of a pod that must not be near the pods of an app."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology_key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def bound(waiting: Pod, node: str, annotations: Mapping[str, str] | None = None) -> Pod:
    """Return the pod as a watch shows it once it is bound."""
    written = {**waiting.annotations, **(annotations or {})}
    return replace(waiting, node_name=node, annotations=written)


def cluster(**nodes: list[int]) -> Tables:
    """Return tables with one node per keyword: `cluster(a=[16, 16], b=[80])`."""
    tables = Tables(ResourceNames(), UNIT_MIB)
    for name, cards in nodes.items():
        tables.upsert_node(wire_node(name, cards))
    return tables


def engine(**nodes: list[int]) -> Engine:
    """Return the whole engine with the default configuration, and one node per keyword."""
    built, _ = build_engine(SchedulerConfiguration())
    for name, cards in nodes.items():
        built.tables.upsert_node(wire_node(name, cards))
    return built


def _container(name: str, units: int, requests: Mapping[str, str] | None) -> dict[str, object]:
    limits = {names.GPU_MEM: str(units)} if units else {}
    return {"name": name, "resources": {"limits": limits, "requests": {**(requests or {}), **limits}}}


def event_record(name: str, *, namespace: str = "ns", object_name: str = "a") -> EventRecord:
    """Return an Event of a pod that was bound."""
    return EventRecord(
        name=name,
        kind="Pod",
        namespace=namespace,
        object_name=object_name,
        object_uid="",
        type="Normal",
        reason="Scheduled",
        action="Binding",
        note="",
        time_s=0.0,
        reporting_controller="x/y",
        reporting_instance="z",
    )
