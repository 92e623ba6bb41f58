"""A driver that is replaced or removed under a plugin that runs, on a real kubelet: the plugin ends, no container does.

NVML is a double with two cards (`e2e.programs.with_nvml`).
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from config.protocol import names
from deviceplugin.report.status_page import ask_status
from e2e.control_plane.admin import Admin, Json
from e2e.node.announced import allocatable
from e2e.node.node_pods import PODS
from e2e.programs.plugin_process import DevicePluginProcess
from e2e.suites.node.test_way_in import spec
from e2e.support.shared_node import SharedNode, all_settled, lives, pods, shared_pod, sharing
from tests.support.repository import ROOT

_NVML: Final = ROOT / "e2e" / "programs" / "with_nvml"
_EXIT_AFTER_S: Final = 3
_ENDS_WITHIN_S: Final = 60.0
_ENDED: Final = f"that has lasted {_EXIT_AFTER_S} s: ending, so that the container is made again"


@pytest.fixture
async def plugin(shared: SharedNode) -> AsyncIterator[DevicePluginProcess]:
    """With a driver that answers, and a CDI spec that fits it."""
    library, file = shared.node.folder / "libcuda.so.gone", shared.node.cdi / "k8s.device-plugin.nvidia.com-gpu.json"
    library.write_text("the driver's library")
    file.write_text(json.dumps(spec(library)))
    try:
        async with shared.instead(
            simulate="",
            simulateControl="",
            modules=_NVML,
            readingInterval="1s",
            driverExitAfter=f"{_EXIT_AFTER_S}s",
        ) as started:
            await started.ready()
            yield started
    finally:
        _error(shared).unlink(missing_ok=True)
        file.unlink()


def _error(shared: SharedNode) -> Path:
    """Has the number of the error that NVML fails with."""
    return shared.node.folder / "nvml-error"


async def _again(on_node: Admin, found: list[Json]) -> list[Json]:
    return [(await on_node.get(f"{PODS}/{pod['metadata']['name']}")).body for pod in found]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        pytest.param(
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            "the driver was replaced after this container was made",
            id="replaced",
        ),
        pytest.param(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "is the driver installed on this node?", id="removed"),
    ],
)
async def test_a_driver_that_has_gone_ends_the_plugin_and_nobodys_container(
    number: int, says: str, plugin: DevicePluginProcess, shared: SharedNode, on_node: Admin
) -> None:
    await shared.node_seen(on_node, lambda node: allocatable(node) > 0)
    async with pods(on_node, [shared_pod(f"there-{k}", [sharing(1)]) for k in range(3)]) as created:
        before = await all_settled(on_node, created)
        assert [pod["status"]["phase"] for pod in before] == ["Running"] * 3
        _error(shared).write_text(str(number))

        failed = await plugin.said("driver.failed")
        assert says in failed["reason"]
        code = await asyncio.to_thread(plugin.child.process.wait, _ENDS_WITHIN_S)
        last = plugin.log.read_text().splitlines()[-1]
        assert (code, says in last, _ENDED in last) == (2, True, True), last
        assert names.HELD_UNTIL in (await shared.read(on_node))["metadata"]["annotations"]
        await shared.node_seen(on_node, lambda node: allocatable(node) == 0)
        assert list(map(lives, await _again(on_node, before))) == list(map(lives, before))

        # As a kubelet does it: the container of the plugin is made again, with the driver that is there now.
        _error(shared).unlink()
        plugin.start()
        await plugin.ready()
        assert "that has lasted" not in (await ask_status(f"127.0.0.1:{plugin.port}")).problems
        assert list(map(lives, await _again(on_node, before))) == list(map(lives, before))
