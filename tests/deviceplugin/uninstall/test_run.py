"""The command on a made-up node: a file tree, a kubelet's checkpoint, an API server that keeps what is written."""

import asyncio
import errno
import json
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from config.protocol import names
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.cli import cli
from deviceplugin.lock import AlreadyRunning, InstanceLock
from deviceplugin.uninstall.run import Options, run
from scheduler.process.startup import StartupError
from tests.support.node.deep import nested
from tests.support.node.node_to_uninstall import AGAIN_S, UNUSED, USED, WITHIN_S, MadeUpNode, gpu_pod

OTHERS: Final = ["cdi/nvidia.yaml", "plugins/kubelet_internal_checkpoint", "plugins/other.sock"]


@pytest.fixture
def node(tmp_path: Path) -> MadeUpNode:
    made = MadeUpNode(tmp_path)
    made.checkpoint({}, [])
    return made


def holding(node: MadeUpNode) -> MadeUpNode:
    """With a pod that runs, whose device the kubelet has recorded."""
    node.cluster.pods = [gpu_pod("p")]
    held: dict[str, object] = {"DeviceIDs": {"-1": ["u0", "u1"]}, "AllocResp": None}
    entry = {"PodUID": "p", "ContainerName": "c", "ResourceName": names.GPU_MEM, **held}
    node.checkpoint({}, [entry])
    return node


async def test_all_of_it_goes_and_nothing_else(node: MadeUpNode) -> None:
    assert await node.uninstalled()

    assert list(node.tree()) == OTHERS
    assert not node.state.exists()
    assert node.cluster.node["metadata"]["annotations"] == {"example.com/x": "y"}
    assert node.cluster.node["status"] == {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}
    assert "".join(node.said).splitlines()[-2:] == [
        "label gpushare stays: set by an operator; to remove it: kubectl label node n1 gpushare-",
        "Node n1: the device plugin has been completely removed.",
    ]


async def test_the_second_time_there_is_nothing_to_do_and_nothing_is_made(node: MadeUpNode) -> None:
    assert await node.uninstalled()
    node.said.clear()
    assert await node.uninstalled()
    assert not any(line.startswith("removed") for text in node.said for line in text.splitlines())
    assert not node.state.exists()


async def test_what_a_running_pod_needs_stays_and_the_pod_is_named(node: MadeUpNode) -> None:
    assert not await holding(node).uninstalled()

    kept = [path for path in node.tree() if path not in OTHERS]
    specs = [f"cdi/gpushare-{device}.json" for device in (UNUSED, USED)]
    assert kept == [*specs, "plugins/gpushare/.health.json.tmp", "plugins/gpushare/journal.json"]
    assert names.INVENTORY not in node.cluster.node["metadata"]["annotations"]
    assert "Pods that hold cards:\n  ns/p\nNode n1: not everything has been removed.\n" in node.said[-1]


async def test_it_waits_until_the_pod_has_ended(node: MadeUpNode) -> None:
    waiting = asyncio.create_task(holding(node).uninstalled(wait=True))
    while not node.said:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(AGAIN_S)
    node.cluster.pods = [gpu_pod("p", "Succeeded")]
    assert await waiting
    assert list(node.tree()) == OTHERS
    assert [text.count("not everything has been removed") for text in node.said if "Node n1" in text] == [1, 0]


async def test_it_waits_until_the_kubelet_has_forgotten(node: MadeUpNode) -> None:
    node.checkpoint({names.GPU_MEM: []}, [])
    waiting = asyncio.create_task(node.uninstalled(wait=True))
    while "the kubelet drops" not in "".join(node.said):  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(AGAIN_S)
    assert (node.state / "lock").exists()
    node.checkpoint({}, [])
    assert await waiting


@pytest.mark.parametrize("locked", [True, False])
async def test_a_dry_run_says_what_would_go_and_changes_nothing(node: MadeUpNode, *, locked: bool) -> None:
    lock = node.state / "lock"
    if not locked:
        lock.unlink()
    before, status = everything(node), json.dumps(node.cluster.node)
    assert not await node.uninstalled(dry_run=True)
    assert (everything(node), json.dumps(node.cluster.node)) == (before, status)
    assert node.said[0].count("would remove ") == 11 + locked
    assert f"would remove {lock.parent}\n" in node.said[0]


