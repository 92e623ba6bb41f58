"""The cluster of a kubeconfig, for as long as one question takes."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.port import KINDS, Kind
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.client_config.connect import ConnectError, Connection, connect
from scheduler.kube.rest.watching import WatchOptions
from scheduler.process.output import warn
from scheduler.tools.cli.asking import ClusterView, cluster_view
from scheduler.tools.cli.manifests import Unreadable

R = TypeVar("R")
_MOST_UNREAD: Final = 10


@dataclass(frozen=True, slots=True)
class Patience:
    """Patience with an API server that accepts connections but does not answer. Seconds.

    says_so_s: until a line on standard error, or None for never. gives_up_s: until the request has failed. A scheduler
    waits longer (WatchOptions), because a watch may be silent for minutes; a command lists, and a list is not. A slow
    page is not silent: it gets as long as in a scheduler.
    """

    says_so_s: float | None = 5.0
    gives_up_s: float = 30.0


LISTS: Final = Patience()
# While successors are waited for, nothing may happen for minutes.
WATCHES: Final = Patience(gives_up_s=WatchOptions().stall_s)


@contextlib.asynccontextmanager
async def opened(
    configuration: SchedulerConfiguration, environment: Mapping[str, str], patience: Patience = LISTS
) -> AsyncIterator[KubeCluster]:
    """A client. Raises Unreadable."""
    connection = await connected(configuration, environment)
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
        warn([f"no answer from {url} yet; giving up after {patience.gives_up_s:g} s"])


async def connected(configuration: SchedulerConfiguration, environment: Mapping[str, str]) -> Connection:
    """Connection as the scheduler makes it. Raises Unreadable."""
    named = configuration.client_connection
    try:
        return await connect(
            environment, kubeconfig=Path(named.kubeconfig) if named.kubeconfig else None, context=named.context or None
        )
    except ConnectError as error:
        raise Unreadable(str(error)) from error


def asked(
    configuration: SchedulerConfiguration,
    environment: Mapping[str, str],
    question: Callable[[ClusterView], Awaitable[R]],
    kinds: Collection[Kind[Any]] = KINDS,
) -> R:
    """The answer; standard error names omitted objects. kinds: kinds to read. Raises Unanswerable."""

    async def ask() -> R:
        async with opened(configuration, environment) as cluster:
            read = await cluster_view(cluster, configuration, kinds)
            read.namespace = cluster.namespace
            answer = await question(read)
        tell_unread(read.unread)
        return answer

    return asyncio.run(ask())


def tell_unread(lines: Sequence[str]) -> None:
    """On standard error, a few of them."""
    more = len(lines) - _MOST_UNREAD
    told = [*lines[:_MOST_UNREAD], *([f"and {more} more objects with problems"] if more > 0 else [])]
    warn(told)
