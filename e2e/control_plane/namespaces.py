"""A namespace of its own for each test, and its end on a cluster that may have no controllers."""

import secrets
from http import HTTPStatus

from e2e.control_plane.admin import Admin, UnexpectedAnswer

_NOW = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}


async def create(admin: Admin) -> str:
    """Make an empty namespace and return its name."""
    name = f"e2e-{secrets.token_hex(4)}"
    await admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


async def remove(admin: Admin, name: str) -> None:
    """Delete the namespace; the controllers of the cluster then empty it."""
    answer = await admin.delete(f"/api/v1/namespaces/{name}")
    if answer.status not in {HTTPStatus.OK, HTTPStatus.ACCEPTED, HTTPStatus.NOT_FOUND}:
        message = f"namespace {name} stays: {answer.status} {answer.body.get('message')}"
        raise UnexpectedAnswer(message)


async def remove_without_controllers(admin: Admin, name: str) -> None:
    """Do what the namespace controller does: delete what is in it, then take its finalizer off."""
    for prefix in await _collections(admin):
        base, plural = prefix
        await admin.delete(f"{base}/namespaces/{name}/{plural}", _NOW)
    await remove(admin, name)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
    await admin.put(f"/api/v1/namespaces/{name}/finalize", body)


async def _collections(admin: Admin) -> list[tuple[str, str]]:
    """(base path, plural) of every namespaced resource that can be deleted as a collection."""
    groups = (await admin.get("/apis")).body["groups"]
    bases = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    found: list[tuple[str, str]] = []
    for base in bases:
        resources = (await admin.get(base)).body["resources"]
        found += [(base, r["name"]) for r in resources if r["namespaced"] and "deletecollection" in r["verbs"]]
    return found
