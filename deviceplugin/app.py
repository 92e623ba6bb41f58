"""The device plugin as a process: one per node, connected, listening, until it is told to stop."""

import asyncio
import contextlib
import gc
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.mistakes import ConfigurationError
from deviceplugin.backends import controlled, source_for
from deviceplugin.driver.simulated import SimulationError
from deviceplugin.kubelet.device_ids import TooManyDevices
from deviceplugin.lock import AlreadyRunning, InstanceLock, LockUnknown
from deviceplugin.node.api import NodeApi
from deviceplugin.node_plugin import NodePlugin
from deviceplugin.report.status_page import status_page
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.connect import ConnectError, connect
from scheduler.process.probes import serve
from scheduler.process.scrape import exposition
from scheduler.process.startup import StartupError
from scheduler.process.stop import stop_requested

_CONNECTIONS: Final = 8
_COLLECT_EVERY: Final = 50_000
log = structlog.get_logger()


async def run(configuration: DevicePluginConfiguration, environment: Mapping[str, str]) -> None:
    """Serve this node until SIGTERM or SIGINT. Raises StartupError."""
    try:
        with InstanceLock(Path(configuration.state_dir)):
            await _connected(configuration, environment)
    except (AlreadyRunning, LockUnknown, ConnectError, ConfigurationError, SimulationError) as mistake:
        raise StartupError(str(mistake)) from mistake


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
    try:
        server = await serve(
            configuration.listen_address,
            lambda: exposition(plugin.metrics.registry),
            ready=plugin.not_ready,
            alive=lambda: "",
            pages={"/status": status_page(plugin.status)},
        )
    except OSError as error:
        message = f"cannot listen on {configuration.listen}: {error.strerror}; choose another address with --listen"
        raise StartupError(message) from error
    log.info("start", node=configuration.node_name, listen=configuration.listen, simulated=bool(configuration.simulate))
    try:
        async with controlled(configuration, source):
            await _until_told_to_stop(plugin)
    except* TooManyDevices as mistakes:
        raise StartupError(_first_message(mistakes)) from None
    finally:
        await server.cleanup()


async def _until_told_to_stop(plugin: NodePlugin) -> None:
    stop = stop_requested()
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(plugin.run())
        await stop.wait()
        log.info("stop")
        working.cancel()


def _first_message(mistakes: ExceptionGroup[TooManyDevices]) -> str:
    first: BaseException = mistakes
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    return str(first)
