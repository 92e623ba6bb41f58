"""An engine filled from a cluster that is only read: for `explain` and `what-if`. No running scheduler is needed.

Each kind of objects is listed once, and nothing is ever written. Whoever asks needs the right to list and watch nodes
and pods; without namespaces and ConfigMaps the answer says what it could not look at.
"""

import contextlib
import difflib
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from config.protocol.quantity import QuantityError
from config.settings.plainyaml import DocumentError, parse
from config.settings.scheduler import SchedulerConfiguration
from scheduler.build import build_engine, installed_plugins
from scheduler.engine import Engine
from scheduler.event_handlers import EventHandlers, Problem
from scheduler.explain.answers import Explanation, WhatIf
from scheduler.explain.standing import explain, own_name, sentence
from scheduler.explain.what_if import what_if
from scheduler.kube import objects
from scheduler.kube.port import ApiError, ApiForbidden, Cluster, ListEnds
from scheduler.pods.mistakes import forgotten, mistakes
from scheduler.pods.pod import Pod, PodReader
from scheduler.simulation.defaults import new_pod
from scheduler.volume_handlers import VolumeHandlers
from scheduler.watches import Watched, watched

_MOST_NAMES: Final = 3
_LARGEST_FILE: Final = 1 << 20


class Unanswerable(Exception):
    """The question cannot be answered; the message says why, and what to do."""


@dataclass(slots=True)
class Site:
    """unread: what was left out, a line each."""

    cluster: Cluster
    engine: Engine
    reader: PodReader
    unit_mib: int
    unread: list[str] = field(default_factory=list)

    async def explained(self, namespace: str, name: str, node: str = "") -> Explanation:
        """Raises Unanswerable for a pod or a node that is not there, or that cannot be read."""
        found = await _asked(self.cluster.pod(namespace, name))
        if found is None:
            raise Unanswerable(self._unknown(namespace, name))
        if node and node not in self.engine.tables.row_of:
            near = difflib.get_close_matches(node, self.engine.tables.row_of, _MOST_NAMES)
            message = f"there is no node {node}{_or(near)}"
            raise Unanswerable(message)
        mistaken = mistakes(found, self.reader.resources)
        return explain(self.engine, self._read(found), self.unit_mib, node, mistaken)

    def what_if(self, wire: objects.Pod, replicas: int) -> WhatIf:
        """Of a pod that does not exist."""
        pod = self._read(new_pod(wire))
        words = tuple(sentence(mistake) for mistake in mistakes(wire, self.reader.resources))
        if pod.scheduler_name not in self.engine.scheduler_names:
            ours = own_name(self.engine)
            if pod.template.gpu_units:
                words += (sentence(forgotten(pod.scheduler_name, ours)),)
            pod = msgspec.structs.replace(pod, scheduler_name=ours)
        return what_if(self.engine, pod, replicas, self.unit_mib, words)

    def _read(self, wire: objects.Pod) -> Pod:
        try:
            return self.reader.read(wire)
        except QuantityError as error:
            message = f"pod {wire.metadata.name} cannot be read: {error}"
            raise Unanswerable(message) from error

    def _unknown(self, namespace: str, name: str) -> str:
        records = list(self.engine.tables.records())
        elsewhere = sorted({one.pod.key.namespace for one in records if one.pod.key.name == name})
        there = [one.pod.key.name for one in records if one.pod.key.namespace == namespace]
        near = [f"-n {found}" for found in elsewhere[:_MOST_NAMES]] or difflib.get_close_matches(
            name, there, _MOST_NAMES
        )
        return f"there is no pod {name} in namespace {namespace}{_or(near)}"


def _or(near: list[str]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else ""


async def site(cluster: Cluster, configuration: SchedulerConfiguration) -> Site:
    """Read the cluster. Raises Unanswerable when nodes or pods cannot be read."""
    engine, reader = build_engine(configuration, installed_plugins())
    unread: list[str] = []

    def report(problem: Problem) -> None:
        unread.append(f"{problem.kind} {problem.name}: {problem.message}")

    handlers = EventHandlers(engine, reader, now_s=lambda: 0.0, report=report)
    volume_handlers = VolumeHandlers(engine.change_volumes, report=report, seen=lambda _: None)
    for one in watched(handlers, volume_handlers):
        await _list(cluster, one, unread)
    return Site(cluster, engine, reader, configuration.memory_unit_mib, unread)


async def _list(cluster: Cluster, one: Watched[Any], unread: list[str]) -> None:
    batches = cast("AsyncGenerator[list[Any], None]", cluster.watch(one.kind, None))
    try:
        async with contextlib.aclosing(batches):
            async for batch in batches:
                one.handle(batch)
                if any(isinstance(event, ListEnds) for event in batch):
                    return
    except ApiForbidden as error:
        if one.needed:
            message = f"{one.kind.name} cannot be read: {error.message}; this needs the right to list and watch them"
            raise Unanswerable(message) from error
        unread.append(f"{one.kind.name} cannot be read, and are left out: {error.message}")
    except ApiError as error:
        message = f"{one.kind.name} cannot be read: {error.message}"
        raise Unanswerable(message) from error


async def _asked(answer: Any) -> Any:  # noqa: ANN401 - whatever is asked of the cluster
    try:
        return await answer
    except ApiError as error:
        raise Unanswerable(error.message) from error


def manifest(path: Path) -> objects.Pod:
    """The pod of a manifest: a Pod, or the template of a Deployment, StatefulSet, Job or the like.

    Raises Unanswerable.
    """
    try:
        text = sys.stdin.read(_LARGEST_FILE) if str(path) == "-" else path.read_text(encoding="utf-8")
        documents = [document for document in parse(text) if isinstance(document, dict)]
    except (OSError, UnicodeDecodeError, DocumentError) as error:
        message = f"{path} cannot be read: {error}"
        raise Unanswerable(message) from error
    pods = [found for document in documents if (found := _pod_in(document)) is not None]
    if len(pods) != 1:
        message = (
            f"{path} holds {len(pods) or 'no'} pods or pod templates; expected one Pod, Deployment, Job or the like"
        )
        raise Unanswerable(message)
    try:
        return msgspec.json.decode(msgspec.json.encode(pods[0]), type=objects.Pod)
    except msgspec.ValidationError as error:
        message = f"{path} is no pod: {error}"
        raise Unanswerable(message) from error


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
    named = {"name": metadata.get("name", "pod"), "namespace": metadata.get("namespace", "default")}
    return {"metadata": {**own, **named}, "spec": template.get("spec") or {}}
