"""Gangs on a real kube-apiserver: all pods of a gang get a node and a card, or none does."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Json
from e2e.support.gpu_site import GpuSite, cards_of, condition, is_bound, is_unschedulable

_COMPLETE_WITHIN_S: Final = 2.0


async def gang_pod(site: GpuSite, name: str, gang: str, minimum: int, units: int = 16) -> None:
    await site.pod(name, units, annotations={names.GANG: gang, names.GANG_MIN: str(minimum)})


async def all_bound(site: GpuSite, pods: Sequence[str], within_s: float = 15.0) -> list[Json]:
    return list(await asyncio.gather(*(site.seen(name, is_bound, within_s=within_s) for name in pods)))


async def test_a_gang_waits_for_its_last_card(site: GpuSite) -> None:
    await site.nodes(a=[16, 16])
    pods = [f"p{number}" for number in range(3)]
    for name in pods:
        await gang_pod(site, name, "train", 3)

    waiting = await asyncio.gather(*(site.seen(name, is_unschedulable) for name in pods))
    (message,) = {condition(pod)["message"] for pod in waiting}
    assert message.startswith(
        "0/1 nodes are available: 1 Insufficient GPU memory on one card: wants 16, most free 0 (of 16). "
        "Gang train needs 3 pods at once: 2 fit, then pod p"
    )

    await site.nodes(b=[16])
    found = await all_bound(site, pods)
    assert len({(pod["spec"]["nodeName"], *cards_of(pod)) for pod in found}) == len(pods)


@pytest.mark.parametrize("number", range(5))
async def test_of_two_gangs_created_in_turns_one_is_complete_and_the_other_has_nothing(
    site: GpuSite, number: int
) -> None:
    await site.nodes(a=[16] * 5, b=[16] * 5)
    gangs = {gang: [f"{gang}{number}-{each}" for each in range(6)] for gang in ("x", "y")}
    for pair in zip(*gangs.values(), strict=True):
        for gang, name in zip(gangs, pair, strict=True):
            await gang_pod(site, name, gang, 6)

    first, other = await complete(site, gangs)
    assert [name for name in gangs[other] if is_bound(await site.read(name))] == []
    for name in gangs[first]:
        await site.delete_pod(name)
    await all_bound(site, gangs[other])


async def complete(site: GpuSite, gangs: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Return the gang that is complete within two seconds, and the other one."""
    names_of = {name: gang for gang, pods in gangs.items() for name in pods}
    seen = [asyncio.create_task(site.seen(name, is_bound, within_s=_COMPLETE_WITHIN_S)) for name in names_of]
    done, left = await asyncio.wait(seen, timeout=_COMPLETE_WITHIN_S)
    for task in left:
        task.cancel()
    bound = [task.result()["metadata"]["name"] for task in done if task.exception() is None]
    (first,) = {names_of[name] for name in bound}
    assert sorted(bound) == sorted(gangs[first])
    (other,) = set(gangs) - {first}
    return first, other
