"""The first second: what is imported for it, and that nothing else is waited for."""

import asyncio
import subprocess
import sys
from pathlib import Path

from config.protocol import names
from deviceplugin.kubelet.session import SessionFile, SessionRecord
from tests.support.node.kubelet_double import KubeletDouble
from tests.support.repository import ROOT
from tests.support.servers.listing_server import kubeconfig_of

SLOW = {"kubernetes", "aiohttp", "structlog", "rich", "prometheus_client", "pynvml", "requests", "tenacity"}


def test_nothing_slow_is_imported_before_the_kubelet_is_told() -> None:
    program = "import sys, deviceplugin.cli, deviceplugin.start; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert SLOW & {name.partition(".")[0] for name in told.stdout.split()} == set()


async def test_it_registers_while_neither_api_server_nor_driver_answers(folder: Path) -> None:
    SessionFile(folder).save(SessionRecord(names.GPU_MEM, "cdi", unasked=False, devices=(("u0", True), ("u1", False))))
    (folder / "kubelet_internal_checkpoint").write_text('{"Data": {"PodDeviceEntries": null, "RegisteredDevices": {}}}')
    settings = {
        "NODE_NAME": "n",
        "GPUSHARE_DEVICE_PLUGIN_STATEDIR": str(folder),
        "GPUSHARE_DEVICE_PLUGIN_KUBELET__DEVICEPLUGINDIR": str(folder),
        "GPUSHARE_DEVICE_PLUGIN_LISTEN": "127.0.0.1:0",
        "KUBECONFIG": kubeconfig_of(1, folder),
    }
    async with KubeletDouble(folder).running() as double:
        command = [sys.executable, "-m", "deviceplugin.main", "run"]
        child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=settings, stderr=subprocess.PIPE)
        try:
            assert await asyncio.wait_for(double.listed.get(), 30) == {"u0": "Healthy", "u1": "Unhealthy"}
        finally:
            child.terminate()
            _, said = await child.communicate()
    lines = said.decode()
    assert (child.returncode, '"after_s"' in lines, '"event":"registered"' in lines) == (0, True, True), lines
