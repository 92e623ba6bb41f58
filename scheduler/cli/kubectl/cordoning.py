"""`kubectl gpushare cordon` and `uncordon`: one annotation of one node, written with the user's own rights.

read nodes, pods ──▶ what it becomes ──▶ PATCH ──node has changed meanwhile──▶ read again, a few times
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.cli.asking import site
from scheduler.cli.clusters import opened
from scheduler.cli.manifests import Unanswerable, Unreadable
from scheduler.explain.cordons import Cordon, NoSuchCard
from scheduler.inspect.terminal import printable
from scheduler.kube.port import CONFIG_MAPS, NODES, PODS, ApiConflict, ApiError, ApiRefused
from scheduler.state.tables import Tables

_TRIES: Final = 5
Change = Callable[[Tables, str, Sequence[str]], Cordon]


def write(
    configuration: SchedulerConfiguration,
    environment: Mapping[str, str],
    change: Change,
    node: str,
    cards: Sequence[str],
) -> None:
    """Write what `change` makes of the node, and print its words. Raises Unanswerable."""
    made = asyncio.run(_written(configuration, environment, change, node, cards))
    sys.stdout.write(printable(made.words or (f"node {node}: no card was cordoned",)))


async def _written(
    configuration: SchedulerConfiguration,
    environment: Mapping[str, str],
    change: Change,
    node: str,
    cards: Sequence[str],
) -> Cordon:
    async with opened(configuration, environment) as cluster:
        for _ in range(_TRIES):
            tables = (await site(cluster, configuration, (NODES, PODS, CONFIG_MAPS))).reading.engine.tables
            made = _change(tables, change, node, cards)
            if not made.changed:
                return made
            version = tables.node(node).metadata.resource_version
            try:
                await cluster.annotate_node(node, {names.CORDON: made.value}, version)
            except ApiConflict:
                continue
            except ApiRefused as error:
                message = f"node {node} is not changed: {error.message}"
                raise Unanswerable(message) from error
            except ApiError as error:
                message = f"whether node {node} is changed is not known: {error.message}"
                raise Unreadable(message) from error
            return made
    message = f"node {node} is not changed: somebody else changes it all the time; try again"
    raise Unanswerable(message)


def _change(tables: Tables, change: Change, node: str, cards: Sequence[str]) -> Cordon:
    if node not in tables.row_of:
        message = f"there is no node {node}"
        raise Unanswerable(message)
    try:
        return change(tables, node, cards)
    except NoSuchCard as error:
        raise Unanswerable(str(error)) from error
