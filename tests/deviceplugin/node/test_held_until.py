"""The scheduler is asked to wait while a node cannot take pods, and while its plugin is not trusted."""

import asyncio
from pathlib import Path

import pytest

from config.protocol import names
from deviceplugin.node.starts import StartsFile
from scheduler.process.clock import Clock
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
            "the plugin was killed twice in a row; it accepts no GPU pods until 1970-01-01T00:00:02Z"
        ]
        rig.cards.clock = Clock(wall_ns=lambda: 2_000_000_000)
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


@pytest.mark.parametrize(
    ("starts_s", "untrusted_s"),
    [
        pytest.param([100.0], 0.0, id="the first"),
        pytest.param(
            [100.0, 103.0], 0.0, id="one was killed: it was registered again before anything could be written"
        ),
        pytest.param([100.0, 103.0, 108.0], 10.0, id="two were killed"),
        pytest.param([100.0, 103.0, 108.0, 138.0], 60.0, id="three were killed"),
        pytest.param([100.0, 103.0, 603.0], 600.0, id="ten minutes at most"),
        pytest.param([100.0, 900.0, 1600.0], 0.0, id="each ran for longer than ten minutes"),
        pytest.param([100.0, 103.0, 900.0], 0.0, id="the last ran for longer than ten minutes"),
        pytest.param([100.0, 103.0, 50.0], 0.0, id="a clock that went back"),
    ],
)
def test_a_plugin_takes_new_pods_once_it_has_lived_longer_than_the_one_before(
    starts_s: list[float], untrusted_s: float, tmp_path: Path
) -> None:
    assert [StartsFile(tmp_path, "boot").started(start_s) for start_s in starts_s][-1] == untrusted_s


def test_a_plugin_that_was_told_to_stop_begins_the_count_again(tmp_path: Path) -> None:
    file = StartsFile(tmp_path, "boot")
    file.started(1.0)
    file.started(2.0)
    file.told_to_stop()
    file.told_to_stop()
    assert [file.started(3.0), file.started(4.0), file.started(6.0)] == [0.0, 0.0, 4.0]


def test_a_machine_that_started_again_has_killed_nobody(tmp_path: Path) -> None:
    for start_s in (1.0, 2.0):
        StartsFile(tmp_path, "boot").started(start_s)
    assert StartsFile(tmp_path, "another boot").started(3.0) == 0.0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"bootId": "boot"}', "[" * 10_000])
def test_a_file_that_cannot_be_read_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "starts.json").write_text(text)
    assert StartsFile(tmp_path, "boot").started(1.0) == 0.0
