"""Pods of random histories: what users request, and what other schedulers write on their pods."""

from collections.abc import Mapping
from typing import Any, Final

from config.protocol import names
from config.protocol.allocation import Allocation, LegacyFields, encode
from tests.support.builders import UNIT_MIB, manifest
from tests.system.histories.node_plans import TAINT, ZONE, NodePlan

_PREFERS_B: Final = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}}
        ]
    }
}
_NOT_B: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["b"]}]}]
        }
    }
}


def _spread(key: str, **more: object) -> dict[str, Any]:
    """Of pods named web, one at a time."""
    constraint = {
        "topologyKey": key,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return {"labels": {"app": "web"}, "topologySpreadConstraints": [constraint | more]}


_HOSTNAME: Final = "kubernetes.io/hostname"
_IMAGES: Final = [{"name": "c0", "image": "train:1"}, {"name": "c1", "image": "proxy"}]
_RESTARTS_ALL: Final = [{"name": "c0", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]
_ON_PORT: Final = [{"name": "c0", "ports": [{"containerPort": 80, "hostPort": 8080}]}]


def _about(app: str, topology: str, **more: object) -> dict[str, Any]:
    return {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": app}}, **more}


def _pod_affinity(side: str, topology: str, app: str = "web", **more: object) -> dict[str, Any]:
    return {"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [_about(app, topology, **more)]}}}


def _prefers(side: str, topology: str) -> dict[str, Any]:
    preferred = [{"weight": 10, "podAffinityTerm": _about("web", topology)}]
    return {"affinity": {side: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


_OF_RED: Final[dict[str, Any]] = {"namespaceSelector": {"matchLabels": {"team": "red"}}}
_WITH_THE_CACHE: Final = _pod_affinity("podAffinity", ZONE, "cache")
# Pods that wait for us. By name: arguments of `tests.support.builders.manifest`.
OURS: Final[Mapping[str, dict[str, Any]]] = {
    "one unit": {"gpu_mem": 1},
    "three units": {"gpu_mem": 3},
    "seven units": {"gpu_mem": 7},
    "sixteen units": {"gpu_mem": 16},
    "two containers": {"gpu_mem": [2, 3]},
    "init container": {"gpu_mem": 2, "init_gpu_mem": [6]},
    "two cards": {"gpu_mem": 6, "annotations": {names.GPU_COUNT: "2"}},
    "four cards": {"gpu_mem": 8, "labels": {names.GPU_COUNT: "4"}},
    "exclusive": {"gpu_mem": 2, "annotations": {names.EXCLUSIVE: "true"}},
    "whole device": {"gpu_mem": 4, "labels": {names.PLACEMENT_LABEL: names.PLACEMENT_WHOLE_DEVICE}},
    "fragmentation": {
        "gpu_mem": 2,
        "annotations": {names.CARD_POLICY: "fragmentation", names.NODE_POLICY: "fragmentation"},
    },
    "spread": {"gpu_mem": 2, "annotations": {names.CARD_POLICY: "spread", names.NODE_POLICY: "spread"}},
    "model X": {"gpu_mem": 4, "annotations": {names.CARD_MODELS: "X"}},
    "not that card": {"gpu_mem": 4, "annotations": {names.CARD_UUIDS: "!GPU-twin-0"}},
    "enforced": {"gpu_mem": 3, "annotations": {names.ISOLATION: names.ISOLATION_REQUIRED}},
    "two enforced cards": {
        "gpu_mem": 4,
        "annotations": {names.ISOLATION: names.ISOLATION_REQUIRED, names.GPU_COUNT: "2"},
    },
    "more while it is free": {"gpu_mem": 3, "annotations": {names.GPU_MEM_LIMIT: "8"}},
    "with MPS": {"gpu_mem": 3, "annotations": {names.COMPUTE_MODE: "mps"}},
    "without MPS": {"gpu_mem": 3, "annotations": {names.COMPUTE_MODE: "time-slicing"}},
    "unknown isolation": {"gpu_mem": 1, "annotations": {names.ISOLATION: "please"}},
    "zone a": {"gpu_mem": 2, "nodeSelector": {ZONE: "a"}},
    "not zone b": {"gpu_mem": 2, "affinity": _NOT_B},
    "better in zone b": {"gpu_mem": 2, "affinity": _PREFERS_B},
    "tolerant": {"gpu_mem": 2, "tolerations": [{"key": TAINT.key, "operator": "Exists"}]},
    "web": {"gpu_mem": 1, "labels": {"app": "web"}},
    "with web in the zone": {"gpu_mem": 1, **_pod_affinity("podAffinity", ZONE)},
    "with the cache, which it is itself": {"gpu_mem": 1, "labels": {"app": "cache"}, **_WITH_THE_CACHE},
    "web, one to a node": {"gpu_mem": 1, "labels": {"app": "web"}, **_pod_affinity("podAntiAffinity", _HOSTNAME)},
    "with the red cache, which it may be itself": {
        "gpu_mem": 1,
        "labels": {"app": "cache"},
        **_pod_affinity("podAffinity", ZONE, "cache", **_OF_RED),
    },
    "away from red web": {"gpu_mem": 1, **_pod_affinity("podAntiAffinity", _HOSTNAME, **_OF_RED)},
    "rather away from web": {"gpu_mem": 1, **_prefers("podAntiAffinity", ZONE)},
    "over zones": {"gpu_mem": 1, **_spread(ZONE)},
    "over zones without taints": {"gpu_mem": 1, **_spread(ZONE, nodeTaintsPolicy="Honor", minDomains=2)},
    "over nodes of zone a": {"gpu_mem": 1, "nodeSelector": {ZONE: "a"}, **_spread(_HOSTNAME)},
    "rather over zones": {"gpu_mem": 1, **_spread(ZONE, whenUnsatisfiable="ScheduleAnyway")},
    "important": {"gpu_mem": 7, "priority": 100},
    "cpu only": {"requests": {"cpu": "1"}},
    "much cpu": {"gpu_mem": 1, "requests": {"cpu": "40"}},
    "host port": {"containers": _ON_PORT},
    "images": {"containers": _IMAGES},
    "restarts all containers": {"containers": _RESTARTS_ALL},
    "with a finalizer": {"gpu_mem": 3},
    "gated": {"gpu_mem": 2, "schedulingGates": [{"name": "wait"}]},
    "larger than any card": {"gpu_mem": 1000},
    "is not divisible": {"gpu_mem": 5, "annotations": {names.GPU_COUNT: "2"}},
    "unknown policy": {"gpu_mem": 1, "annotations": {names.CARD_POLICY: "tetris"}},
    "unknown model": {"gpu_mem": 1, "annotations": {names.CARD_MODELS: "Q"}},
    "a volume claim": {"gpu_mem": 1, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
}

# Pods that another scheduler places.
OTHERS: Final[Mapping[str, dict[str, Any]]] = {
    "small": {"gpu_mem": 2},
    "large": {"gpu_mem": 20},
    "cpu": {"requests": {"cpu": "1"}},
    "web": {"labels": {"app": "web"}},
    "on a port": {"containers": _ON_PORT},
    "away from web on the node": _pod_affinity("podAntiAffinity", _HOSTNAME),
    "away from web in the zone": _pod_affinity("podAntiAffinity", ZONE),
    "away from red web in the zone": _pod_affinity("podAntiAffinity", ZONE, **_OF_RED),
    "exclusive": {"gpu_mem": 2, "annotations": {names.EXCLUSIVE: "true"}},
}
WRITTEN: Final = (
    "nothing",
    "legacy",
    "legacy, no such card",
    "allocation",
    "index only",
    "wrong sum",
    "broken",
    "invented",
)


def ours(template: str, name: str, uid: str, namespace: str = "default") -> dict[str, Any]:
    """A pod that waits for us."""
    made = manifest(name, uid=uid, namespace=namespace, **OURS[template])
    if template == "with a finalizer":
        made["metadata"] |= {"finalizers": ["example.com/keep"]}  # type: ignore[operator]
    return made


def others(template: str, name: str, uid: str) -> dict[str, Any]:
    """A pod that waits for another scheduler."""
    return manifest(name, uid=uid, scheduler="default-scheduler", **OTHERS[template])


def annotations(  # noqa: PLR0911 - one per way of writing
    written: str, units: int, plan: NodePlan, index: int
) -> dict[str, str]:
    """What another scheduler writes into its binding: on one card, whatever is there already."""
    uuids = {card.index: card.uuid for card in plan.cards}
    match written if units else "nothing":
        case "legacy":
            return {names.MEM_IDX: str(index), names.UNIT_MIB: "1024"}
        case "legacy, no such card":
            return {names.MEM_IDX: "77", names.UNIT_MIB: "1024"}
        case "allocation":
            return _encoded(units, index, uuids.get(index, ""))
        case "index only":
            return _encoded(units, index, "")
        case "wrong sum":
            return _encoded(units + 1, index, uuids.get(index, ""))
        case "invented":
            invented = {number: f"GPU-invented-{number}" for number in range(units)}
            return encode(
                Allocation({0: dict.fromkeys(invented, 1)}, {}, invented, UNIT_MIB), LegacyFields(units, units, 1)
            )
        case "broken":
            return {names.ALLOCATION: '{"0":', names.CARDS: "[]"}
        case _:
            return {}


def _encoded(units: int, index: int, uuid: str) -> dict[str, str]:
    allocation = Allocation({0: {index: units}}, {}, {index: uuid} if uuid else {}, UNIT_MIB)
    return encode(allocation, LegacyFields(units, units, 1))
