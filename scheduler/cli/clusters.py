"""The cluster of a kubeconfig, for as long as one question takes."""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from config.settings.scheduler import SchedulerConfiguration
from scheduler.cli.asking import Site, site
from scheduler.cli.manifests import Unreadable
from scheduler.inspect.terminal import printable
from scheduler.kube.port import KINDS, Kind
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.rest.connect import ConnectError, Connection, connect

R = TypeVar("R")
_MOST_UNREAD: Final = 10


@contextlib.asynccontextmanager
async def opened(configuration: SchedulerConfiguration, environment: Mapping[str, str]) -> AsyncIterator[KubeCluster]:
    """A client. Raises Unreadable."""
    cluster = KubeCluster(await connected(configuration, environment), random.Random())  # noqa: S311 - guards nothing
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(cluster.close)
        yield cluster


async def connected(configuration: SchedulerConfiguration, environment: Mapping[str, str]) -> Connection:
    """As the scheduler connects. Raises Unreadable."""
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
    question: Callable[[Site], Awaitable[R]],
    kinds: Collection[Kind[Any]] = KINDS,
) -> R:
    """The answer; what was left out is told on standard error. kinds: that are read. Raises Unanswerable."""

    async def ask() -> R:
        async with opened(configuration, environment) as cluster:
            read = await site(cluster, configuration, kinds)
            read.namespace = cluster.namespace
            answer = await question(read)
        tell_unread(read.unread)
        return answer

    return asyncio.run(ask())


def tell_unread(lines: Sequence[str]) -> None:
    """On standard error, a few of them."""
    more = len(lines) - _MOST_UNREAD
    told = [*lines[:_MOST_UNREAD], *([f"and {more} more objects with problems"] if more > 0 else [])]
    sys.stderr.write(printable(told))
