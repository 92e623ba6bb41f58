"""Mishaps of the programs of a node with NVIDIA cards, which may happen at any time."""

import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from e2e.support.nvidia_site import NvidiaNode

Mishap: TypeAlias = Callable[[NvidiaNode], Awaitable[None]]


async def stop_plugin(on: NvidiaNode) -> None:
    """Stop the plugin and start it."""
    on.plugin.stop()
    on.plugin.start()


async def kill_plugin(on: NvidiaNode) -> None:
    """Kill the plugin and start it twice."""
    on.plugin.kill()
    on.plugin.start()
    await on.plugin.ready()
    # After a second kill in a row it would take no new pods for minutes.
    await stop_plugin(on)


async def stop_kubelet(on: NvidiaNode) -> None:
    """Stop the kubelet and start it."""
    on.node.stop_kubelet()
    on.node.start_kubelet()


async def kill_kubelet(on: NvidiaNode) -> None:
    """Kill the kubelet and start it."""
    on.node.kill_kubelet()
    on.node.start_kubelet()


async def stop_containerd(on: NvidiaNode) -> None:
    """Stop containerd and start it."""
    on.node.stop_containerd()
    on.node.start_containerd()


async def kill_containerd(on: NvidiaNode) -> None:
    """Kill containerd and start it."""
    on.node.kill_containerd()
    on.node.start_containerd()


async def end_containers(on: NvidiaNode) -> None:
    """Kill the first process of every running container."""
    for container in on.node.running():
        with suppress(ProcessLookupError):
            os.kill(container.pid, signal.SIGKILL)


async def reboot(on: NvidiaNode) -> None:
    """Reboot the node, and start the plugin again."""
    await on.reboot()


MISHAPS: Final[Sequence[Mishap]] = (
    stop_plugin,
    kill_plugin,
    stop_kubelet,
    kill_kubelet,
    stop_containerd,
    kill_containerd,
    end_containers,
    reboot,
)
