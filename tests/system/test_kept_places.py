"""Places that are kept on one node: each pod waits for its own victims, and for nobody else's."""

import asyncio

from tests.system.looking import card_of, cluster, comes, node_of
from tests.system.process import A_MOMENT_S, in_virtual_time, scheduling
from tests.system.test_preemption import is_going, nominated, runs


@in_virtual_time
async def test_each_of_several_preemptors_is_bound_as_soon_as_its_own_card_is_free() -> None:
    of = cluster(a=[16, 16, 16])
    async with scheduling(of):
        for n in range(3):
            await runs(of, f"low-{n}", 16)
        for n in range(3):
            comes(of, f"urgent-{n}", 16, priority=10)
            await asyncio.sleep(A_MOMENT_S)
        await asyncio.sleep(1.0)
        assert [is_going(of, f"low-{n}") for n in range(3)] == [True] * 3
        assert [nominated(of, f"urgent-{n}") for n in range(3)] == ["a"] * 3

        freed: list[str] = []
        for n in (1, 0, 2):
            card = card_of(of, f"low-{n}")
            of.pods.remove("default", f"low-{n}")
            await asyncio.sleep(A_MOMENT_S)

            bound = [f"urgent-{m}" for m in range(3) if node_of(of, f"urgent-{m}")]
            assert [card_of(of, name) for name in bound].count(card) == 1
            freed.append(card)
            assert sorted(card_of(of, name) for name in bound) == sorted(freed)
