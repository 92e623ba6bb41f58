"""Nodes and pods of a history, as small values of single settings, and the settings that histories choose from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec

from config.protocol import names
from config.protocol.inventory import Card, Health, Inventory, encode
from scheduler.kube import objects
from scheduler.pods.declared_features import FEATURES

UNIT_MIB: Final = 1024
ZONE: Final = "zone"
HOSTNAME: Final = "kubernetes.io/hostname"
TAINT: Final = objects.Taint("dedicated", "NoSchedule", "gpu")
_IMAGE_BYTES: Final = 2**29

Texts = Mapping[str, str]
PlanT = TypeVar("PlanT", "NodePlan", "PodPlan")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a node or pod. key: a label's or annotation's, otherwise "". value: None to unset."""

    field: str
    key: str
    value: Any

    def __str__(self) -> str:
        what = f"{self.field.removesuffix('s')} {self.key}" if self.key else self.field.replace("_", "-")
        if self.value is None:
            return f"without {what}"
        return f"{what}={self.value!r}" if isinstance(self.value, str) else f"{what}={self.value}"

    def on(self, plan: PlanT) -> PlanT:
        """Return the plan with this setting."""
        if not self.key:
            value = getattr(type(plan)(), self.field) if self.value is None else self.value
        else:
            value = {key: text for key, text in getattr(plan, self.field).items() if key != self.key}
            if self.value is not None:
                value[self.key] = self.value
        changed: dict[str, Any] = {self.field: value}
        return replace(plan, **changed)


