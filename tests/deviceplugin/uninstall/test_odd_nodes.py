"""Nodes and configurations that are not as they should be: what is not the plugin's stays, whatever they say."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from config.protocol import names
from deviceplugin.lock import AlreadyRunning, InstanceLock
from deviceplugin.uninstall.run import Options, run
from scheduler.process.startup import StartupError
from tests.support.deep import nested
from tests.support.node_to_uninstall import AGAIN_S, USED, WITHIN_S, MadeUpNode

DEEP: Final = 3000


@pytest.fixture
def node(tmp_path: Path) -> MadeUpNode:
    made = MadeUpNode(tmp_path)
    made.checkpoint({}, [])
    return made


def state(node: MadeUpNode) -> Path:
    return node.folder / "plugins" / "gpushare"


async def test_a_state_directory_that_has_the_nodes_cdi_directory_in_it_takes_no_spec_of_others(
    node: MadeUpNode,
) -> None:
    """As `stateDir: /etc` or `/var/run` would have it."""
    node.settings["state_dir"] = str(node.folder)
    (node.folder / "cards").mkdir()
    (node.folder / "cards" / "of-others").mkdir()
    await node.uninstalled(force=True)
    assert (node.folder / "cdi" / "nvidia.yaml").exists()
    assert (node.folder / "cards" / "of-others").exists()


async def test_a_dry_run_sees_a_plugin_that_runs(node: MadeUpNode) -> None:
    with InstanceLock(state(node)), pytest.raises(StartupError, match="still runs on this node"):
        await node.uninstalled(dry_run=True)


@pytest.mark.parametrize("written", ["{}/", "{}/.", "{}//"])
async def test_compute_modes_are_given_back_however_the_path_is_written(node: MadeUpNode, written: str) -> None:
    modes = state(node) / "compute-modes.json"
    modes.write_text(json.dumps({"version": 1, "before": {"GPU-a": "DEFAULT"}}))
    node.settings["state_dir"] = written.format(state(node))
    assert not await node.uninstalled()
    assert "compute modes cannot be given back" in node.said[-1]
    assert modes.exists()


async def test_a_state_directory_behind_a_link_is_emptied_and_the_link_stays(node: MadeUpNode) -> None:
    state(node).rename(node.folder / "elsewhere")
    state(node).symlink_to(node.folder / "elsewhere")
    assert await node.uninstalled()
    assert state(node).is_symlink()
    assert list((node.folder / "elsewhere").iterdir()) == []


async def test_a_link_in_the_place_of_a_directory_of_the_plugin_stays(node: MadeUpNode) -> None:
    (state(node) / "cdi").symlink_to(node.folder / "cdi")
    assert await node.uninstalled()
    assert (state(node) / "cdi").is_symlink()
    assert (node.folder / "cdi" / "nvidia.yaml").exists()
    assert f"{state(node)}/cdi stays: the plugin does not write it" in node.said[-1]


async def test_an_api_server_that_can_be_reached_only_later_is_found(node: MadeUpNode) -> None:
    """As the token of a service account is, or a kubeconfig that is mounted late."""
    async with node.cluster.serving():
        configuration = node.configuration()
        kubeconfig = node.folder / "kubeconfig"
        text = kubeconfig.read_text()
        kubeconfig.unlink()
        running = asyncio.create_task(
            run(configuration, {}, Options(wait=True, again_s=AGAIN_S), node.said.append, asyncio.Event())
        )
        while "it is not known which pods hold cards" not in "".join(node.said):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(AGAIN_S)
        kubeconfig.write_text(text)
        async with asyncio.timeout(WITHIN_S):
            assert await running


async def test_a_plugin_that_comes_when_the_state_directory_was_removed_is_left_alone(node: MadeUpNode) -> None:
    node.checkpoint({names.GPU_MEM: []}, [])
    waiting = asyncio.create_task(node.uninstalled(wait=True))
    while "the kubelet forgets" not in "".join(node.said):  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(AGAIN_S)
    with pytest.raises(AlreadyRunning), InstanceLock(state(node)):
        pass
    shutil.rmtree(state(node))
    with InstanceLock(state(node)):
        (state(node) / "journal.json").write_text("of the new one")
        with pytest.raises(StartupError, match="still runs on this node"):
            await waiting
        assert (state(node) / "journal.json").exists()


async def test_a_wrong_node_without_a_kubelet_and_with_a_damaged_checkpoint_removes_nothing(node: MadeUpNode) -> None:
    (node.folder / "plugins" / "kubelet_internal_checkpoint").write_text("{")
    assert not await node.uninstalled()
    assert f"cdi/gpushare-{USED}.json" in node.tree()
    assert "plugins/gpushare/journal.json" in node.tree()


async def test_directories_that_a_container_has_nested_too_deep_go_too(node: MadeUpNode) -> None:
    with nested(state(node) / "isolation" / "pods" / "p" / "c" / "x", DEEP):
        assert await node.uninstalled()


async def test_names_that_no_terminal_should_obey_are_told_harmlessly(node: MadeUpNode) -> None:
    (state(node) / "a\nb\x1b[31m").touch()
    (state(node) / os.fsdecode(b"\xff")).touch()
    assert await node.uninstalled()
    text = "".join(node.said)
    text.encode()
    assert "\x1b" not in text
    assert "\nb" not in text
