"""Commands of `gpushare-device-plugin` as programs of a node."""

import asyncio
import itertools
import sys
from typing import Final

from e2e.programs.plugin_process import DevicePluginProcess
from tests.support.repository import ROOT

_WITHIN_S: Final = 90
_NUMBERS: Final = itertools.count(1)


async def doctor(plugin: DevicePluginProcess, *flags: str) -> tuple[int, str]:
    """Exit code and output of `doctor`, with the plugin's configuration and environment."""
    found = ("--config", str(plugin.configuration), "--address", f"127.0.0.1:{plugin.port}")
    return await run(plugin, "doctor", *found, *flags)


async def run(plugin: DevicePluginProcess, command: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command, likewise."""
    line = [sys.executable, "-m", "deviceplugin.main", command, *arguments]
    environment = {"NODE_NAME": plugin.node.name, "PYTHONPATH": str(ROOT), **plugin.variables}
    name = f"{command}-{plugin.port}-{next(_NUMBERS)}"
    child = plugin.node.enter(name, line, environment)
    code = await asyncio.to_thread(child.process.wait, _WITHIN_S)
    return code, (plugin.node.folder / f"{name}.log").read_text()
