"""The device plugin's process, one per node: connects, listens, and serves until it is stopped."""

import asyncio
import contextlib
import gc
import random
from collections.abc import Iterator, Mapping
from typing import Final

import structlog

from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.mistakes import ConfigurationError
from deviceplugin.backends import backend_for, controlled
from deviceplugin.driver.simulated import SimulationError
from deviceplugin.health.monitor import NeedsNewContainer
from deviceplugin.kubelet.device_ids import TooManyDevices
from deviceplugin.kubelet.session import KubeletSession
from deviceplugin.node.publisher import NodeApi
from deviceplugin.node_plugin import NodePlugin
from deviceplugin.report.status_page import status_page
from scheduler.kube import versions
from scheduler.kube.rest import version
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.client_config.connect import ConnectError, connect
from scheduler.process import build_info
from scheduler.process.probes import serve
from scheduler.process.scrape import exposition
from scheduler.process.startup import StartupError, first_message

_CONNECTIONS: Final = 8
_COLLECT_EVERY: Final = 50_000
log = structlog.get_logger()


async def run(
    configuration: DevicePluginConfiguration,
    environment: Mapping[str, str],
    session: KubeletSession,
    stop: asyncio.Event,
) -> None:
    """Serve this node until `stop`. session: already running. Raises StartupError."""
    try:
        await _connected(configuration, environment, session, stop)
    except (ConnectError, ConfigurationError, SimulationError) as mistake:
        raise StartupError(str(mistake)) from mistake


async def _connected(
    configuration: DevicePluginConfiguration,
    environment: Mapping[str, str],
    session: KubeletSession,
    stop: asyncio.Event,
) -> None:
    wanted = configuration.client_connection
    connection = await connect(environment, kubeconfig=wanted.kubeconfig, context=wanted.context)
    # Objects from the watches live long: a collection every few hundred objects finds no garbage and takes as long as
    # ten calls of the kubelet.
    gc.set_threshold(_COLLECT_EVERY, 20, 100)
    rng = random.Random()  # noqa: S311 - spreads retries, guards nothing
    backend = backend_for(configuration)
    cluster = KubeCluster(connection, rng, ClientOptions(connections=_CONNECTIONS))
    api = NodeApi(connection, configuration.node_name)
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(cluster.close)
        closing.push_async_callback(api.close)
        plugin = NodePlugin(configuration, cluster, api, backend, session, rng)
        async with controlled(configuration, backend):
            await _serve(configuration, cluster, plugin, stop)


async def _serve(
    configuration: DevicePluginConfiguration, cluster: KubeCluster, plugin: NodePlugin, stop: asyncio.Event
) -> None:
    build_info.show(plugin.metrics.registry)

    def scrape() -> Iterator[bytes]:
        plugin.metrics.show_ready(ready=not plugin.not_ready())
        return exposition(plugin.metrics.registry)

    try:
        server = await serve(
            configuration.listen_address,
            scrape,
            ready=plugin.not_ready,
            alive=lambda: "",
            pages={"/status": status_page(plugin.status)},
        )
    except OSError as error:
        message = f"cannot listen on {configuration.listen}: {error.strerror}; choose another address with --listen"
        raise StartupError(message) from error
    log.info(
        "start",
        version=str(build_info.build_info()),
        node=configuration.node_name,
        listen=configuration.listen,
        simulated=bool(configuration.simulate),
    )
    try:
        await _until_told_to_stop(cluster, plugin, stop)
    except* (TooManyDevices, NeedsNewContainer) as mistakes:
        raise StartupError(first_message(mistakes)) from None
    finally:
        await server.cleanup()


async def _until_told_to_stop(cluster: KubeCluster, plugin: NodePlugin, stop: asyncio.Event) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(plugin.run())
            asking = tasks.create_task(version.tell(cluster.server_version, versions.OF_THE_DEVICE_PLUGIN))
            await stop.wait()
            log.info("stop")
            asking.cancel()
            await plugin.stopping()
            working.cancel()
    except BaseException:
        # Reached on cancellation too: the part that serves the kubelet has failed.
        await plugin.failing()
        raise
