"""A pod whose life is over before its creation is answered is not taken for one that waits."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

from e2e.soak.seen import Seen


class Told:
    """What a watch shows, line by line; then nothing more."""

    def __init__(self, *events: tuple[str, str, str]) -> None:
        """Each is (type, uid, node)."""
        self.events = events
        self.all_told = asyncio.Event()

    async def watch(self, _: str) -> AsyncIterator[bytes]:
        for kind, uid, node in self.events:
            metadata = {"namespace": "n", "name": uid, "uid": uid}
            yield json.dumps({"type": kind, "object": {"metadata": metadata, "spec": {"nodeName": node}}}).encode()
        self.all_told.set()
        await asyncio.Event().wait()


async def seen_of(*events: tuple[str, str, str]) -> Seen:
    seen, told = Seen(), Told(*events)
    following = asyncio.create_task(seen.follow(cast("Any", told)))
    await told.all_told.wait()
    following.cancel()
    return seen


async def test_a_pod_that_went_before_its_creation_is_answered_is_gone() -> None:
    seen = await seen_of(("ADDED", "u", ""), ("MODIFIED", "u", "node"), ("DELETED", "u", "node"))
    pod = seen.known("u", "n", "u")
    assert (pod.bound.is_set(), pod.bound_s, pod.leaving.is_set(), pod.gone.is_set()) == (True, None, True, True)
    assert seen.pods == {}


async def test_a_pod_that_is_there_is_the_one_that_was_seen() -> None:
    seen = await seen_of(("ADDED", "u", ""), ("MODIFIED", "u", "node"))
    pod = seen.known("u", "n", "u")
    assert (pod.node, pod.bound.is_set(), pod.gone.is_set()) == ("node", True, False)
    assert not seen.known("v", "n", "v").bound.is_set()
