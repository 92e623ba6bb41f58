"""`gpushare-device-plugin uninstall` on a real kubelet, as docs/node-reference.md and deploy/README.md have it typed.

docs/develop/decisions/0082.
"""

import asyncio
import json
import shlex
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Admin, Json
from e2e.node.announced import allocatable
from e2e.node.node_pods import has_restarted, pod_seen, runs, waits_because
from e2e.support.documents_site import NODE, DocumentsSite, documents_site
from e2e.support.shared_node import SharedNode, all_settled, pods, shared_pod, sharing
from tests.support.documents import document_commands
from tests.support.repository import ROOT

_ENDS_WITHIN_S: Final = 120
# The kubelet forgets a plugin after 5 minutes.
_FORGOTTEN_WITHIN_S: Final = 450
_OURS: Final = {names.INVENTORY, names.HELD_UNTIL}


def shown(document: str, beginning: str) -> list[str]:
    """The commands of a document that begin so, in its order."""
    return [
        command
        for of, text in document_commands.blocks("sh")
        for command in document_commands.typed(text)
        if of == document and command.startswith(beginning)
    ]


DRY_RUN, ONCE, WAIT = shown("docs/node-reference.md", "gpushare-device-plugin uninstall")
(PATCH,) = shown("deploy/README.md", "kubectl -n kube-system patch daemonset")
(ROLLOUT,) = shown("deploy/README.md", "kubectl -n kube-system rollout status")


async def typed(shared: SharedNode, command: str) -> tuple[int, str]:
    """Exit code and output of a command of the document, on the node and with the plugin's configuration."""
    node, plugin = shared.node, shared.plugin
    line = [sys.executable, "-m", "deviceplugin.main", *shlex.split(command, comments=True)[1:]]
    environment = {"NODE_NAME": node.name, "PYTHONPATH": str(ROOT)}
    name = f"uninstall-{len(list(node.folder.glob('uninstall-*')))}"
    child = node.enter(name, [*line, "--config", str(plugin.configuration)], environment)
    within_s = _FORGOTTEN_WITHIN_S if command == WAIT else _ENDS_WITHIN_S
    code = await asyncio.to_thread(child.process.wait, within_s)
    said = (node.folder / f"{name}.log").read_text()
    print(f"{command}: {code}\n{said}")  # noqa: T201 - shown for a test that failed
    return code, said


def files(shared: SharedNode) -> list[str]:
    """What is there of the plugin's, the lock left out: it goes last."""
    node = shared.node
    found = [*node.cdi.glob("*gpushare-*"), *node.device_plugins.glob("gpushare*")]
    found += (node.device_plugins / "gpushare").glob("*")
    return sorted(path.name for path in found if path.name not in {"gpushare", "lock"})


async def until_no_pod_holds_cards(shared: SharedNode, command: str) -> tuple[int, str]:
    """Typed again while the kubelet still ends the containers of a pod that is gone."""
    async with asyncio.timeout(_ENDS_WITHIN_S):
        while "hold cards" in (last := await typed(shared, command))[1]:
            pass
    return last


async def holds_until_it_ends(shared: SharedNode, on_node: Admin) -> str:
    """A plugin that runs, a plugin that has ended under a pod, and the pod has ended; what is said of the last."""
    async with pods(on_node, [shared_pod("holds", [sharing(2)])]):
        await all_settled(on_node, ["holds"])
        code, said = await typed(shared, ONCE)
        assert (code, "the device plugin is still running on this node" in said) == (2, True)
        shared.plugin.stop()
        await shared.node_seen(on_node, lambda node: allocatable(node) == 0)
        before = files(shared)
        code, said = await typed(shared, DRY_RUN)
        assert (code, f"would remove annotation {names.INVENTORY}" in said, files(shared)) == (1, True, before)
        code, said = await typed(shared, ONCE)
        assert code == 1
        assert "Pods that hold cards:\n  default/holds\n" in said
        # The specs of pods before it, which the plugin had not removed yet, stay as well.
        assert specs(files(shared)) == specs(before) != []
        assert "journal.json" in files(shared)
        clean(await shared.read(on_node), but={names.GPU_MEM})
        await runs(on_node, "holds")
    code, said = await until_no_pod_holds_cards(shared, ONCE)
    assert (code, files(shared)) == (1, [])
    return said


def specs(named: Iterable[str]) -> list[str]:
    """The CDI specs of containers."""
    return [name for name in named if name.startswith("gpushare-")]


def clean(node: Json, *, but: Collection[str] = ()) -> None:
    """Nothing of ours is on the node object, except for these resources, of which nothing is allocatable."""
    status = node["status"]
    left = {name for name in {**status["capacity"], **status["allocatable"]} if name.startswith("aliyun.com/")}
    assert left <= set(but)
    assert not _OURS & {*node["metadata"].get("annotations", {})}
    assert allocatable(node) == 0


