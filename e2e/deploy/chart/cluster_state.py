"""What a cluster holds, whoever made it; and waiting until it is as wanted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from e2e.control_plane.admin import Admin, Json
from e2e.programs import manifests

_WITHIN_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.1
# Controllers write these about everything, and they go by themselves.
_OF_THE_CLUSTER: Final = {"events"}


async def everything(admin: Admin) -> set[tuple[str, str, str]]:
    """(collection, namespace, name) of every object of every API group that the server announces."""
    groups = (await admin.get("/apis")).body["groups"]
    bases = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    found: set[tuple[str, str, str]] = set()
    for base in bases:
        for resource in (await admin.get(base)).body["resources"]:
            plural = resource["name"]
            if "list" in resource["verbs"] and "/" not in plural and plural not in _OF_THE_CLUSTER:
                items = await admin.items(f"{base}/{plural}")
                found |= {(plural, each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in items}
    return found


async def until(look: Callable[[], Awaitable[Any]], wanted: object) -> None:
    """Ask again until the answer is the wanted one. Raises AssertionError with the last one."""
    last: object = None
    try:
        async with asyncio.timeout(_WITHIN_S):
            while (last := await look()) != wanted:  # noqa: ASYNC110 - nothing tells when controllers are done
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError:
        message = f"wanted {wanted}, and the last answer is {last}"
        raise AssertionError(message) from None


def key(document: Json) -> tuple[str, str, str]:
    """As `everything` has the object."""
    plural = manifests.collection(document).rpartition("/")[2]
    return plural, document["metadata"].get("namespace", ""), document["metadata"]["name"]
