"""Kubernetes objects in the wire format, with only the fields that the scheduler reads.

Pure data. Decoded by msgspec, which skips every other field without building it.
`tests/support/documents/pod_fields.py` lists all fields of PodSpec, and why each is included or not. Source: the
OpenAPI document of Kubernetes 1.36.
"""

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

_INT32: Final = 2**31
_INT64: Final = 2**63
# The API's integer width: no column of a table overflows, whatever an object contains.
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-_INT32, lt=_INT32)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-_INT64, le=_INT64 - 1)]
Quantities: TypeAlias = dict[str, str | Int64 | float]


class _Wire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Wire data: immutable and without cycles, so the garbage collector can skip it."""


class OwnerReference(_Wire, frozen=True):
    """An owner of an object. controller: True for the owner that would recreate the object."""

    uid: str
    kind: str = ""
    name: str = ""
    controller: bool = False


class ObjectMeta(_Wire, frozen=True):
    """Metadata of every object. creation_timestamp: RFC 3339, "" if absent.

    deletion_timestamp: end of the grace period of a terminating object; its deletion was requested
    deletion_grace_period_seconds earlier. Source: staging/src/k8s.io/apiserver/pkg/registry/rest/delete.go.
    """

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: Int64 = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class ApiObject(_Wire, frozen=True):
    """An object of the API. API_KIND: its kind, if the class has another name."""

    API_KIND: ClassVar[str] = ""
    metadata: ObjectMeta


class ResourceRequirements(_Wire, frozen=True):
    """Requests and limits of a container or of a whole pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerPort(_Wire, frozen=True):
    """A port of a container. host_port: 0 if the container uses no port of the node."""

    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class RestartRule(_Wire, frozen=True):
    """A restart rule. action: Restart (the container) or RestartAllContainers (of the pod)."""

    action: str = ""


class Container(_Wire, frozen=True):
    """An app or init container; `restart_policy` "Always" makes an init container a sidecar. image: a reference."""

    name: str
    resources: ResourceRequirements | None = None
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[RestartRule, ...] = ()
    image: str = ""


class Requirement(_Wire, frozen=True):
    """One expression of a selector. operator: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(_Wire, frozen=True):
    """metav1.LabelSelector. An empty selector matches everything, None (if allowed) nothing."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(_Wire, frozen=True):
    """Expressions over labels and fields, ANDed; an empty term matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(_Wire, frozen=True):
    """A node selector. node_selector_terms: ORed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredTerm(_Wire, frozen=True):
    """A preferred node affinity term. weight: 1 to 100."""

    weight: Int32
    preference: NodeSelectorTerm


class NodeAffinityTerms(_Wire, frozen=True):
    """Node affinity of a pod."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredTerm, ...] = ()


class PodAffinityTerm(_Wire, frozen=True):
    """A term of pod affinity or anti-affinity."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(_Wire, frozen=True):
    """A preferred term of pod affinity or anti-affinity."""

    weight: Int32
    pod_affinity_term: PodAffinityTerm


class PodAffinity(_Wire, frozen=True):
    """Pod affinity or anti-affinity, which have the same structure."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(_Wire, frozen=True):
    """All affinities of a pod."""

    node_affinity: NodeAffinityTerms | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(_Wire, frozen=True):
    """A toleration. operator: Exists, Equal (also if ""), Lt, Gt. effect, key: "" for every effect or key."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(_Wire, frozen=True):
    """A topology spread constraint. when_unsatisfiable: DoNotSchedule (hard) or ScheduleAnyway (a preference).

    min_domains: None counts as 1. The policies are Honor or Ignore, "" if omitted.
    """

    topology_key: str
    when_unsatisfiable: str = "DoNotSchedule"
    max_skew: Int32 = 1
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: Int32 | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""


class SchedulingGate(_Wire, frozen=True):
    """A gate that blocks scheduling until it is removed."""

    name: str


class SchedulingGroup(_Wire, frozen=True):
    """The PodGroup of a pod: `schedulingGroup` from 1.36 on. Of `workloadRef` in 1.35, only the presence matters."""

    pod_group_name: str = ""