def everything(node: MadeUpNode) -> dict[str, str]:
    """Files and directories -> what is in them."""
    found = (path for path in node.folder.rglob("*") if path.name != "kubeconfig")
    return {str(path): path.read_text() if path.is_file() else "" for path in found}


async def test_what_cannot_be_removed_is_told_and_the_rest_goes(node: MadeUpNode) -> None:
    spec = node.folder / "cdi" / "gpushare-1111111111111111.json"
    spec.mkdir()
    assert not await node.uninstalled(wait=True)
    assert f"cannot remove {spec}: Is a directory" in node.said[-1]
    assert list(node.tree()) == OTHERS
    # A plugin that comes finds who was here: only a node that is clean has no lock.
    assert (node.state / "lock").exists()


async def test_what_cannot_be_read_is_named_and_not_waited_for(
    node: MadeUpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: SpecFiles) -> dict[Path, str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(SpecFiles, "written", unreadable)
    assert not await node.uninstalled(wait=True)
    assert f"{node.folder / 'cdi'} stays: it cannot be read: [Errno 13] Permission denied" in node.said[-1]
    assert not (node.state / "journal.json").exists()
    assert (node.state / "lock").exists()


async def test_what_the_api_server_refuses_is_told_and_the_rest_goes(node: MadeUpNode) -> None:
    node.cluster.refused = names.GPU_MEM
    assert not await node.uninstalled()
    assert f"cannot remove resource {names.GPU_MEM}: not allowed" in node.said[-1]
    assert node.cluster.node["status"]["capacity"] == {names.GPU_MEM: "0", "cpu": "8"}
    assert list(node.tree()) == OTHERS


async def test_without_an_api_server_files_stay_unless_it_is_forced(node: MadeUpNode) -> None:
    node.cluster.url = "http://127.0.0.1:9"
    configuration, said = node.configuration(), node.said
    assert not await run(configuration, {}, Options(), said.append, asyncio.Event())
    assert "plugins/gpushare/journal.json" in node.tree()
    assert "it is unknown which pods hold cards: the API server: " in said[-1]
    assert not await run(configuration, {}, Options(force=True), said.append, asyncio.Event())
    assert list(node.tree()) == OTHERS


@pytest.mark.parametrize("flag", ["force", "dry_run"])
async def test_a_plugin_that_runs_is_left_alone(node: MadeUpNode, flag: str) -> None:
    before = node.tree()
    with InstanceLock(node.state), pytest.raises(StartupError, match="is still running on this node"):
        await node.uninstalled(None, **{flag: True})
    assert node.tree() == before


def test_a_plugin_that_runs_is_exit_code_2_with_what_to_do(node: MadeUpNode) -> None:
    with InstanceLock(node.state):
        variables = {"NODE_NAME": "n1", "GPUSHARE_DEVICE_PLUGIN_STATEDIR": str(node.state)}
        result = CliRunner().invoke(cli, ["uninstall"], env=variables)
    assert result.exit_code == 2
    assert "stop it first; with Helm, devicePlugin.uninstall=true replaces it with this command" in result.stderr


def test_what_is_left_is_exit_code_1(node: MadeUpNode) -> None:
    node.cluster.url = "http://127.0.0.1:9"
    configuration = node.configuration()
    variables = {
        "NODE_NAME": "n1",
        "GPUSHARE_DEVICE_PLUGIN_STATEDIR": configuration.state_dir,
        "GPUSHARE_DEVICE_PLUGIN_CDIDIR": configuration.cdi_dir,
        "GPUSHARE_DEVICE_PLUGIN_KUBELET__DEVICEPLUGINDIR": configuration.kubelet.device_plugin_dir,
    }
    line = ["uninstall", "--dry-run", "--kubeconfig", configuration.client_connection.kubeconfig]
    result = CliRunner().invoke(cli, line, env=variables)
    assert result.exit_code == 1
    assert f"{configuration.state_dir} stays: it is unknown which pods hold cards: the API server: " in result.stdout


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


async def test_the_file_of_compute_modes_stays_where_no_driver_answers(node: MadeUpNode) -> None:
    modes = node.state / "compute-modes.json"
    modes.write_text(json.dumps({"version": 1, "before": {"GPU-a": "DEFAULT"}}))
    assert not await node.uninstalled()
    assert "compute modes cannot be restored" in node.said[-1]
    assert modes.exists()


async def test_a_state_directory_behind_a_link_is_emptied_and_the_link_stays(node: MadeUpNode) -> None:
    node.state.rename(node.folder / "elsewhere")
    node.state.symlink_to(node.folder / "elsewhere")
    assert await node.uninstalled()
    assert node.state.is_symlink()
    assert list((node.folder / "elsewhere").iterdir()) == []


async def test_a_state_directory_that_is_mounted_is_emptied_and_stays(
    node: MadeUpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The DaemonSet's container cannot remove its mount."""
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == node.state)
    assert await node.uninstalled()
    assert list(node.state.iterdir()) == []


async def test_a_link_in_the_place_of_a_directory_of_the_plugin_stays(node: MadeUpNode) -> None:
    (node.state / "cdi").symlink_to(node.folder / "cdi")
    assert await node.uninstalled()
    assert (node.state / "cdi").is_symlink()
    assert (node.folder / "cdi" / "nvidia.yaml").exists()
    assert f"{node.state}/cdi stays: it was not written by the plugin" in node.said[-1]


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
        while "it is unknown which pods hold cards" not in "".join(node.said):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(AGAIN_S)
        kubeconfig.write_text(text)
        async with asyncio.timeout(WITHIN_S):
            assert await running


async def test_a_plugin_that_comes_when_the_state_directory_was_removed_is_left_alone(node: MadeUpNode) -> None:
    node.checkpoint({names.GPU_MEM: []}, [])
    waiting = asyncio.create_task(node.uninstalled(wait=True))
    while "the kubelet drops" not in "".join(node.said):  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(AGAIN_S)
    with pytest.raises(AlreadyRunning), InstanceLock(node.state):
        pass
    shutil.rmtree(node.state)
    with InstanceLock(node.state):
        (node.state / "journal.json").write_text("of the new one")
        with pytest.raises(StartupError, match="is still running on this node"):
            await waiting
        assert (node.state / "journal.json").exists()


async def test_a_wrong_node_without_a_kubelet_and_with_a_damaged_checkpoint_removes_nothing(node: MadeUpNode) -> None:
    (node.folder / "plugins" / "kubelet_internal_checkpoint").write_text("{")
    assert not await node.uninstalled()
    assert f"cdi/gpushare-{USED}.json" in node.tree()
    assert "plugins/gpushare/journal.json" in node.tree()


async def test_directories_that_a_container_has_nested_too_deep_go_too(node: MadeUpNode) -> None:
    with nested(node.state / "isolation" / "pods" / "p" / "c" / "x", 3000):
        assert await node.uninstalled()


async def test_names_that_no_terminal_should_obey_are_told_harmlessly(node: MadeUpNode) -> None:
    (node.state / "a\nb\x1b[31m").touch()
    (node.state / os.fsdecode(b"\xff")).touch()
    assert await node.uninstalled()
    text = "".join(node.said)
    text.encode()
    assert "\x1b" not in text
    assert "\nb" not in text


async def test_with_stay_it_is_ready_when_the_node_is_clean_and_goes_when_it_is_told_to(
    node: MadeUpNode, unused_tcp_port: int
) -> None:
    stop, base = asyncio.Event(), f"http://127.0.0.1:{unused_tcp_port}"
    async with asyncio.timeout(WITHIN_S), holding(node).cluster.serving():
        configuration = node.configuration(f"127.0.0.1:{unused_tcp_port}")
        running = asyncio.create_task(
            run(configuration, {}, Options(stay=True, again_s=AGAIN_S), node.said.append, stop)
        )
        while "hold cards: ns/p" not in await page(f"{base}/readyz"):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(AGAIN_S)
        node.cluster.pods = [gpu_pod("p", "Failed")]
        while await page(f"{base}/readyz") != "ok\n":  # noqa: ASYNC110 - as above
            await asyncio.sleep(AGAIN_S)
        assert (await page(f"{base}/healthz"), running.done()) == ("ok\n", False)
        assert "gpushare_build_info" in await page(f"{base}/metrics")
        stop.set()
        assert await running


async def page(url: str) -> str:
    """What it says, whatever its status; "" while nobody listens."""

    def read() -> str:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - http, to ourselves
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except urllib.error.URLError:
            return ""

    return await asyncio.to_thread(read)
