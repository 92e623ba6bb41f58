"""Composition root: the only module that builds the concrete parts and starts them."""

import asyncio
import os
import random
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus

import structlog

from config.settings.leader_election import LeaderElectionSection
from config.settings.plugins import choose
from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.core.build import build_engine, installed_plugins
from scheduler.dispatch.options import ServiceOptions
from scheduler.dispatch.waiting_series import waiting_text
from scheduler.kube import versions
from scheduler.kube.port import ApiError, ApiSilent, Cluster
from scheduler.kube.rest import version
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.client_config.connect import ConnectError, Connection, connect
from scheduler.kube.rest.reviews import NEEDED, PREEMPTION, Right, of_lease
from scheduler.kube.rest.watching import WatchOptions
from scheduler.leader.leader_election import LeaderElection, Timing
from scheduler.leader.leadership import Leadership, LeaseLost
from scheduler.legacy.inspect_api import PATH as INSPECT_PATH
from scheduler.legacy.inspect_api import InspectApi
from scheduler.metrics import series
from scheduler.metrics.metrics import Metrics
from scheduler.metrics.observer import ServiceObserver
from scheduler.process import build_info
from scheduler.process.clock import Clock
from scheduler.process.contact import ContactCollector
from scheduler.process.documents import document_page, on_this_machine
from scheduler.process.http_server import Handler
from scheduler.process.probes import serve
from scheduler.process.startup import StartupError, first_message, stop_requested
from scheduler.service import SchedulerService

log = structlog.get_logger()
# Besides the binds: 16 requests of each of the four other kinds of write, reads and the Lease.
_OTHER_CONNECTIONS = 68
_RIGHTS_CHECK_EVERY_S = 60.0
# Twice this time fits into the 30 s that Kubernetes gives a pod to terminate.
_STOP_TIMEOUT_S = 10.0


async def run(configuration: SchedulerConfiguration, environment: Mapping[str, str]) -> None:
    """Schedule the configured cluster until SIGTERM or SIGINT. Raises StartupError."""
    try:
        wanted = configuration.client_connection
        connection = await connect(environment, kubeconfig=wanted.kubeconfig, context=wanted.context)
    except ConnectError as error:
        raise StartupError(str(error)) from error
    rng = random.Random()  # noqa: S311 - spreads retries, guards nothing
    cluster = _cluster(configuration, connection, rng)
    try:
        leadership = _leadership(configuration.leader_election, cluster, rng)
        await _serve(configuration, connection, cluster, rng, leadership)
    finally:
        await cluster.close()


def _leadership(election: LeaderElectionSection, cluster: Cluster, rng: random.Random) -> Leadership | None:
    """Return the leader election; None if it is disabled."""
    if not election.leader_elect:
        return None
    timing = Timing(
        lease_duration_s=round(election.lease_duration_s),
        renew_deadline_s=election.renew_deadline_s,
        retry_period_s=election.retry_period_s,
    )
    # In a container the host name is the pod's name; a restarted process there counts as another replica.
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    lease = LeaderElection(election.resource_namespace, election.resource_name, identity, timing)
    return Leadership(cluster, lease, now_s=_boot_time_s, wall=_now, rng=rng)


def _boot_time_s() -> float:
    """Return the seconds of a clock that is never adjusted; on Linux, it also runs while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _cluster(configuration: SchedulerConfiguration, connection: Connection, rng: random.Random) -> KubeCluster:
    options = ClientOptions(
        connections=configuration.max_binds_in_flight + _OTHER_CONNECTIONS,
        leaders_timeout_s=configuration.bind_request_timeout_s,
        watch=WatchOptions(stall_s=configuration.watch_stall_timeout_s),
    )
    return KubeCluster(connection, rng, options)


def service_options(configuration: SchedulerConfiguration, *, instance: str) -> ServiceOptions:
    """Return the service's part of the configuration."""
    return ServiceOptions(
        controller=resolve(configuration)[0].scheduler_names[0],
        instance=instance,
        bind_timeout_s=configuration.bind_request_timeout_s,
        max_binds_in_flight=configuration.max_binds_in_flight,
        fencing_delay_s=configuration.bind_timeout_s,
        not_ready_after_s=configuration.not_ready_after_s,
    )


