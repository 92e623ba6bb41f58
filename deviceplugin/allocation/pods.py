"""The pods of this node as identification, decisions and drift detection need them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from config.protocol import memory_limit, names, quantity
from config.protocol.booked_cards import Ask
from config.protocol.container_formula import ContainerKind, init_kind, peak_amounts
from scheduler.kube import objects
from scheduler.kube.port import PodKey

# On a mirror pod (the API server's copy of a static pod): the UID that the kubelet uses. Source: Kubernetes,
# pkg/kubelet/types/pod_update.go (ConfigMirrorAnnotationKey), pkg/kubelet/config/common.go.
MIRROR: Final = "kubernetes.io/config.mirror"
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_LONGEST_COUNT: Final = 3
_UNITS: Final = "units"
_EMPTY: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container. index: in `spec.initContainers` (INIT, SIDECAR) or `spec.containers` (APP).

    units: gpu-mem limit, >= 0. percent: gpu-core limit over all its cards, >= 0; 0 if unset.
    """

    name: str
    kind: ContainerKind
    index: int
    units: int
    percent: int = 0


@dataclass(frozen=True, slots=True)
class FirstCards:
    """The first decision of a pod, as in the journal. units: container name -> card UUID -> units of `unit_mib`."""

    unit_mib: int
    units: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """A pod of this node.

    containers: all, in the kubelet's allocation order: init containers first.
    gpu_count: the text of the pod's gpu-count, "" if unset. exclusive: no other pod may use its cards. terminating:
    marked for deletion. finished: Succeeded or Failed.
    reported: the kubelet has reported its containers to the API server, so it has already admitted the pod.
    static: a mirror pod; a kubelet does not run a pod that pretends to be one (pkg/kubelet/kubelet.go,
    handleMirrorPod).
    scheduler: its `schedulerName`. runtime_class: its `runtimeClassName`, "" for the node's default runtime.
    host_ipc: it shares the node's IPC namespace, and so its /dev/shm.
    first_cards: None until its first decision is known. changed: keys of its allocation and requests whose values
    differ from the first ones; all fields hold the first values.
    most_units: container -> units that it may use, by a valid `gpushare/gpu-mem-limit`; empty without one.
    """

    uid: str
    namespace: str
    name: str
    containers: tuple[PodContainer, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    gpu_count: str = ""
    exclusive: bool = False
    terminating: bool = False
    finished: bool = False
    reported: bool = False
    static: bool = False
    scheduler: str = ""
    runtime_class: str = ""
    host_ipc: bool = False
    first_cards: FirstCards | None = None
    changed: tuple[str, ...] = ()
    most_units: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the limits once: a pod may have thousands of containers, and each of them is looked up."""
        object.__setattr__(self, "most_units", self._most_units())

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} (UID {self.uid})"

    @property
    def key(self) -> PodKey:
        return PodKey(self.namespace, self.name, self.uid)

    def asking(self) -> tuple[PodContainer, ...]:
        """Return the containers that request gpu-mem."""
        return tuple(container for container in self.containers if container.units > 0)

    def _most_units(self) -> Mapping[str, int]:
        text = self.annotations.get(names.GPU_MEM_LIMIT)
        if text is None:
            return {}
        try:
            return memory_limit.limits(text, {one.name: one.units for one in self.asking()})
        except memory_limit.MemoryLimitError:
            return {}

    def has_card(self, uuid: str) -> bool:
        """Return whether its first decision gives it this card."""
        return self.first_cards is not None and any(uuid in on for on in self.first_cards.units.values())

    def ask(self) -> Ask:
        """Return the request of the whole pod."""
        text = self.gpu_count
        readable = text.isascii() and text.isdigit() and len(text) <= _LONGEST_COUNT
        return Ask(
            units=peak_amounts(({_UNITS: c.units}, c.kind) for c in self.containers).get(_UNITS, 0),
            cards=int(text) if readable else 0 if text else 1,
            sidecars=tuple(c.kind is ContainerKind.SIDECAR for c in self.containers if c.kind is not ContainerKind.APP),
        )


def read_pod(
    wire: objects.PodObject,
    *,
    gpu_mem: str = names.GPU_MEM,
    gpu_count: str = names.GPU_COUNT,
    gpu_core: str = names.GPU_CORE,
) -> NodePod:
    """Read the pod as this node needs it. gpu_mem, gpu_count, gpu_core: the configured names. Raises QuantityError."""
    meta, spec, status = wire.metadata, wire.spec, wire.status
    annotations, labels = meta.annotations or _EMPTY, meta.labels or _EMPTY
    asked = gpu_mem, gpu_core
    init = tuple(_container(c, init_kind(c.restart_policy), i, asked) for i, c in enumerate(spec.init_containers))
    app = tuple(_container(c, ContainerKind.APP, i, asked) for i, c in enumerate(spec.containers))
    whole = labels.get(names.PLACEMENT_LABEL) == names.PLACEMENT_WHOLE_DEVICE
    return NodePod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        containers=init + app,
        annotations=annotations,
        gpu_count=annotations.get(gpu_count, labels.get(gpu_count, "")),
        exclusive=whole or annotations.get(names.EXCLUSIVE) == "true",
        terminating=bool(meta.deletion_timestamp),
        finished=status.phase in _FINISHED,
        reported=bool(status.container_statuses or status.init_container_statuses),
        static=MIRROR in annotations,
        scheduler=spec.scheduler_name,
        runtime_class=spec.runtime_class_name,
        host_ipc=spec.host_ipc,
    )


def _container(wire: objects.Container, kind: ContainerKind, index: int, asked: tuple[str, str]) -> PodContainer:
    # The kubelet allocates by limits alone. Source: cm/devicemanager/manager.go, allocateContainerResources.
    limits = (wire.resources.limits if wire.resources else None) or {}
    units, percent = (max(0, quantity.whole(str(limits.get(name, 0)))) for name in asked)
    return PodContainer(wire.name, kind, index, units, percent)