async def comes_back(shared: SharedNode, on_node: Admin) -> None:
    """The plugin starts from nothing, and a new pod gets its card."""
    shared.plugin.start()
    await shared.plugin.ready()
    await shared.node_seen(on_node, lambda node: allocatable(node) > 0)
    async with pods(on_node, [shared_pod("new", [sharing(3)])]):
        assert shared.mismatches(await runs(on_node, "new")) == []


async def test_what_a_pod_needs_stays_until_it_has_ended_and_the_plugin_can_come_back(
    shared: SharedNode, on_node: Admin
) -> None:
    try:
        said = await holds_until_it_ends(shared, on_node)
        assert [line for line in said.splitlines() if " stays: " in line] == [
            f"resource {names.GPU_MEM} stays: the kubelet drops the plugin's devices 5 minutes after the plugin stops"
        ]
    finally:
        shared.plugin.stop()
        await comes_back(shared, on_node)


@pytest.mark.nightly
async def test_nothing_is_left_when_the_kubelet_has_forgotten_the_plugin(shared: SharedNode, on_node: Admin) -> None:
    try:
        await holds_until_it_ends(shared, on_node)
        code, said = await typed(shared, WAIT)
        assert (code, said.splitlines()[-1]) == (
            0,
            f"Node {shared.node.name}: the device plugin has been completely removed.",
        )
        clean(await shared.read(on_node))
        assert not (shared.node.device_plugins / "gpushare").exists()
        shared.node.stop_kubelet()
        shared.node.start_kubelet()
        clean(await shared.read(on_node))
        assert (await typed(shared, ONCE))[0] == 0
    finally:
        shared.plugin.stop()
        await comes_back(shared, on_node)


async def test_a_container_that_ends_meanwhile_waits_and_has_its_card_when_a_plugin_is_there_again(
    shared: SharedNode, on_node: Admin
) -> None:
    async with pods(on_node, [shared_pod("holds", [sharing(2)])]):
        (found,) = await all_settled(on_node, ["holds"])
        shared.plugin.stop()
        try:
            await shared.node_seen(on_node, lambda node: allocatable(node) == 0)
            await typed(shared, ONCE)
            shared.kill_container(found)
            await pod_seen(
                on_node, "holds", lambda pod: "PreStartContainer" in waits_because(pod), within_s=_ENDS_WITHIN_S
            )
        finally:
            await comes_back(shared, on_node)
        again = await pod_seen(on_node, "holds", has_restarted, within_s=_ENDS_WITHIN_S)
        assert shared.mismatches(again) == []


@pytest.mark.nightly
def test_the_pods_of_the_daemon_set_are_ready_when_their_nodes_are_clean(node_ready: None, tmp_path: Path) -> None:
    del node_ready
    with documents_site(tmp_path) as site:
        site.run("bash", "-c", PATCH)
        assert waits(site) == "holding"
        site.run("kubectl", "delete", "pod", "first-pod", "--grace-period=0", "--force")
        site.run("bash", "-c", f"{ROLLOUT} --timeout={_FORGOTTEN_WITHIN_S}s")
        clean(json.loads(site.run("kubectl", "get", "node", NODE, "-o", "json")))
        # And back.
        site.run("bash", "-c", PATCH.replace("uninstall, --wait, --stay", "run"))
        site.run("bash", "-c", f"{ROLLOUT} --timeout=120s")
        site.run("kubectl", "create", "-f", "docs/examples/first-pod.yaml")
        site.run("kubectl", "wait", "--for=condition=Ready", "pod/first-pod", "--timeout=60s")


@pytest.mark.nightly
def test_one_node_is_given_back_and_comes_again(node_ready: None, tmp_path: Path) -> None:
    """The others keep the plugin: the DaemonSet is not changed."""
    del node_ready
    given, again = (block.replace("NODE", NODE) for block in one_node())
    with documents_site(tmp_path) as site:
        site.run("kubectl", "delete", "pod", "first-pod", "--grace-period=0", "--force")
        said = site.run("bash", "-e", "-o", "pipefail", "-c", given)
        assert f"Node {NODE}: the device plugin has been completely removed." in said
        clean(json.loads(site.run("kubectl", "get", "node", NODE, "-o", "json")))
        site.run("bash", "-e", "-c", again)
        site.run("kubectl", "create", "-f", "docs/examples/first-pod.yaml")
        site.run("kubectl", "wait", "--for=condition=Ready", "pod/first-pod", "--timeout=60s")


def one_node() -> list[str]:
    """The two blocks of "Give one node back": given, and taken again."""
    text = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    return document_commands.fenced(text.partition("### Give one node back\n")[2].partition("\n## ")[0], "sh")


def waits(site: DocumentsSite) -> str:
    """Until a pod of the DaemonSet says that the pod holds cards."""
    script = (
        "for _ in {1..600}; do kubectl -n kube-system logs -l app.kubernetes.io/name=gpushare-scheduler-device-plugin "
        "| grep -qx '  default/first-pod' && echo -n holding && exit; sleep 0.2; done"
    )
    return site.run("bash", "-c", script)
