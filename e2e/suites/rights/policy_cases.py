"""Who tries to write what, and what the API server says to it: one row each.

Paths and bodies hold `{own}` and `{other}` (the plugin's node and another one), `{pods}` and `{namespace}`. On `{own}`
is the pod `here`, on `{other}` the pod `there`, both with all that the scheduler writes; `waiting` has no node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Json
from e2e.programs.manifests import SCHEDULER
from e2e.support.policy_site import (
    ALLOCATION,
    OLD_EXTENDER,
    OLD_PLUGIN,
    PLUGIN_NODES,
    PLUGIN_PODS,
    VISIBLE_DEVICES,
    binding,
    copied,
    decided,
    pod,
    without_decision,
)

OTHER_KEY: Final = "example.com/owner"


@dataclass(frozen=True, slots=True)
class Case:
    """One write. refused_by: policies that refuse it, of which the answer names any; () for a write that takes place.

    message: a part of the refusal's.
    then: path of the object to read after a permitted write, and the annotations that it has to have (None: not).
    """

    name: str
    who: str
    method: str
    path: str
    body: Json
    refused_by: tuple[str, ...] = ()
    message: str = ""
    at: str = ""
    then: Mapping[str, str | None] = field(default_factory=dict)


def parameters(cases: Iterable[Case]) -> list[object]:
    """The table as pytest takes it."""
    return [pytest.param(case, id=f"{case.who}: {case.name}") for case in cases]


def annotations(**values: str | None) -> Json:
    """A merge patch; `idx`, `assigned`, … are short for the keys."""
    return {"metadata": {"annotations": {_SHORT.get(key, key): value for key, value in values.items()}}}


_SHORT: Final = {
    "allocation": names.ALLOCATION,
    "idx": names.MEM_IDX,
    "assigned": names.MEM_ASSIGNED,
    "assume_time": names.MEM_ASSUME_TIME,
    "other": OTHER_KEY,
    "inventory": names.INVENTORY,
    "cordon": names.CORDON,
    "clear": names.CLEAR_HEALTH,
    "release": names.RELEASE,
}
HERE: Final = "{pods}/here"
_THERE: Final = "{pods}/there"
NEW: Final = "{pods}/new"
_BINDINGS: Final = "/api/v1/namespaces/{namespace}/bindings"
_CONTAINER: Final = pod("p")["spec"]["containers"][0]
_TWICE: Final = {"limits": {names.GPU_MEM: "1", "cpu": "2"}, "requests": {names.GPU_MEM: "1", "cpu": "2"}}
_RESIZED: Final = {"containers": [{**_CONTAINER, "resources": _TWICE}]}
_DEBUGGER: Final = {"ephemeralContainers": [{"name": "d", "image": "none", "targetContainerName": "c"}]}


def somebody(
    name: str, method: str, path: str, body: Json, *, at: str = "", then: Mapping[str, str | None] | None = None
) -> Case:
    """A write that takes place. at: what to read then, if it is not `path`; then: annotations that it has to have."""
    return Case(name, "somebody", method, path, body, at=at or path, then=then or {})


def _refused(name: str, method: str, path: str, body: Json, message: str, *, who: str = "somebody") -> Case:
    return Case(name, who, method, path, body, (ALLOCATION,), message)


ALLOCATION_CASES: Final = (
    *(
        _refused(f"creates a pod with {key}", "POST", "{pods}", pod("new", annotations={key: "0"}), key)
        for key in names.ALLOCATION_KEYS
    ),
    _refused("creates a copy of a pod that ran", "POST", "{pods}", copied(), without_decision()),
    _refused("sets one", "PATCH", "{pods}/waiting", annotations(idx="0"), f"annotation {names.MEM_IDX}"),
    _refused("changes one", "PATCH", HERE, annotations(idx="1"), f"annotation {names.MEM_IDX}"),
    _refused("removes one", "PATCH", HERE, annotations(allocation=None), f"annotation {names.ALLOCATION}"),
    _refused("removes all", "PATCH", HERE, {"metadata": {"annotations": None}}, names.MEM_POD),
    _refused("replaces a pod with one changed", "PUT", HERE, annotations(idx="1"), "kubectl apply, patch and edit"),
    _refused("sets one by the status", "PATCH", "{pods}/waiting/status", annotations(idx="0"), names.MEM_IDX),
    _refused("changes one by the status", "PATCH", f"{HERE}/status", annotations(assigned="true"), names.MEM_ASSIGNED),
    _refused(
        "binds with the scheduler's annotations",
        "POST",
        "{pods}/waiting/binding",
        binding("waiting", "{own}", decided()),
        names.ALLOCATION,
    ),
    _refused(
        "binds by the old path with the scheduler's annotations",
        "POST",
        _BINDINGS,
        binding("waiting", "{own}", decided()),
        names.ALLOCATION,
    ),
    somebody("creates a pod without", "POST", "{pods}", pod("new"), at=NEW, then={names.MEM_IDX: None}),
    somebody(
        "creates a pod with its own wishes",
        "POST",
        "{pods}",
        pod("new", annotations={names.CARD_MODELS: "A"}),
        at=NEW,
        then={names.CARD_MODELS: "A"},
    ),
    somebody("changes another annotation", "PATCH", HERE, annotations(other="x"), then={OTHER_KEY: "x"}),
    somebody(
        "replaces a pod with all unchanged", "PUT", HERE, annotations(other="x"), then={OTHER_KEY: "x", **decided()}
    ),
    somebody(
        "changes the status",
        "PATCH",
        f"{HERE}/status",
        {"status": {"message": "m"}},
        at=HERE,
        then={**decided()},
    ),
    somebody(
        "resizes, and the API server drops the annotation",
        "PATCH",
        f"{HERE}/resize",
        annotations(idx="1") | {"spec": _RESIZED},
        at=HERE,
        then={**decided()},
    ),
    somebody(
        "adds an ephemeral container, and the API server drops the annotation",
        "PATCH",
        f"{HERE}/ephemeralcontainers",
        annotations(idx="1") | {"spec": _DEBUGGER},
        at=HERE,
        then={**decided()},
    ),
    somebody(
        "binds without",
        "POST",
        "{pods}/waiting/binding",
        binding("waiting", "{own}"),
        at="{pods}/waiting",
        then={names.MEM_IDX: None},
    ),
    somebody(
        "binds by the old path without",
        "POST",
        _BINDINGS,
        binding("waiting", "{own}"),
        at="{pods}/waiting",
        then={names.MEM_IDX: None},
    ),
    Case(
        "binds with all of them",
        SCHEDULER,
        "POST",
        "{pods}/waiting/binding",
        binding("waiting", "{own}", decided()),
        at="{pods}/waiting",
        then=decided(),
    ),
    Case(
        "changes one by the status",
        SCHEDULER,
        "PATCH",
        f"{HERE}/status",
        annotations(idx="1"),
        at=HERE,
        then={names.MEM_IDX: "1"},
    ),
    _refused("sets one, migration or not", "PATCH", HERE, annotations(idx="1"), names.MEM_IDX, who=OLD_EXTENDER),
    _refused("marks one", "PATCH", HERE, annotations(assigned="true"), names.MEM_ASSIGNED, who=OLD_PLUGIN),
)


def _plugin(
    name: str,
    body: Json,
    message: str,
    *,
    path: str = HERE,
    who: str = "plugin",
    policies: tuple[str, ...] = (PLUGIN_PODS,),
) -> Case:
    return Case(name, who, "PATCH", path, body, policies, message)


PLUGIN_POD_CASES: Final = (
    Case(
        "marks a pod of its node",
        "plugin",
        "PATCH",
        HERE,
        annotations(assigned="true"),
        at=HERE,
        then={**decided(), names.MEM_ASSIGNED: "true"},
    ),
    _plugin("marks a pod of another node", annotations(assigned="true"), "its own node", path=_THERE),
    _plugin("marks a pod without a node", annotations(assigned="true"), "its own node", path="{pods}/waiting"),
    _plugin("marks a pod", annotations(assigned="true"), "its own node", who="plugin without a node"),
    _plugin("changes the card", annotations(idx="1"), names.MEM_IDX, policies=(ALLOCATION, PLUGIN_PODS)),
    _plugin(
        "changes the time", annotations(assume_time="1"), names.MEM_ASSUME_TIME, policies=(ALLOCATION, PLUGIN_PODS)
    ),
    _plugin("changes another annotation", annotations(other="x"), OTHER_KEY),
    _plugin("changes a label", {"metadata": {"labels": {"app": "b"}}}, "metadata.labels"),
    _plugin("adds a finalizer", {"metadata": {"finalizers": ["example.com/f"]}}, "metadata.finalizers"),
    _plugin(
        "changes the image",
        {"spec": {"containers": [{**_CONTAINER, "image": "other"}]}},
        "pod's spec",
    ),
)

_OWN: Final = "/api/v1/nodes/{own}"
_STATUS: Final = f"{_OWN}/status"


def _capacity(amounts: Mapping[str, str | None], which: str = "capacity") -> Json:
    return {"status": {which: dict(amounts)}}


def _node(name: str, body: Json, message: str, *, path: str = _OWN, who: str = "plugin") -> Case:
    return Case(name, who, "PATCH", path, body, (PLUGIN_NODES,), message)


def _announced(name: str, path: str, body: Json, then: Mapping[str, str | None] | None = None) -> Case:
    return Case(name, "plugin", "PATCH", path, body, at=_OWN, then=then or {})


_NOT_OWN: Final = "only to its own node"

NODE_CASES: Final = (
    _announced("announces its inventory", _OWN, annotations(inventory="{new}"), {names.INVENTORY: "{new}"}),
    _announced("rewrites a cordon", _OWN, annotations(cordon="GPU-0"), {names.CORDON: "GPU-0"}),
    _announced("removes an operator's request", _OWN, annotations(clear=None), {names.CLEAR_HEALTH: None}),
    _announced("removes a release", _OWN, annotations(release=None), {names.RELEASE: None}),
    _announced("counts its cards", _STATUS, _capacity({names.GPU_COUNT: "2"})),
    _announced("counts its compute shares", _STATUS, _capacity({names.GPU_CORE: "200"})),
    _announced("says what is allocatable", _STATUS, _capacity({names.GPU_COUNT: "1"}, "allocatable")),
    _announced("takes its count back", _STATUS, _capacity({names.GPU_COUNT: None})),
    _announced("announces by the status", _STATUS, annotations(inventory="{new}"), {names.INVENTORY: "{new}"}),
    *(
        _node(f"announces {what}", body, _NOT_OWN, path=path)
        for what, path, body in (
            ("another node's inventory", "/api/v1/nodes/{other}", annotations(inventory="{new}")),
            ("another node's cards", "/api/v1/nodes/{other}/status", _capacity({names.GPU_COUNT: "2"})),
        )
    ),
    _node("announces its inventory", annotations(inventory="{new}"), "names no node", who="plugin without a node"),
    _node("counts its cards", _capacity({names.GPU_COUNT: "2"}), _NOT_OWN, path=_STATUS, who="plugin without a node"),
    _node("writes another annotation", annotations(other="x"), OTHER_KEY),
    _node("removes another annotation", annotations(other=None), OTHER_KEY),
    _node("writes another annotation by the status", annotations(other="x"), OTHER_KEY, path=_STATUS),
    _node("lifts a cordon", annotations(cordon=None), "neither make nor lift"),
    _node("writes an operator's request itself", annotations(clear="GPU-1"), "not write one"),
    _node("writes a release itself", annotations(release="GPU-1"), "not write one"),
    _node("labels its node", {"metadata": {"labels": {"zone": "b"}}}, "metadata.labels"),
    _node("labels its node by the status", {"metadata": {"labels": {"zone": "b"}}}, "metadata.labels", path=_STATUS),
    _node("removes a label", {"metadata": {"labels": {"zone": None}}}, "metadata.labels"),
    _node("adds a finalizer", {"metadata": {"finalizers": ["example.com/f"]}}, "metadata.finalizers"),
    _node("makes its node unschedulable", {"spec": {"unschedulable": True}}, "node's spec"),
    _node("taints its node", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}, "node's spec"),
    _node("writes the kubelet's resource", _capacity({names.GPU_MEM: "99"}), names.GPU_MEM, path=_STATUS),
    _node("writes the processors", _capacity({"cpu": "64"}), "resource cpu", path=_STATUS),
    _node(
        "writes how many pods are allocatable", _capacity({"pods": "1"}, "allocatable"), "resource pods", path=_STATUS
    ),
    _node("removes a resource", _capacity({names.GPU_MEM: None}), names.GPU_MEM, path=_STATUS),
    _node("removes its allocatable", _capacity({names.GPU_MEM: None}, "allocatable"), names.GPU_MEM, path=_STATUS),
    _node(
        "says that its node is ready",
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        "status.conditions",
        path=_STATUS,
    ),
    _node(
        "gives its node an address",
        {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}},
        "status.addresses",
        path=_STATUS,
    ),
    Case(
        "writes on any node",
        "somebody",
        "PATCH",
        "/api/v1/nodes/{other}",
        annotations(other="x"),
        at="/api/v1/nodes/{other}",
        then={OTHER_KEY: "x"},
    ),
)

MIGRATION_CASES: Final = (
    Case(
        "sets the card",
        OLD_EXTENDER,
        "PATCH",
        "{pods}/waiting",
        annotations(idx="0"),
        at="{pods}/waiting",
        then={names.MEM_IDX: "0"},
    ),
    Case(
        "binds with all of them",
        OLD_EXTENDER,
        "POST",
        "{pods}/waiting/binding",
        binding("waiting", "{own}", decided()),
        at="{pods}/waiting",
        then=decided(),
    ),
    Case(
        "marks a pod, with the time",
        OLD_PLUGIN,
        "PATCH",
        HERE,
        annotations(assigned="true", assume_time="7"),
        at=HERE,
        then={**decided(), names.MEM_ASSIGNED: "true", names.MEM_ASSUME_TIME: "7"},
    ),
    _refused(
        "changes the card",
        "PATCH",
        HERE,
        annotations(idx="1", assigned="true"),
        f"annotation {names.MEM_IDX}:",
        who=OLD_PLUGIN,
    ),
    _refused("changes the card", "PATCH", HERE, annotations(idx="1"), names.MEM_IDX),
    _plugin(
        "changes the time", annotations(assume_time="1"), names.MEM_ASSUME_TIME, policies=(ALLOCATION, PLUGIN_PODS)
    ),
)


def _with_env(where: str = "containers", *, asks: bool = True, **variable: object) -> Json:
    made = pod("new")
    container = made["spec"]["containers"][0]
    if not asks:
        del container["resources"]
    variables = [{"name": "NVIDIA_VISIBLE_DEVICES", **variable}]
    if where == "containers":
        container["env"] = variables
    else:
        made["spec"][where] = [{"name": "i", "image": "none", "env": variables}]
    return made


def _env(name: str, body: Json, *refused_by: str, method: str = "POST", path: str = "{pods}") -> Case:
    message = "sets NVIDIA_VISIBLE_DEVICES" if refused_by else ""
    return Case(name, "somebody", method, path, body, refused_by, message, at=NEW if path == "{pods}" else HERE)


_SNOOPER: Final = {**_DEBUGGER["ephemeralContainers"][0], "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
_FROM_NODE: Final = {"fieldRef": {"fieldPath": "metadata.annotations['cards']"}}

ENVIRONMENT_CASES: Final = (
    _env("wants all cards", _with_env(value="all"), VISIBLE_DEVICES),
    _env("wants a card by number", _with_env(value="0"), VISIBLE_DEVICES),
    _env("wants what an annotation says", _with_env(valueFrom=_FROM_NODE), VISIBLE_DEVICES),
    _env("wants all cards in an init container", _with_env("initContainers", value="all"), VISIBLE_DEVICES),
    _env(
        "wants all cards in an ephemeral container",
        {"spec": {"ephemeralContainers": [_SNOOPER]}},
        VISIBLE_DEVICES,
        method="PATCH",
        path=f"{HERE}/ephemeralcontainers",
    ),
    _env("wants no card in a container", _with_env(value="void")),
    _env("does not set it", pod("new")),
    _env("asks for no GPU memory", _with_env(asks=False, value="all")),
    _env(
        "adds an ephemeral container without it",
        {"spec": _DEBUGGER},
        method="PATCH",
        path=f"{HERE}/ephemeralcontainers",
    ),
)
