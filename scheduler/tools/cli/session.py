"""Cluster of a command: its connection, and the configuration by which its scheduler counts."""

import asyncio
import contextlib
import math
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from config.protocol import names
from config.protocol.inventory import Card, InventoryError, decode
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.port import NODES, ApiError, ApiForbidden, Kind
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.client_config.connect import ConnectError, Connection, connect
from scheduler.kube.rest.client_config.overrides import NO_OVERRIDES, Overrides
from scheduler.kube.rest.watching import WatchOptions
from scheduler.kube.scheduling import KINDS_AND_OPTIONAL
from scheduler.process.output import warn
from scheduler.tools.cli.answering import configured
from scheduler.tools.cli.asking import ClusterView, all_of, cluster_view, tell_unread
from scheduler.tools.cli.cluster_configuration import written
from scheduler.tools.cli.manifests import Unreadable
from scheduler.tools.cli.target import Target

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Patience:
    """Patience with an API server that accepts connections but does not answer, in seconds.

    says_so_s: time until a line on standard error; None if never. gives_up_s: time until the request fails. A
    scheduler waits longer (WatchOptions), because a watch may be silent for minutes, but a command only lists. A page
    that arrives slowly is not silent: it gets as long as in a scheduler.
    """

    says_so_s: float | None = 5.0
    gives_up_s: float = 30.0


LISTS: Final = Patience()
# While a command waits for successors, nothing may happen for minutes.
WATCHES: Final = Patience(gives_up_s=WatchOptions().stall_s)
_DEFAULTS: Final = "the scheduler's configuration may not be read, so its defaults are used; name a file with --config"
# A line on standard error would interrupt the command line being typed.
SILENT: Final = Patience(says_so_s=None)


class ClusterSession(NamedTuple):
    """Connection to a cluster. namespace: the flag's, otherwise the context's."""

    cluster: KubeCluster
    configuration: SchedulerConfiguration
    namespace: str


@contextlib.asynccontextmanager
async def session(target: Target, patience: Patience = LISTS) -> AsyncIterator[ClusterSession]:
    """Connect to the cluster of the flags. Raises Unreadable; exits if the configuration has mistakes."""
    own = configured(target.program, target.config, target.flags)
    async with _opened(target, own, patience) as cluster:
        try:
            found, denied = None if target.config is not None else await written(cluster), False
        except ApiForbidden:
            found, denied = None, True
        if denied and patience is WATCHES:
            warn([_DEFAULTS])
        configuration = own if found is None else configured(target.program, found.place, target.flags, found.text)
        yield ClusterSession(cluster, configuration, target.namespace or cluster.namespace)
    # Not beside an error: a command that is denied more than this ends with that.
    if denied and patience is not WATCHES:
        warn([_DEFAULTS])


def connected_to(target: Target, patience: Patience = LISTS) -> contextlib.AbstractAsyncContextManager[KubeCluster]:
    """Connect a client without reading the cluster's configuration. Exits if the configuration file has mistakes."""
    return _opened(target, configured(target.program, target.config, target.flags), patience)


def _opened(
    target: Target, own: SchedulerConfiguration, patience: Patience
) -> contextlib.AbstractAsyncContextManager[KubeCluster]:
    if target.request_timeout_s is not None:
        patience = replace(patience, gives_up_s=target.request_timeout_s)
    return opened(own, os.environ, patience, target.overrides)


@contextlib.asynccontextmanager
async def opened(
    configuration: SchedulerConfiguration,
    environment: Mapping[str, str],
    patience: Patience = LISTS,
    overrides: Overrides = NO_OVERRIDES,
) -> AsyncIterator[KubeCluster]:
    """Open a client. Raises Unreadable."""
    connection = await connected(configuration, environment, overrides)
    limits = WatchOptions(stall_s=patience.gives_up_s)
    options = ClientOptions(request_timeout_s=patience.gives_up_s, watch=limits)
    cluster = KubeCluster(connection, random.Random(), options)  # noqa: S311 - guards nothing
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(cluster.close)
        if patience.says_so_s is not None:
            loop = asyncio.get_running_loop()
            closing.callback(
                loop.call_later(patience.says_so_s, _tell_silence, cluster, connection.url, patience).cancel
            )
        yield cluster


def _tell_silence(cluster: KubeCluster, url: str, patience: Patience) -> None:
    if not cluster.has_answered:
        limit = f"; giving up after {patience.gives_up_s:g} s" if math.isfinite(patience.gives_up_s) else ""
        warn([f"no answer from {url} yet{limit}"])


async def connected(
    configuration: SchedulerConfiguration, environment: Mapping[str, str], overrides: Overrides = NO_OVERRIDES
) -> Connection:
    """Return the connection that the scheduler would use. Raises Unreadable."""
    named = configuration.client_connection
    try:
        return await connect(environment, kubeconfig=named.kubeconfig, context=named.context, overrides=overrides)
    except ConnectError as error:
        raise Unreadable(str(error)) from error


def asked(
    target: Target, question: Callable[[ClusterView], Awaitable[R]], kinds: Collection[Kind[Any]] = KINDS_AND_OPTIONAL
) -> R:
    """Read the cluster and return the answer to `question`. Standard error names omitted objects.

    Raises Unanswerable.
    """

    async def ask() -> R:
        async with session(target) as of:
            read = await cluster_view(of.cluster, of.configuration, kinds)
            read.namespace = of.namespace
            answer = await question(read)
        tell_unread(read.unread)
        return answer

    return asyncio.run(ask())


async def nodes_with_cards(target: Target) -> dict[str, tuple[Card, ...]]:
    """Return the nodes that announce cards, by name. Raises Unreadable."""
    async with connected_to(target, SILENT) as cluster:
        try:
            found = [node.metadata for node in await all_of(cluster, NODES)]
        except ApiError as error:
            raise Unreadable(error.message) from error
    announced = {node.name: text for node in found if (text := (node.annotations or {}).get(names.INVENTORY))}
    return {name: _announced(announced[name]) for name in sorted(announced)}


def _announced(text: str) -> tuple[Card, ...]:
    with contextlib.suppress(InventoryError):
        return tuple(decode(text).cards)
    return ()
