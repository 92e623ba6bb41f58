"""The device plugin as a process: one per node, connected, listening, until it is told to stop."""

import asyncio
import contextlib
import gc
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from config.deviceplugin import DevicePluginConfiguration
from config.mistakes import ConfigurationError
from deviceplugin.device_ids import TooManyDevices
from deviceplugin.driver import controlled, source_for
from deviceplugin.lock import AlreadyRunning, InstanceLock, LockUnknown
from deviceplugin.node_api import NodeApi
from deviceplugin.node_plugin import NodePlugin
from deviceplugin.simulated import SimulationMistake
from deviceplugin.web import serve
from scheduler.kube.client import ClientOptions, KubeCluster
from scheduler.kube.connect import ConnectMistake, connect

_CONNECTIONS: Final = 8
_COLLECT_EVERY: Final = 50_000
log = structlog.get_logger()


class StartMistake(Exception):
    """The plugin cannot run as it is configured, or where it is; the message says what to do."""


async def run(configuration: DevicePluginConfiguration, environment: Mapping[str, str]) -> None:
    """Serve this node until SIGTERM or SIGINT. Raises StartMistake."""
    try:
        with InstanceLock(Path(configuration.state_dir)):
            await _connected(configuration, environment)
    except (AlreadyRunning, LockUnknown, ConnectMistake, ConfigurationError, SimulationMistake) as mistake:
        raise StartMistake(str(mistake)) from mistake


async def _connected(configuration: DevicePluginConfiguration, environment: Mapping[str, str]) -> None:
    wanted = configuration.client_connection
    connection = await connect(
        environment,
        kubeconfig=Path(wanted.kubeconfig) if wanted.kubeconfig else None,
        context=wanted.context or None,
    )
    # What the watches bring lives long: looking through all of it every few hundred objects finds nothing, and takes
    # as long as ten calls of the kubelet.
    gc.set_threshold(_COLLECT_EVERY, 20, 100)
    rng = random.Random()  # noqa: S311 - spreads retries, guards nothing
    cluster = KubeCluster(connection, rng, ClientOptions(connections=_CONNECTIONS))
    api = NodeApi(connection, configuration.node_name)
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(cluster.close)
        closing.push_async_callback(api.close)
        await _serve(configuration, cluster, api, rng)


async def _serve(
    configuration: DevicePluginConfiguration, cluster: KubeCluster, api: NodeApi, rng: random.Random
) -> None:
    source = source_for(configuration)
    plugin = NodePlugin(configuration, cluster, api, source, rng)
    host, port = configuration.listen_address
    try:
        server = await serve(host, port, plugin.metrics, ready=plugin.not_ready, alive=lambda: "", status=plugin.status)
    except OSError as error:
        message = f"cannot listen on {configuration.listen}: {error.strerror}; choose another address with --listen"
        raise StartMistake(message) from error
    log.info("start", node=configuration.node_name, listen=configuration.listen, simulated=bool(configuration.simulate))
    try:
        async with controlled(configuration, source):
            await _until_told_to_stop(plugin)
    except* TooManyDevices as mistakes:
        raise StartMistake(_words(mistakes)) from None
    finally:
        await server.cleanup()


async def _until_told_to_stop(plugin: NodePlugin) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(plugin.run())
        await stop.wait()
        log.info("stop")
        working.cancel()


def _words(mistakes: ExceptionGroup[TooManyDevices]) -> str:
    first: BaseException = mistakes
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    return str(first)
