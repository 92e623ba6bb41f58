"""Settings for nodes and pods of histories, and the labels and annotations that a rule reads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from scheduler.kube import objects
from scheduler.pods.declared_features import FEATURES
from scheduler.testing.rules.plans import HOSTNAME, ZONE, Setting

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
    """Keys that histories vary, with their values. fields: of Pod and Template, that the rule reads."""

    labels: Values
    annotations: Values
    node_labels: Values
    node_annotations: Values
    fields: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Choices:
    """Settings of nodes and pods. own_…: field and key that the rule reads, with possible values."""

    own_of_nodes: Mapping[tuple[str, str], Sequence[Any]]
    of_nodes: tuple[Setting, ...]
    own_of_pods: Mapping[tuple[str, str], Sequence[Any]]
    of_pods: tuple[Setting, ...]


def choices(named: Named, nodes: Sequence[objects.Node], pods: Sequence[objects.PodObject]) -> Choices:
    """nodes, pods: the user's own."""
    zones = _of_labels({ZONE: ("a", "b")})
    app = _of_labels({"app": ("web",)})
    return Choices(
        {**_own("labels", named.node_labels), **_own("annotations", named.node_annotations)},
        (*zones, *_of_fields(_NODES), *(Setting("like", "", node) for node in nodes)),
        {**_own("labels", named.labels), **_own("annotations", named.annotations), **_read(named.fields)},
        (*_of_fields(_PODS), *app, *(Setting("like", "", pod) for pod in pods)),
    )


def as_objects(kind: type[Any], written: Sequence[Any]) -> list[Any]:
    """Manifests as mappings, or objects."""
    return [one if isinstance(one, kind) else msgspec.convert(one, kind, strict=False) for one in written]


def _own(name: str, of: Values) -> dict[tuple[str, str], Sequence[str]]:
    return {(name, key): values for key, values in of.items() if values}


def _read(fields: frozenset[str]) -> dict[tuple[str, str], Sequence[Any]]:
    return {(setting, ""): _PODS[setting] for name, setting in _BEHIND.items() if name in fields}


def _of_fields(of: Mapping[str, Sequence[Any]]) -> Iterator[Setting]:
    return (Setting(name, "", value) for name, values in of.items() for value in values)


def _of_labels(of: Values) -> Iterator[Setting]:
    return (Setting("labels", key, value) for key, values in of.items() for value in (*values, None))
