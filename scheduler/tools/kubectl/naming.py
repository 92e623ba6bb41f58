"""Names of a cluster's objects, for completion."""

from collections.abc import Mapping, Sequence
from typing import Final

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube import objects
from scheduler.kube.port import NODES, ApiError, Changed, WatchEvent
from scheduler.tools.cli.asking import read_all
from scheduler.tools.cli.clusters import Patience, opened
from scheduler.tools.cli.manifests import Unreadable

# A line on standard error would interrupt the command line being typed.
_SILENT: Final = Patience(says_so_s=None)


async def nodes_with_cards(configuration: SchedulerConfiguration, environment: Mapping[str, str]) -> list[str]:
    """Nodes that announce their cards, by name. Raises Unreadable."""
    found: list[str] = []

    def note(events: Sequence[WatchEvent[objects.Node]]) -> None:
        nodes = (event.object.metadata for event in events if isinstance(event, Changed))
        found.extend(node.name for node in nodes if names.INVENTORY in (node.annotations or {}))

    async with opened(configuration, environment, _SILENT) as cluster:
        try:
            await read_all(cluster, NODES, note)
        except ApiError as error:
            raise Unreadable(error.message) from error
    return sorted(found)
