"""`kubectl gpushare cordon` and `uncordon`: set one annotation of one node, with the user's own rights.

read nodes, pods ──▶ new value ──▶ PATCH ──node has changed──▶ read again, a few times

"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.port import CONFIG_MAPS, NODES, PODS, ApiConflict, ApiError, ApiRejected, Cluster
from scheduler.process.output import show
from scheduler.state.tables import Tables
from scheduler.tools.cli.asking import cluster_view
from scheduler.tools.cli.manifests import Unanswerable, Unreadable
from scheduler.tools.cli.session import session
from scheduler.tools.cli.target import Target
from scheduler.tools.explain.cordons import Cordon, NoSuchCard

_TRIES: Final = 5
Change = Callable[[Tables, str, Sequence[str]], Cordon]


class NoSuchNode(Unanswerable):
    """There is no node with that name."""


class Annotating(Cluster, Protocol):
    """Cluster client that may write nodes, unlike the scheduler's."""

    async def annotate_node(self, name: str, annotations: Mapping[str, str | None], version: str) -> None:
        """Set annotations of a node, as in KubeCluster."""
        ...


def write(target: Target, change: Change, node: str, cards: Sequence[str], *, dry_run: bool) -> None:
    """Apply `change` to the node, and print its messages. Raises Unanswerable."""

    async def in_cluster() -> Cordon:
        async with session(target) as of:
            return await written(of.cluster, of.configuration, change, node, cards, dry_run=dry_run)

    made = asyncio.run(in_cluster())
    show((*(("dry run: nothing was changed",) if dry_run else ()), *told(made, node)))


def told(made: Cordon, node: str) -> tuple[str, ...]:
    """Return a line with the number of cards concerned, and a line for each of these cards."""
    if not made.words:
        return (f"node {node}: no card was cordoned",)
    cards = "1 card" if made.cards == 1 else f"{made.cards} cards"
    return (f"node {node}: {made.affected} of {cards} {made.verb}", *made.words)


async def written(
    cluster: Annotating,
    configuration: SchedulerConfiguration,
    change: Change,
    node: str,
    cards: Sequence[str],
    *,
    dry_run: bool = False,
) -> Cordon:
    """Apply `change` to the node and write the result; with `dry_run`, only compute it. Raises Unanswerable."""
    for _ in range(_TRIES):
        tables = (await cluster_view(cluster, configuration, (NODES, PODS, CONFIG_MAPS))).reading.engine.tables
        made = _change(tables, change, node, cards)
        if dry_run or not made.changed:
            return made
        version = tables.node(node).metadata.resource_version
        try:
            await cluster.annotate_node(node, {names.CORDON: made.value}, version)
        except ApiConflict:
            continue
        except ApiRejected as error:
            raise Unanswerable(f"node {node} was not changed: {error.message}") from error
        except ApiError as error:
            raise Unreadable(f"it is unknown whether node {node} was changed: {error.message}") from error
        return made
    raise Unanswerable(f"node {node} was not changed: another client keeps changing it; try again")


def _change(tables: Tables, change: Change, node: str, cards: Sequence[str]) -> Cordon:
    if node not in tables.row_of:
        raise NoSuchNode(f"there is no node {node}")
    try:
        return change(tables, node, cards)
    except NoSuchCard as error:
        raise Unanswerable(str(error)) from error
