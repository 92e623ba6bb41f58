"""The scheduler is asked to wait while a node cannot take pods."""

import asyncio
from pathlib import Path

from config.protocol import names
from tests.support.node.announcing import announcing


async def test_the_scheduler_is_asked_to_wait_while_no_kubelet_has_the_plugin(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        rig.cards.registered(now=False)
        await rig.until(lambda: names.HELD_UNTIL in rig.node.annotations)
        assert rig.node.annotations[names.HELD_UNTIL] == "1970-01-01T00:01:00Z"
        rig.cards.registered(now=True)
        await rig.until(lambda: names.HELD_UNTIL not in rig.node.annotations)


async def test_a_plugin_that_is_not_trusted_yet_asks_to_wait_until_it_is(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        rig.cards.untrusted_until_s = 2.0
        rig.cards.registered(now=True)
        await rig.until(lambda: names.HELD_UNTIL in rig.node.annotations)
        assert rig.node.annotations[names.HELD_UNTIL] == "1970-01-01T00:00:02Z"
        assert rig.cards.problems() == [
            "the plugins before this one were killed, twice in a row: no new GPU pods here until 1970-01-01T00:00:02Z"
        ]
        rig.cards.wall_s = lambda: 2.0
        await rig.until(lambda: names.HELD_UNTIL not in rig.node.annotations)
        assert rig.cards.problems() == []


async def test_a_plugin_that_is_told_to_stop_ends_once_the_scheduler_has_been_asked_to_wait(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        rig.cards.registered(now=True)
        await rig.until(lambda: rig.cards.publisher.announced)
        rig.cards.registered(now=False)
        async with asyncio.timeout(5):
            await rig.cards.publisher.settled()
        assert names.HELD_UNTIL in rig.node.annotations
