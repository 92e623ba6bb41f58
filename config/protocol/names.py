"""Every name on the wire, once, with its writer and its readers: docs/develop/protocol.md.

Resource names are defaults: `SchedulerConfiguration.resources` may change them.
"""

from typing import Final

# A pod names one of these in `spec.schedulerName`.
SCHEDULER_NAME: Final = "gpushare-scheduler"
SHORT_SCHEDULER_NAME: Final = "gpushare"
# Label of the nodes that the device plugin runs on, as with the legacy plugin.
NODE_LABEL: Final = ("gpushare", "true")

# Resources. Written by the user on containers (limits) and by the device plugin on the node.
GPU_MEM: Final = "aliyun.com/gpu-mem"
GPU_COUNT: Final = "aliyun.com/gpu-count"  # on a node: its cards; as a pod label or annotation: cards requested
GPU_CORE: Final = "aliyun.com/gpu-core.percentage"

# Pod annotations (GPU_COUNT and PLACEMENT_LABEL also as labels). Written by the user, read by the scheduler.
CARD_MODELS: Final = "gpushare/card-models"
CARD_UUIDS: Final = "gpushare/card-uuids"
CARD_POLICY: Final = "gpushare/card-policy"
NODE_POLICY: Final = "gpushare/node-policy"
EXCLUSIVE: Final = "gpushare/exclusive"
# `required`: only a card on which something enforces the pod's share of memory.
ISOLATION: Final = "gpushare/isolation"
ISOLATION_REQUIRED: Final = "required"
# How programs share a card's processors: only a card with MPS, or only one without.
COMPUTE_MODE: Final = "gpushare/compute-mode"
# Units that a container may use while they are free: `memory_limit`.
GPU_MEM_LIMIT: Final = "gpushare/gpu-mem-limit"
# Pods of this name in the namespace start together, at least GANG_MIN of them, or not at all.
GANG: Final = "gpushare/gang"
GANG_MIN: Final = "gpushare/gang-min"
# Marks of other projects that name a PodGroup: a label (scheduler-plugins) and an annotation (Volcano).
POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
CARD_AFFINITY: Final = "gpushare/card-affinity"
CARD_ANTI_AFFINITY: Final = "gpushare/card-anti-affinity"
PLACEMENT_LABEL: Final = "ack.gpushare.placement"
PLACEMENT_WHOLE_DEVICE: Final = "require-whole-device"

# Pod annotations. Written by the scheduler inside the Binding, read by the device plugin and by tools.
ALLOCATION: Final = "scheduler.framework.gpushare.allocation"
INIT_ALLOCATION: Final = "gpushare/init-allocation"
CARDS: Final = "gpushare/cards"
UNIT_MIB: Final = "gpushare/unit-mib"
MEM_IDX: Final = "ALIYUN_COM_GPU_MEM_IDX"
MEM_POD: Final = "ALIYUN_COM_GPU_MEM_POD"
MEM_DEV: Final = "ALIYUN_COM_GPU_MEM_DEV"
MEM_ASSIGNED: Final = "ALIYUN_COM_GPU_MEM_ASSIGNED"  # "false" by the scheduler, "true" by the device plugin
MEM_ASSUME_TIME: Final = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"  # Unix nanoseconds

ALLOCATION_KEYS: Final = (
    ALLOCATION,
    INIT_ALLOCATION,
    CARDS,
    UNIT_MIB,
    MEM_IDX,
    MEM_POD,
    MEM_DEV,
    MEM_ASSIGNED,
    MEM_ASSUME_TIME,
)

# Admission policies without which other users could write these on their own nodes and pods: docs/security.md.
POLICIES: Final = (
    "gpushare-allocation",
    "gpushare-device-plugin-nodes",
    "gpushare-device-plugin-pods",
    "gpushare-requests",
)

# Node annotations. The device plugin writes the inventory, operators the cordon; the scheduler reads both.
INVENTORY: Final = "gpushare/inventory"
CORDON: Final = "gpushare/cordon"
# Written by the device plugin while no kubelet has it registered, read by the scheduler: no new pods until the kubelet
# has reported later than this (RFC 3339, UTC, seconds, like a heartbeat), or the annotation is removed.
HELD_UNTIL: Final = "gpushare/held-until"
# Written by operators, read by the scheduler: the maximum number of pods on one card of the node.
MAX_SHARERS: Final = "gpushare/max-sharers"
# Written by operators (UUIDs or indexes of repaired cards), read and removed by the device plugin.
CLEAR_HEALTH: Final = "gpushare/clear-health"
# Written by operators (UUIDs, indexes or `all`), obeyed while it exists and removed when its time is over.
RELEASE: Final = "gpushare/release"

# The legacy ConfigMap of unhealthy cards: kube-system/unhealthy-gpu-<node>, key "gpus" = "0,2".
UNHEALTHY_NAMESPACE: Final = "kube-system"
UNHEALTHY_PREFIX: Final = "unhealthy-gpu-"
UNHEALTHY_KEY: Final = "gpus"

# Keys that people may write, and where; any other key with our prefixes is a mistake without effect.
POD_ANNOTATIONS: Final = frozenset(
    {
        *(GPU_COUNT, CARD_MODELS, CARD_UUIDS, CARD_POLICY, NODE_POLICY, EXCLUSIVE, CARD_AFFINITY, CARD_ANTI_AFFINITY),
        *(ISOLATION, COMPUTE_MODE, GPU_MEM_LIMIT, GANG, GANG_MIN),
        *ALLOCATION_KEYS,
    }
)
POD_LABELS: Final = frozenset({GPU_COUNT, PLACEMENT_LABEL})
NODE_ANNOTATIONS: Final = frozenset({INVENTORY, CORDON, HELD_UNTIL, MAX_SHARERS, CLEAR_HEALTH, RELEASE})
# Keys of the legacy components: not read here, and not mistakes.
LEGACY_KEYS: Final = frozenset(
    {
        *("scheduler.framework.gpushare.assigned", "scheduler.framework.gpushare.assume-time"),
        *("ALIYUN_COM_GPU_MEM_ASSIGN_TIME", "ALIYUN_GPU_ID"),
    }
)
