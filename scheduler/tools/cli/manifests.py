"""Reads the pod for `what-if` from a manifest, and finds the priority that the API server would assign."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from config.settings.plainyaml import DocumentError, parse
from scheduler.kube import objects
from scheduler.pods.gpu_request import ResourceNames

_LARGEST_FILE: Final = 1 << 20


class Unanswerable(Exception):
    """The query cannot be answered. The message says why, and what to do."""


class Unreadable(Unanswerable):
    """The cluster does not answer, or reading it is denied."""


class Manifest(NamedTuple):
    """A pod that does not exist yet, or that waits. priority_class: name of its PriorityClass, "" without one.

    pod: its namespace is "" if unset. template: the pod comes from the template of a workload; it has the workload's
    name, unlike the workload's real pods.
    """

    pod: objects.PodObject
    priority_class: str
    template: bool = False


class _Named(msgspec.Struct):
    priority_class: str = msgspec.field(default="", name="priorityClassName")


def manifest(path: Path) -> Manifest:
    """Return the pod of a manifest: a Pod, or the template of a Deployment, StatefulSet, Job or the like.

    path: `-` for standard input. Raises Unanswerable.
    """
    try:
        text = sys.stdin.read(_LARGEST_FILE) if str(path) == "-" else path.read_text(encoding="utf-8")
        documents = [document for document in parse(text) if isinstance(document, dict)]
    except (OSError, UnicodeDecodeError, DocumentError) as error:
        raise Unanswerable(f"{path} cannot be read: {error}") from error
    pods = [(found, document) for document in documents if (found := _pod_in(document)) is not None]
    if len(pods) != 1:
        raise Unanswerable(
            f"{path} holds {len(pods) or 'no'} pods or pod templates; expected one Pod, Deployment, Job or the like"
        )
    found, document = pods[0]
    try:
        pod = msgspec.json.decode(msgspec.json.encode(found), type=objects.PodObject)
        named = msgspec.convert(found.get("spec") or {}, _Named)
    except msgspec.ValidationError as error:
        raise Unanswerable(f"{path} is not a pod: {error}") from error
    return Manifest(pod, named.priority_class, template=document.get("kind") != "Pod")


def requesting(resources: ResourceNames, scheduler: str, units: int, cards: int) -> Manifest:
    """Return a pod of one container that requests `units` on `cards` cards. scheduler: its schedulerName."""
    annotations = {resources.gpu_count: str(cards)} if cards > 1 else {}
    limits = {resources.gpu_mem: str(units)}
    document = {
        "metadata": {"name": "what-if", "uid": "what-if", "annotations": annotations},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "resources": {"limits": limits}}],
        },
    }
    return Manifest(msgspec.json.decode(msgspec.json.encode(document), type=objects.PodObject), "")


def within(read: Manifest, namespace: str) -> Manifest:
    """Return the manifest in this namespace. namespace: the flag's; "" keeps the manifest's own.

    Raises Unanswerable if it names another namespace.
    """
    own = read.pod.metadata.namespace
    if not namespace or own == namespace:
        return read
    if own:
        raise Unanswerable(f"the manifest names namespace {own}, but --namespace is {namespace}")
    return read._replace(pod=replace(read.pod, metadata=replace(read.pod.metadata, namespace=namespace)))


def _pod_in(document: Mapping[str, Any]) -> dict[str, Any] | None:
    if document.get("kind") == "Pod":
        return dict(document)
    metadata, spec = document.get("metadata"), document.get("spec")
    if document.get("kind") == "CronJob" and isinstance(spec, dict):
        job = spec.get("jobTemplate")
        spec = job.get("spec") if isinstance(job, dict) else None
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict) or not isinstance(metadata, dict):
        return None
    own = template.get("metadata") or {}
    if not isinstance(own, dict):
        return None
    named = {"name": metadata.get("name", "pod"), "namespace": metadata.get("namespace", "")}
    return {"metadata": {**own, **named}, "spec": template.get("spec") or {}}


# Built-in classes of every cluster. Source: pkg/apis/scheduling/types.go, SystemCriticalPriority, and v1/helpers.go.
SYSTEM_CLASSES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}

# Sentence about a class that is not among the readable ones.
NOT_THERE: Final = "There is no PriorityClass {}, so the API server rejects the pod"
UNREADABLE: Final = "Its PriorityClass {} cannot be read"
OF_FILES: Final = "Its PriorityClass {} is unknown, because cluster files contain none"


def given(
    asked: Manifest, classes: Sequence[objects.PriorityClass], lacking: str
) -> tuple[objects.PodObject, tuple[str, ...]]:
    """Return (the pod with the priority of its class, sentences about the priority).

    classes: readable classes. lacking: sentence about a class that is not among them, with {} for its name.
    """
    pod, name = asked.pod, asked.priority_class
    suiting = [one for one in classes if (one.metadata.name == name if name else one.global_default)]
    if suiting:
        # The lowest of several defaults. Source: plugin/pkg/admission/priority/admission.go, getDefaultPriority.
        chosen = min(suiting, key=lambda one: one.value)
        policy = pod.spec.preemption_policy or chosen.preemption_policy
        return replace(pod, spec=replace(pod.spec, priority=chosen.value, preemption_policy=policy)), ()
    if name in SYSTEM_CLASSES:
        return replace(pod, spec=replace(pod.spec, priority=SYSTEM_CLASSES[name])), ()
    if not name:
        return pod, ()
    own = pod.spec.priority
    said = f"{own}, as its spec.priority says" if own else "0"
    return pod, (f"{lacking.format(name)}: its priority is taken as {said}.",)
