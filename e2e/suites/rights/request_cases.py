"""What users may write about what their pods ask of the cards, and what the API server says: as `policy_cases`."""

from typing import Final

from config.protocol import names
from e2e.control_plane.admin import Json
from e2e.programs.manifests import NAMESPACE, SCHEDULER
from e2e.suites.rights.policy_cases import HERE, NEW, Case, annotations, somebody
from e2e.support.policy_site import REQUESTS, SCHEDULER_NAME, pod


def _changes(name: str, body: Json, key: str, *, who: str = "somebody", path: str = HERE) -> Case:
    message = f"already: {key} can no longer be set, changed or removed; create another pod"
    return Case(name, who, "PATCH", path, body, (REQUESTS,), message)


def _labels(**labels: str) -> Json:
    return {"metadata": {"labels": {names.GPU_COUNT if key == "count" else key: text for key, text in labels.items()}}}


REQUEST_CASES: Final = (
    *(
        _changes(f"sets {key} on a node", {"metadata": {"annotations": {key: "true"}}}, key)
        for key in (names.EXCLUSIVE, names.GPU_COUNT, names.CARD_MODELS, names.CARD_UUIDS, names.CARD_POLICY)
    ),
    *(
        _changes(f"sets {key} on a node", {"metadata": {"annotations": {key: "app=a"}}}, key)
        for key in (names.NODE_POLICY, names.CARD_AFFINITY, names.CARD_ANTI_AFFINITY)
    ),
    _changes(
        "requires isolation on a node", {"metadata": {"annotations": {names.ISOLATION: "required"}}}, names.ISOLATION
    ),
    _changes(
        "raises its limit on a node", {"metadata": {"annotations": {names.GPU_MEM_LIMIT: "80"}}}, names.GPU_MEM_LIMIT
    ),
    _changes("sets the number of cards by a label", _labels(count="2"), names.GPU_COUNT),
    _changes(
        "takes the whole card by a label",
        {"metadata": {"labels": {names.PLACEMENT_LABEL: names.PLACEMENT_WHOLE_DEVICE}}},
        names.PLACEMENT_LABEL,
    ),
    _changes(
        "takes the whole card by the status",
        {"metadata": {"annotations": {names.EXCLUSIVE: "true"}}},
        names.EXCLUSIVE,
        path=f"{HERE}/status",
    ),
    _changes(
        "takes the whole card by the status",
        {"metadata": {"annotations": {names.EXCLUSIVE: "true"}}},
        names.EXCLUSIVE,
        who=SCHEDULER,
        path=f"{HERE}/status",
    ),
    somebody("changes another annotation of a pod on a node", "PATCH", HERE, annotations(other="x")),
    somebody("changes another label of a pod on a node", "PATCH", HERE, _labels(app="b")),
    somebody(
        "asks for the whole card before the pod has a node",
        "PATCH",
        "{pods}/waiting",
        {"metadata": {"annotations": {names.EXCLUSIVE: "true"}}},
        then={names.EXCLUSIVE: "true"},
    ),
    somebody(
        "writes what it likes on a pod that asks for no GPU memory",
        "PATCH",
        f"/api/v1/namespaces/{NAMESPACE}/pods/plugin-{{own}}",
        {"metadata": {"annotations": {names.EXCLUSIVE: "true"}}},
        then={names.EXCLUSIVE: "true"},
    ),
)


def _creates(name: str, body: Json, message: str = "") -> Case:
    return Case(name, "somebody", "POST", "{pods}", body, (SCHEDULER_NAME,) if message else (), message, at=NEW)


_ADD: Final = "which assigns no cards: add schedulerName: gpushare-scheduler to its spec"
_STATIC: Final = {"kubernetes.io/config.mirror": "0" * 32}

SCHEDULER_NAME_CASES: Final = (
    _creates("forgets the scheduler's name", pod("new", scheduler=""), f"schedulerName is default-scheduler, {_ADD}"),
    _creates("names another scheduler", pod("new", scheduler="other"), f"schedulerName is other, {_ADD}"),
    _creates(
        "names the node",
        pod("new", node="{own}"),
        "replace nodeName: {own} by nodeSelector: {kubernetes.io/hostname: {own}}",
    ),
    _creates(
        "calls the pod a static one",
        pod("new", node="{own}", scheduler="", annotations=_STATIC),
        "schedulerName is default-scheduler",
    ),
    _creates("names the scheduler", pod("new")),
    _creates("names the scheduler by its short name", pod("new", scheduler="gpushare")),
    _creates("asks for no GPU memory", pod("new", scheduler="", units=0)),
    _creates("asks for no GPU memory and names the node", pod("new", node="{own}", scheduler="", units=0)),
)
