"""Clients of MPS are terminated shortly before the kubelet kills their pods."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import pytest

from deviceplugin.isolation.mps_cards import MpsCards
from deviceplugin.isolation.mps_drain import MpsDrain, due_s
from deviceplugin.reconcile.process_owners import pods_of
from scheduler.kube.objects import ObjectMeta
from scheduler.kube.port import Changed
from scheduler.process.clock import Clock
from tests.deviceplugin.isolation.test_mps_cards import eventually
from tests.support.node.isolating import isolating, kind_of
from tests.support.node.node_pods import CARDS
from tests.support.node.reconcile_site import Node, rig

END, END_S = "2026-01-01T00:00:30Z", 1767225630.0


@pytest.mark.parametrize(
    ("timestamp", "grace_s", "due"),
    [
        pytest.param(END, 30, END_S - 5.0, id="5 s before the end"),
        pytest.param(END, 6, END_S - 3.0, id="the program has at least half of the grace period"),
        pytest.param(END, 0, END_S, id="no grace period"),
        pytest.param(END, -9, END_S, id="a period that is none"),
        pytest.param("soon", 30, 0.0, id="an unreadable time"),
    ],
)
def test_it_is_due_shortly_before_the_grace_period_ends(timestamp: str, grace_s: int, due: float) -> None:
    meta = ObjectMeta(name="p", deletion_timestamp=timestamp, deletion_grace_period_seconds=grace_s)
    assert due_s(meta) == due


OfPod = Callable[[Sequence[int]], Awaitable[Sequence[int]]]


@dataclass
class Drains:
    """Drained cards, and the PIDs that were chosen there of 1 to 3. now_s: Unix seconds."""

    node: Node
    cards: MpsCards
    now_s: float = END_S - 6.0
    drained: list[tuple[str, Sequence[int]]] = field(default_factory=list)

    async def drain(self, uuid: str, of_pod: OfPod) -> None:
        self.drained.append((uuid, await of_pod([1, 2, 3])))

    def serving(self) -> set[str]:
        return {"GPU-a", "GPU-b"}

    def deleted(self, uid: str, grace_s: int = 30) -> None:
        wire = self.node.pods.get(uid)
        assert wire is not None
        ends: Mapping[str, object] = {"deletion_timestamp": END, "deletion_grace_period_seconds": grace_s}
        meta = msgspec.structs.replace(wire.metadata, **ends)
        self.node.pods.apply([Changed(msgspec.structs.replace(wire, metadata=meta))])


@asynccontextmanager
async def draining(folder: Path) -> AsyncIterator[Drains]:
    async with rig(folder) as (node, loop):
        made = Drains(node, isolating(folder, kind_of(folder, "none")).mps)
        owners = partial(pods_of, folder / "proc", node.pods)
        clock = Clock(wall_ns=lambda: int(made.now_s * 1e9))
        drain = MpsDrain(cards=made, view=loop.view, pods_of=owners, clock=clock)  # type: ignore[arg-type]
        running = asyncio.create_task(drain.run())
        try:
            yield made
        finally:
            running.cancel()
            await asyncio.wait({running})


async def test_only_the_clients_of_the_pod_that_ends_are_terminated_on_its_card(folder: Path) -> None:
    async with draining(folder) as drains:
        uid, other = drains.node.runs("p", 4, card=CARDS[1]), drains.node.runs("q", 4, card=CARDS[1])
        drains.node.uses("GPU-b", (1, 10, uid), (2, 10, other))
        drains.now_s = END_S - 5.0
        drains.deleted(uid)
        await eventually(lambda: drains.drained == [("GPU-b", [1])])


async def test_until_then_the_program_may_save_its_work(folder: Path) -> None:
    async with draining(folder) as drains:
        saves, ends = drains.node.runs("p", 4), drains.node.runs("q", 4, card=CARDS[1])
        drains.deleted(saves, grace_s=1)
        drains.now_s = END_S - 5.0
        drains.deleted(ends)
        await eventually(lambda: bool(drains.drained))
        assert drains.drained == [("GPU-b", [])]


async def test_a_pod_that_is_due_later_is_drained_without_another_change(folder: Path) -> None:
    async with draining(folder) as drains:
        drains.now_s = END_S - 5.05
        drains.deleted(drains.node.runs("p", 4))
        drains.now_s = END_S
        await eventually(lambda: drains.drained == [("GPU-a", [])])


async def test_each_pod_is_drained_once(folder: Path) -> None:
    async with draining(folder) as drains:
        drains.now_s = END_S
        first = drains.node.runs("p", 4)
        drains.deleted(first)
        await eventually(lambda: len(drains.drained) == 1)
        drains.deleted(first)
        drains.deleted(drains.node.runs("q", 4, card=CARDS[1]))
        await eventually(lambda: len(drains.drained) == 2)
        assert [uuid for uuid, _ in drains.drained] == ["GPU-a", "GPU-b"]
