"""The longest pause of the garbage collector with 100,000 pods: while they are listed, and while some come and go."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from e2e.bench import workload
from e2e.bench.workload import Size
from scheduler.intake.event_handlers import EventHandlers
from scheduler.kube import objects
from scheduler.kube.port import Changed, Deleted, WatchEvent
from scheduler.process.collector import EVERY_S, begin, tidy

_NODES: Final = 5000
_PODS: Final = 100_000
_REPLACED: Final = 20_000
_BATCH: Final = 256


def longest_pause_ms(handlers: Callable[[], EventHandlers]) -> float:
    """Milliseconds of CPU in one collection, at most. handlers: of an empty engine."""
    with as_in_the_process(), _pauses_ms() as pauses:
        to, tidied_s = handlers(), time.monotonic()
        nodes = list(workload.nodes(Size(nodes=_NODES, pods=1, templates=1)))
        for start in range(0, _NODES, _BATCH):
            to.nodes([Changed(msgspec.convert(node, objects.Node)) for node in nodes[start : start + _BATCH]])
            tidied_s = _tidied_s(tidied_s)
        for events in _batches():
            to.pods(events)
            tidied_s = _tidied_s(tidied_s)
        tidy()
        return max(pauses)


def _tidied_s(last_s: float) -> float:
    """As the task of the process does between two batches: when it was time, tidy. Returns when that was last."""
    if time.monotonic() - last_s < EVERY_S:
        return last_s
    tidy()
    return time.monotonic()


def _batches() -> Iterator[list[WatchEvent[objects.PodObject]]]:
    """All of them come; then some of them go, and as many others come."""
    running = _running()
    for start in range(0, _PODS, _BATCH):
        yield [Changed(next(running)) for _ in range(start, min(start + _BATCH, _PODS))]
    for start in range(0, _REPLACED, _BATCH):
        gone = range(start, min(start + _BATCH, _REPLACED))
        yield [Deleted(objects.PodObject(objects.ObjectMeta("", uid=f"uid-{number}"))) for number in gone]
        yield [Changed(next(running)) for _ in gone]


def _running() -> Iterator[objects.PodObject]:
    """Pods of one template that run, each with what its kubelet and the scheduler have written."""
    manifest = next(workload.pods(Size(nodes=0, pods=1, templates=1)))
    nodes = [node["metadata"]["name"] for node in workload.nodes(Size(nodes=_NODES, pods=1, templates=1))]
    number = 0
    while True:
        manifest["metadata"] |= {"name": f"p-{number}", "namespace": "default", "uid": f"uid-{number}"}
        manifest["spec"]["nodeName"] = nodes[number % _NODES]
        manifest["status"] = {"phase": "Running", "containerStatuses": list(_statuses(manifest, number))}
        yield msgspec.json.decode(msgspec.json.encode(manifest), type=objects.PodObject)
        number += 1


def _statuses(manifest: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    for container in manifest["spec"]["containers"]:
        yield {
            "name": container["name"],
            "containerID": f"containerd://{number:064x}",
            "resources": container["resources"],
            "allocatedResources": container["resources"].get("requests"),
        }


@contextmanager
def as_in_the_process() -> Iterator[None]:
    """The collector as in the scheduler's process, with what there is frozen; then as before."""
    before = gc.get_threshold()
    begin()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def _pauses_ms() -> Iterator[list[float]]:
    pauses: list[float] = []
    began_s = 0.0

    def note(phase: str, info: dict[str, Any]) -> None:  # noqa: ARG001 - as gc calls it
        nonlocal began_s
        if phase == "start":
            began_s = time.thread_time()
        else:
            pauses.append((time.thread_time() - began_s) * 1e3)

    gc.callbacks.append(note)
    try:
        yield pauses
    finally:
        gc.callbacks.remove(note)
