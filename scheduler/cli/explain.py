"""`gpushare-scheduler explain` and `what-if`: the cluster of the kubeconfig, read once, and the answer on stdout."""

import asyncio
import contextlib
import random
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from config.settings.scheduler import SchedulerConfiguration
from scheduler.cli.asking import Site, site
from scheduler.cli.manifests import Unanswerable, manifest
from scheduler.explain.answers import Explanation, WhatIf, as_json
from scheduler.explain.text import explanation_text, what_if_text
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.rest.connect import ConnectError, connect

_MOST_UNREAD: Final = 10
_PIPED_WIDTH: Final = 120


def explain(
    configuration: SchedulerConfiguration,
    environment: Mapping[str, str],
    *,
    namespace: str,
    name: str,
    node: str,
    output: str,
) -> str:
    """Print the answer; what is wrong, or ""."""

    async def ask(of: Site) -> Explanation:
        return await of.explained(namespace, name, node)

    return _ask(configuration, environment, ask, output)


def what_if(
    configuration: SchedulerConfiguration, environment: Mapping[str, str], *, file: Path, replicas: int, output: str
) -> str:
    """Print the answer; what is wrong, or ""."""
    try:
        read = manifest(file)
    except Unanswerable as error:
        return str(error)

    async def ask(of: Site) -> WhatIf:
        pod, words = await of.prioritized(read)
        return of.what_if(pod, replicas, words)

    return _ask(configuration, environment, ask, output)


def _ask(
    configuration: SchedulerConfiguration,
    environment: Mapping[str, str],
    question: Callable[[Site], Awaitable[Explanation | WhatIf]],
    output: str,
) -> str:
    try:
        answer = asyncio.run(_answer(configuration, environment, question))
    except (ConnectError, Unanswerable) as error:
        return str(error)
    sys.stdout.write(as_json(answer) if output == "json" else text(answer, _width()))
    return ""


async def _answer(
    configuration: SchedulerConfiguration,
    environment: Mapping[str, str],
    question: Callable[[Site], Awaitable[Explanation | WhatIf]],
) -> Explanation | WhatIf:
    named = configuration.client_connection
    connection = await connect(
        environment, kubeconfig=Path(named.kubeconfig) if named.kubeconfig else None, context=named.context or None
    )
    cluster = KubeCluster(connection, random.Random())  # noqa: S311 - spreads retries, guards nothing
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(cluster.close)
        read = await site(cluster, configuration)
        answer = await question(read)
    for line in read.unread[:_MOST_UNREAD]:
        sys.stderr.write(f"{line}\n")
    if len(read.unread) > _MOST_UNREAD:
        sys.stderr.write(f"and {len(read.unread) - _MOST_UNREAD} more objects with problems\n")
    return answer


def text(answer: Explanation | WhatIf, width: int) -> str:
    """For a terminal of so many columns."""
    return explanation_text(answer, width) if isinstance(answer, Explanation) else what_if_text(answer, width)


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPED_WIDTH
