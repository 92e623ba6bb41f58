"""Pods on a test node: created, bound by the test itself, observed while running, removed afterwards."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.node import images

PODS: Final = "/api/v1/namespaces/default/pods"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
# A kubelet that finds no containerd retries a pod after 10 to 15 s.
_SOON_S: Final = 40.0
_FOREVER: Final = "exec sleep 1000000"


def busybox(script: str = "", *, name: str = "c", **fields: object) -> Json:
    """Return a container that runs the shell script, then waits. fields: more of the container's fields."""
    command = ["sh", "-c", f"{script}\n{_FOREVER}"]
    return {"name": name, "image": images.BUSYBOX, "imagePullPolicy": "Never", "command": command, **fields}


def pod(name: str, containers: Sequence[Json] | None = None, **spec: object) -> Json:
    """Return a pod for a test node, with one waiting container by default. No scheduler takes it."""
    own = {
        "schedulerName": "nobody",
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 0,
        "containers": [busybox()] if containers is None else list(containers),
    }
    return {"metadata": {"name": name}, "spec": own | spec}


async def bind(admin: Admin, name: str, node: str) -> None:
    """Bind the pod to the node, as a scheduler does. Raises UnexpectedAnswer."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    done(await admin.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target}))


async def pod_seen(admin: Admin, name: str, wanted: Callable[[Json], bool], *, within_s: float = 60.0) -> Json:
    """Wait for the pod to be as wanted; return its state then. Raises NotSeen."""
    return await seen(admin, PODS, wanted, {"fieldSelector": f"metadata.name={name}"}, within_s=within_s)


async def note_of(admin: Admin, reason: str, name: str, saying: str = "", *, within_s: float = _SOON_S) -> str:
    """Wait for an Event with that reason and text about the named object; return its note. Raises NotSeen."""

    def is_it(event: Json) -> bool:
        return event["regarding"]["name"] == name and saying in event["note"]

    found = await seen(admin, EVENTS, is_it, {"fieldSelector": f"reason={reason}"}, within_s=within_s)
    note: str = found["note"]
    return note


def waits_because(found: Json) -> str:
    """Return why a container of the pod cannot start: the kubelet's reason and message; "" if none waits."""
    waiting = [status["state"].get("waiting", {}) for status in found["status"].get("containerStatuses", [])]
    return "".join(f"{one['reason']}: {one.get('message', '')}" for one in waiting if one)


def has_restarted(found: Json) -> bool:
    """Return whether the pod's only container runs again."""
    (status,) = found["status"]["containerStatuses"]
    return status["restartCount"] > 0 and "running" in status["state"]


async def runs(admin: Admin, name: str) -> Json:
    """Wait until all of the pod's containers run; return its state then. Raises NotSeen."""
    return await pod_seen(admin, name, _is_running, within_s=_SOON_S)


@asynccontextmanager
async def running(admin: Admin, node: str, wanted: Json) -> AsyncIterator[Json]:
    """Create the pod in namespace default, bind it to the node and yield it once it runs; delete it at the end."""
    name = wanted["metadata"]["name"]
    await admin.create(PODS, wanted)
    try:
        await bind(admin, name, node)
        yield await runs(admin, name)
    finally:
        await admin.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def _is_running(found: Json) -> bool:
    statuses = found["status"].get("containerStatuses", [])
    return found["status"]["phase"] == "Running" and all("running" in status["state"] for status in statuses)
