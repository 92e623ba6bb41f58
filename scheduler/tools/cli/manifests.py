"""The pod of a manifest file: for `what-if`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from config.settings.plainyaml import DocumentError, parse
from scheduler.kube import objects

_LARGEST_FILE: Final = 1 << 20


class Unanswerable(Exception):
    """The question cannot be answered; the message says why, and what to do."""


class Unreadable(Unanswerable):
    """The cluster does not answer, or may not be read."""


class Manifest(NamedTuple):
    """A pod that does not exist yet, or waits. priority_class: name of its PriorityClass, "" without one.

    pod: its namespace is "" if unset. template: of a workload, whose pods have other names than the workload's, which
    this one has.
    """

    pod: objects.PodObject
    priority_class: str
    template: bool = False


class _Named(msgspec.Struct):
    priority_class: str = msgspec.field(default="", name="priorityClassName")


def manifest(path: Path) -> Manifest:
    """The pod of a manifest: a Pod, or the template of a Deployment, StatefulSet, Job or the like. -: standard input.

    Raises Unanswerable.
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
        raise Unanswerable(f"{path} is no pod: {error}") from error
    return Manifest(pod, named.priority_class, template=document.get("kind") != "Pod")


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