def with_settings(plan: PlanT, settings: tuple[Setting, ...]) -> PlanT:
    """Return the plan with all settings; the last one of a field wins."""
    for setting in settings:
        plan = setting.on(plan)
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """A node. cards: units of each. unhealthy, lost, enforced: indexes of cards.

    plugin_away: none of their units is allocatable. images: their names. features: declared by its kubelet.
    like: the user's own manifest, overridden by the other fields.
    """

    labels: Texts = field(default_factory=dict)
    annotations: Texts = field(default_factory=dict)
    tainted: bool = False
    unschedulable: bool = False
    cpu: str = "8"
    pods: str = "110"
    cards: tuple[int, ...] = (4, 4)
    unhealthy: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    enforced: tuple[int, ...] = ()
    cordoned: str = ""
    plugin_away: bool = False
    images: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    like: objects.Node | None = None

    def wire(self, name: str) -> objects.Node:
        """Return the Node object."""
        of = self.like or objects.Node(objects.ObjectMeta(name))
        cards = tuple(self._card(name, index, units) for index, units in enumerate(self.cards))
        announced = tuple(card for card in cards if card.index not in self.lost)
        annotations = {**(of.metadata.annotations or {}), **self.annotations}
        amounts: objects.Quantities = {"cpu": self.cpu, "memory": "64Gi", "pods": self.pods}
        if announced:
            annotations[names.INVENTORY] = encode(Inventory(UNIT_MIB, "", announced))
            total = sum(card.units for card in announced if card.health is not Health.UNHEALTHY)
            amounts |= {names.GPU_MEM: "0" if self.plugin_away else str(total), names.GPU_COUNT: str(len(announced))}
        if self.cordoned:
            annotations[names.CORDON] = self.cordoned
        amounts |= of.status.allocatable or {}
        labels = {HOSTNAME: name, **(of.metadata.labels or {}), **self.labels}
        taints = (*of.spec.taints, TAINT) if self.tainted else of.spec.taints
        return objects.Node(
            metadata=objects.ObjectMeta(name, uid=f"uid-{name}", labels=labels, annotations=annotations),
            spec=objects.NodeSpec(self.unschedulable or of.spec.unschedulable, taints),
            status=objects.NodeStatus(
                allocatable=amounts,
                capacity=amounts,
                node_info=of.status.node_info,
                images=(*of.status.images, *(objects.ContainerImage((image,), _IMAGE_BYTES) for image in self.images)),
                declared_features=(*of.status.declared_features, *self.features),
            ),
        )

    def _card(self, node: str, index: int, units: int) -> Card:
        health = Health.UNHEALTHY if index in self.unhealthy else Health.HEALTHY
        uuid = f"GPU-{node}-{index}"
        return Card(
            index=index,
            uuid=uuid,
            model="M",
            memory_mib=units * UNIT_MIB,
            units=units,
            health=health,
            isolation="driver" if index in self.enforced else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """A pod. gpu_mem: units in total. cpu: requested amount, or "". selects, keeps_away: a zone; a topology key, or "".

    like: the user's own manifest, overridden by the other fields.
    """

    labels: Texts = field(default_factory=dict)
    annotations: Texts = field(default_factory=dict)
    owner: str = ""
    namespace: str = ""
    priority: int = 0
    gpu_mem: int = 1
    gpu_count: int = 1
    exclusive: bool = False
    isolated: bool = False
    cpu: str = ""
    selects: str = ""
    tolerates: bool = False
    host_port: int = 0
    keeps_away: str = ""
    gated: bool = False
    image: str = ""
    restarts_all: bool = False
    like: objects.PodObject | None = None

    def wire(self, name: str, uid: str, node: str = "", written: Texts | None = None) -> objects.PodObject:
        """Return the Pod object. written: annotations of its binding."""
        like = self.like
        of = objects.ObjectMeta(name) if like is None else like.metadata
        annotations = {**(of.annotations or {}), **self._asked(), **self.annotations, **(written or {})}
        owner = (objects.OwnerReference(self.owner, "ReplicaSet", self.owner, controller=True),)
        meta = objects.ObjectMeta(
            name,
            namespace=self.namespace or of.namespace or "default",
            uid=uid,
            labels={**(of.labels or {}), **self.labels},
            annotations=annotations,
            owner_references=owner if self.owner else of.owner_references,
        )
        spec = self._spec() if like is None else like.spec
        spec = msgspec.structs.replace(spec, node_name=node, scheduler_name=names.SCHEDULER_NAME)
        return objects.PodObject(meta, spec, objects.PodStatus(phase="Running" if node else "Pending"))

    def _asked(self) -> dict[str, str]:
        asked = {names.GPU_COUNT: str(self.gpu_count)} if self.gpu_count > 1 else {}
        asked |= {names.ISOLATION: names.ISOLATION_REQUIRED} if self.isolated else {}
        return asked | {names.EXCLUSIVE: "true"} if self.exclusive else asked

    def _spec(self) -> objects.PodSpec:
        limits: objects.Quantities = {names.GPU_MEM: str(self.gpu_mem)} if self.gpu_mem else {}
        requests = {**limits, "cpu": self.cpu} if self.cpu else limits
        ports = (objects.ContainerPort(self.host_port),) if self.host_port else ()
        rules = (objects.RestartRule("RestartAllContainers"),) if self.restarts_all else ()
        resources = objects.ResourceRequirements(requests, limits)
        return objects.PodSpec(
            containers=(objects.Container("main", resources, ports, restart_policy_rules=rules, image=self.image),),
            priority=self.priority,
            node_selector={ZONE: self.selects} if self.selects else None,
            affinity=_away(self.keeps_away) if self.keeps_away else None,
            tolerations=(objects.Toleration(TAINT.key, "Exists"),) if self.tolerates else (),
            scheduling_gates=(objects.SchedulingGate("kit"),) if self.gated else (),
        )


def _away(topology: str) -> objects.Affinity:
    """Return anti-affinity to pods with the label app=web."""
    term = objects.PodAffinityTerm(topology, objects.LabelSelector({"app": "web"}))
    return objects.Affinity(pod_anti_affinity=objects.PodAffinity((term,)))


Values = Mapping[str, Sequence[str]]
GENERIC: Final = ("1", "0", "2", "true", "a", "b", "")
_NODES: Final[Mapping[str, Sequence[Any]]] = {
    "cards": ((4,), (2, 2, 2), (), (4, 4)),
    "tainted": (True, False),
    "unschedulable": (True, False),
    "pods": ("1", "110"),
    "cpu": ("1", "8"),
    "unhealthy": ((0,), ()),
    "lost": ((0,), ()),
    "enforced": ((0,), (0, 1), ()),
    "cordoned": ("1", ""),
    "plugin_away": (True, False),
    "images": (("web:1",), ()),
    "features": (tuple(FEATURES), ()),
}
_PODS: Final[Mapping[str, Sequence[Any]]] = {
    "owner": ("o1", "o2"),
    "gpu_mem": (0, 2, 4),
    "gpu_count": (2,),
    "exclusive": (True,),
    "isolated": (True,),
    "namespace": ("team",),
    "priority": (10,),
    "cpu": ("1", "6"),
    "selects": ("a", "b"),
    "tolerates": (True,),
    "host_port": (8080,),
    "keeps_away": (HOSTNAME, ZONE),
    "gated": (True,),
    "image": ("web:1",),
    "restarts_all": (True,),
}
# The setting that varies a field of Pod or Template.
_BEHIND: Final[Mapping[str, str]] = {
    "owner_uid": "owner",
    "priority": "priority",
    "gates": "gated",
    "requests": "cpu",
    "node_selector": "selects",
    "tolerations": "tolerates",
    "host_ports": "host_port",
    "anti_affinity": "keeps_away",
    "images": "image",
    "required_features": "restarts_all",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Keys that histories vary, with their values. fields: those of Pod and Template that the rule reads."""

    labels: Values
    annotations: Values
    node_labels: Values
    node_annotations: Values
    fields: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Choices:
    """Settings of nodes and pods. own_…: field and key that the rule reads -> possible values."""

    own_of_nodes: Mapping[tuple[str, str], Sequence[Any]]
    of_nodes: tuple[Setting, ...]
    own_of_pods: Mapping[tuple[str, str], Sequence[Any]]
    of_pods: tuple[Setting, ...]


def choices(named: Named, nodes: Sequence[objects.Node], pods: Sequence[objects.PodObject]) -> Choices:
    """Return the settings to choose from. nodes, pods: the user's own."""
    zones = _of_labels({ZONE: ("a", "b")})
    app = _of_labels({"app": ("web",)})
    return Choices(
        {**_own("labels", named.node_labels), **_own("annotations", named.node_annotations)},
        (*zones, *_of_fields(_NODES), *(Setting("like", "", node) for node in nodes)),
        {**_own("labels", named.labels), **_own("annotations", named.annotations), **_read(named.fields)},
        (*_of_fields(_PODS), *app, *(Setting("like", "", pod) for pod in pods)),
    )


def as_objects(kind: type[Any], written: Sequence[Any]) -> list[Any]:
    """Return the written entries as objects; manifests are mappings."""
    return [one if isinstance(one, kind) else msgspec.convert(one, kind, strict=False) for one in written]


def _own(name: str, of: Values) -> dict[tuple[str, str], Sequence[str]]:
    return {(name, key): values for key, values in of.items() if values}


def _read(fields: frozenset[str]) -> dict[tuple[str, str], Sequence[Any]]:
    return {(setting, ""): _PODS[setting] for name, setting in _BEHIND.items() if name in fields}


def _of_fields(of: Mapping[str, Sequence[Any]]) -> Iterator[Setting]:
    return (Setting(name, "", value) for name, values in of.items() for value in values)


def _of_labels(of: Values) -> Iterator[Setting]:
    return (Setting("labels", key, value) for key, values in of.items() for value in (*values, None))
