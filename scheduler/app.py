"""The composition root: the only file that builds the concrete parts and starts them."""

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

import structlog

from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.build import build_engine, installed_plugins
from scheduler.kube.port import ApiError, ApiSilent
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.connect import ConnectError, Connection, connect
from scheduler.kube.rest.watching import WatchOptions
from scheduler.process.collector import keep_pauses_short
from scheduler.process.contact import ContactCollector
from scheduler.process.probes import serve
from scheduler.process.startup import StartupError
from scheduler.process.stop import stop_requested
from scheduler.service import Service, ServiceOptions
from scheduler.telemetry.metrics import Metrics
from scheduler.telemetry.observer import ServiceObserver

log = structlog.get_logger()
# Beside the binds: the watches, reads, requests about volumes, and the recorder's senders.
_OTHER_CONNECTIONS = 44
_RIGHTS_CHECK_EVERY_S = 60.0
# Twice this fits into the 30 s that Kubernetes gives a pod to terminate.
_STOP_TIMEOUT_S = 10.0


async def run(configuration: SchedulerConfiguration, environment: Mapping[str, str]) -> None:
    """Schedule the configured cluster until SIGTERM or SIGINT. Raises StartupError."""
    try:
        connection = await connect(
            environment,
            kubeconfig=Path(configuration.client_connection.kubeconfig)
            if configuration.client_connection.kubeconfig
            else None,
            context=configuration.client_connection.context or None,
        )
    except ConnectError as error:
        raise StartupError(str(error)) from error
    rng = random.Random()  # noqa: S311 - spreads retries, guards nothing
    async with contextlib.aclosing(_cluster(configuration, connection, rng)) as cluster:
        await _serve(configuration, connection, cluster, rng)


def _cluster(configuration: SchedulerConfiguration, connection: Connection, rng: random.Random) -> "_Closing":
    options = ClientOptions(
        connections=configuration.max_binds_in_flight + _OTHER_CONNECTIONS,
        watch=WatchOptions(stall_s=configuration.watch_stall_timeout_s),
    )
    return _Closing(connection, rng, options)


class _Closing(KubeCluster):
    """A KubeCluster for `aclosing`."""

    async def aclose(self) -> None:
        """End every connection."""
        await self.close()


def service_options(configuration: SchedulerConfiguration, *, instance: str) -> ServiceOptions:
    """What the service needs of the configuration."""
    return ServiceOptions(
        controller=resolve(configuration)[0].scheduler_names[0],
        instance=instance,
        bind_timeout_s=configuration.bind_request_timeout_s,
        predecessor_s=configuration.bind_timeout_s,
        max_binds_in_flight=configuration.max_binds_in_flight,
        not_ready_after_s=configuration.not_ready_after_s,
        audit_period_s=configuration.ledger_audit_period_s,
    )


async def _serve(
    configuration: SchedulerConfiguration, connection: Connection, cluster: KubeCluster, rng: random.Random
) -> None:
    engine, reader = build_engine(configuration, installed_plugins())
    metrics = Metrics(engine.tables, engine.queue.lengths, per_card=configuration.per_card_metrics)
    service = Service(
        cluster,
        service_options(configuration, instance=f"{socket.gethostname()}-{os.getpid()}"),
        ServiceObserver(metrics),
        engine=engine,
        reader=reader,
        rng=rng,
    )
    metrics.binds_in_flight.set_function(lambda: service.binds_in_flight)
    metrics.registry.register(ContactCollector("gpushare_scheduler_", service.contact))
    metrics.pods_being_bound.set_function(lambda: service.pods_being_bound)
    try:
        server = await serve(
            configuration.listen_address,
            metrics.scrape,
            ready=service.not_ready,
            alive=lambda: "",
        )
    except OSError as error:
        message = f"cannot listen on {configuration.listen}: {error.strerror}; choose another address with --listen"
        raise StartupError(message) from error
    log.info("start", server=connection.url, source=connection.source, listen=configuration.listen)
    try:
        await _until_stopped(service, cluster)
    finally:
        await server.cleanup()


async def _until_stopped(service: Service, cluster: KubeCluster) -> None:
    stop = stop_requested()
    async with asyncio.TaskGroup() as tasks:
        service_run = tasks.create_task(service.run())
        checking_rights = tasks.create_task(_log_missing_rights(cluster))
        collecting = tasks.create_task(keep_pauses_short())
        await stop.wait()
        log.info("stop", binds_in_flight=service.binds_in_flight, pods_being_bound=service.pods_being_bound)
        checking_rights.cancel()
        service.stop()
        await asyncio.wait({service_run}, timeout=_STOP_TIMEOUT_S)
        service_run.cancel()
        collecting.cancel()
    await service.recorder.flush(_STOP_TIMEOUT_S)


async def _log_missing_rights(cluster: KubeCluster) -> None:
    """Log which rights are missing, again whenever that changes, until none is."""
    logged: list[str] = []
    while True:
        try:
            missing = await cluster.missing_rights()
        except ApiError as error:
            # Otherwise the watches fail for the same reason and log it.
            if not isinstance(error, ApiSilent) and error.status != HTTPStatus.UNAUTHORIZED:
                log.warning("rights.unknown", reason=error.message)
        else:
            if missing != logged:
                _log_rights(missing)
            if not missing:
                return
            logged = missing
        await asyncio.sleep(_RIGHTS_CHECK_EVERY_S)


def _log_rights(missing: list[str]) -> None:
    if missing:
        log.error("rights.missing", missing=missing, hint="apply deploy/manifests/rbac.yaml")
    else:
        log.info("rights.complete")