class VolumeSource(_Wire, frozen=True):
    """Source of a volume, with the field names of its kind.

    claim_name: for a persistentVolumeClaim. The others name a disk: pd_name of gcePersistentDisk, disk_uri of
    azureDisk, volume_id of awsElasticBlockStore, cinder and portworxVolume, iqn of iscsi; monitors, pool and image of
    rbd. reference: for an image. Other kinds are not read.
    """

    claim_name: str = ""
    pd_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")
    volume_id: str = msgspec.field(default="", name="volumeID")
    iqn: str = ""
    monitors: tuple[str, ...] = ()
    pool: str = ""
    image: str = ""
    read_only: bool = False
    reference: str = ""


class ResourceClaim(_Wire, frozen=True):
    """A claim of a pod; only their number is read."""


class PodSpec(_Wire, frozen=True):
    """Specification of a pod. volumes: each has its name and, under its kind, its source.

    preemption_policy: PreemptLowerPriority (also if "") or Never. workload_ref: the form of scheduling_group in 1.35.
    """

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    runtime_class_name: str = ""
    priority: Int32 = 0
    preemption_policy: str = ""
    overhead: Quantities | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    workload_ref: SchedulingGroup | None = None
    volumes: tuple[dict[str, str | VolumeSource | None], ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    host_network: bool = False
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    host_users: bool | None = None


class ContainerStatus(_Wire, frozen=True):
    """Status of a container. container_id: `<runtime>://<id>` of its current instance, "" before the first.

    resources, allocated_resources: sizes that the kubelet has applied and admitted (in-place resize).
    """

    name: str
    container_id: str = msgspec.field(name="containerID", default="")
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None


class PodCondition(_Wire, frozen=True):
    """One condition of a pod's status. status: True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(_Wire, frozen=True):
    """Status of a pod. phase: Pending, Running, Succeeded, Failed or Unknown.

    resources, allocated_resources: for the pod as a whole.
    start_time: when a kubelet first saw the pod, RFC 3339; "" until then.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str = ""
    nominated_node_name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class PodObject(ApiObject, frozen=True):
    """v1.Pod."""

    API_KIND: ClassVar[str] = "Pod"
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(_Wire, frozen=True):
    """A taint. effect: NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(_Wire, frozen=True):
    """Node fields that operators set."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(_Wire, frozen=True):
    """Information from the kubelet.

    container_runtime_version: such as `containerd://2.1.9`; kubelet_version: `v1.36.3`.
    """

    container_runtime_version: str = ""
    kubelet_version: str = ""


class NodeCondition(_Wire, frozen=True):
    """One condition of a node's status. last_heartbeat_time: RFC 3339."""

    type: str
    last_heartbeat_time: str | None = None


class ContainerImage(_Wire, frozen=True):
    """A container image on a node, with all its names, by tag and by digest."""

    names: tuple[str, ...] | None = None
    size_bytes: Int64 = 0


class NodeStatus(_Wire, frozen=True):
    """Status of a node. allocatable: the part of `capacity` for pods. declared_features: the kubelet's, sorted."""

    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    node_info: NodeInfo | None = None
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()

    def reported_at(self) -> str:
        """Time of the kubelet's last report, RFC 3339; "" if unknown."""
        return next((c.last_heartbeat_time or "" for c in self.conditions if c.type == "Ready"), "")


class Node(ApiObject, frozen=True):
    """v1.Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ConfigMap(ApiObject, frozen=True):
    """v1.ConfigMap."""

    data: dict[str, str] | None = None


class Namespace(ApiObject, frozen=True):
    """v1.Namespace, read for its labels."""


class PriorityClass(ApiObject, frozen=True):
    """scheduling.k8s.io/v1.PriorityClass. global_default: applies to pods without a class."""

    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = ""


class DisruptionBudgetSpec(_Wire, frozen=True):
    """Pods that a budget protects: those in its namespace that match `selector`."""

    selector: LabelSelector | None = None


class DisruptionBudgetStatus(_Wire, frozen=True):
    """Budget status. disruptions_allowed: evictions still allowed. disrupted_pods: names of pods already evicted."""

    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(ApiObject, frozen=True):
    """policy/v1.PodDisruptionBudget."""

    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()