async def _serve(
    configuration: SchedulerConfiguration,
    connection: Connection,
    cluster: KubeCluster,
    rng: random.Random,
    leadership: Leadership | None,
) -> None:
    engine, reader = build_engine(configuration, installed_plugins())
    metrics = Metrics(engine.tables, engine.queue.lengths, per_card=configuration.per_card_metrics)
    service = SchedulerService(
        cluster,
        service_options(configuration, instance=f"{socket.gethostname()}-{os.getpid()}"),
        ServiceObserver(metrics, Clock()),
        engine=engine,
        reader=reader,
        rng=rng,
        leadership=leadership,
    )
    cluster.leads = service.leads
    if leadership is not None:
        metrics.replica.follow(configuration.leader_election.resource_name, service.leads)
    _show(service, metrics)
    try:
        server = await serve(
            configuration.listen_address,
            metrics.scrape,
            ready=service.not_ready,
            alive=lambda: "",
            pages=inspect_pages(configuration.inspect_api, InspectApi(engine.tables, service.not_ready)),
        )
    except OSError as error:
        message = f"cannot listen on {configuration.listen}: {error.strerror}; choose another address with --listen"
        raise StartupError(message) from error
    log.info("start", version=str(build_info.build_info()), **_where(configuration, connection))
    lost = ""
    try:
        await _until_stopped(service, cluster, rights_needed(configuration))
    except* LeaseLost as losses:
        lost = first_message(losses)
    finally:
        await server.cleanup()
    if lost:
        # As in kube-scheduler, exit at once: the new leader finds out what is in flight.
        log.error("leader.lost", reason=lost)
        raise SystemExit(1)


def _where(configuration: SchedulerConfiguration, connection: Connection) -> dict[str, str]:
    return {"server": connection.url, "source": connection.source, "listen": configuration.listen}


def inspect_pages(inspect_api: str, inspected: InspectApi) -> dict[str, Handler]:
    """Return the handlers by path. inspect_api: which clients may read them, as configured."""
    if inspect_api == "none":
        return {}
    page = document_page(INSPECT_PATH, inspected.answer)
    page = page if inspect_api == "all" else on_this_machine(page)
    return {INSPECT_PATH: page, f"{INSPECT_PATH}/": page}


def _show(service: SchedulerService, metrics: Metrics) -> None:
    """Connect the metrics whose values are read from the service."""
    build_info.show(metrics.registry)
    metrics.replica.ready = lambda: not service.not_ready()
    metrics.waiting = lambda: waiting_text(service.dispatch.status.all(), service.engine.queue, time.time())
    metrics.binds_in_flight.set_function(lambda: service.dispatch.in_flight)
    metrics.pods_being_bound.set_function(lambda: service.dispatch.being_bound)
    metrics.registry.register(ContactCollector(series.PREFIX, service.contact))
    # A scrape is rendered in another thread, which has no event loop.
    metrics.loop_tasks.set_function(partial(_tasks_of, asyncio.get_running_loop()))


def _tasks_of(loop: asyncio.AbstractEventLoop) -> int:
    return len(asyncio.all_tasks(loop))


async def _until_stopped(service: SchedulerService, cluster: KubeCluster, needed: Sequence[Right]) -> None:
    stop = stop_requested()
    async with asyncio.TaskGroup() as tasks:
        service_run = tasks.create_task(service.run())
        asking = (
            tasks.create_task(_log_missing_rights(cluster, needed)),
            tasks.create_task(version.tell(cluster.server_version, versions.OF_THE_SCHEDULER)),
        )
        await stop.wait()
        log.info(
            "stop",
            binds_in_flight=service.dispatch.in_flight,
            pods_being_bound=service.dispatch.being_bound,
        )
        for question in asking:
            question.cancel()
        service.stop()
        await asyncio.wait({service_run}, timeout=_STOP_TIMEOUT_S)
        service_run.cancel()
    await service.dispatch.status.flush(_STOP_TIMEOUT_S)


def rights_needed(configuration: SchedulerConfiguration) -> tuple[Right, ...]:
    """Return the rights that the program uses with this configuration."""
    profiles = [profile.plugins for profile in resolve(configuration)]
    preempts = any(choose(plugins, plugins.described).post_filter for plugins in profiles)
    election = configuration.leader_election
    lease = of_lease(election.resource_namespace, election.resource_name) if election.leader_elect else ()
    return (*(right for right in NEEDED if preempts or right != PREEMPTION), *lease)


async def _log_missing_rights(cluster: KubeCluster, needed: Sequence[Right]) -> None:
    """Log missing rights at the start and after each change, until none is missing."""
    logged: list[str] = []
    while True:
        try:
            missing = await cluster.missing_rights(needed)
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
