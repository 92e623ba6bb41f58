"""Cards that take no new pods while the moves of a plan are made, and that are given back in the end.

    want ──▶ cordoned, as far as nobody else has cordoned it before ──▶ give_back

What is given back are the entries that were written, by UUID: a card may leave the inventory meanwhile, and its entry
stays. A card that somebody cordons while it is kept free is given back with the others: the annotation says who has
cordoned it of none.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.process.terminal import typed
from scheduler.state.tables import Tables
from scheduler.tools.cli.asking import ClusterView
from scheduler.tools.cli.cordoning import Annotating, NoSuchNode, written
from scheduler.tools.cli.manifests import Unanswerable
from scheduler.tools.explain.cordons import Cordon, cordoned, without


class KeptFree:
    """The cards that are cordoned for the moves, and by nobody else."""

    def __init__(self, cluster: Annotating, configuration: SchedulerConfiguration, say: Callable[[str], None]) -> None:
        """None yet. say: what happens, a line each."""
        self._cluster = cluster
        self._configuration = configuration
        self._say = say
        # By node, index to entry: that were written, or may have been.
        self._ours: dict[str, dict[int, str]] = {}

    async def want(self, wanted: Mapping[str, frozenset[int]]) -> None:
        """These and no others, by node. Raises Unanswerable; those before are given back as far as can be."""
        for node in sorted(wanted.keys() | self._ours.keys()):
            ours, cards = self._ours.get(node, {}), wanted.get(node, frozenset())
            if ours.keys() - cards:
                await self._take_away(node, ours.keys() - cards)
            if more := sorted(cards - ours.keys()):
                adding = partial(self._cordoned, self._ours.get(node, {}))
                await written(self._cluster, self._configuration, adding, node, list(map(str, more)))

    async def give_back(self) -> None:
        """All of them; what cannot be is told."""
        for node, cards in sorted(self._ours.items()):
            try:
                await self._take_away(node, list(cards))
            except Unanswerable as error:
                self._say(f"{error}; type {_uncordon(node, cards)}")
            except (asyncio.CancelledError, KeyboardInterrupt):
                for left, its in sorted(self._ours.items()):
                    if its:
                        self._say(f"perhaps still cordoned: type {_uncordon(left, its)}")
                raise

    def hide_in(self, of: ClusterView) -> None:
        """The cluster as it will be when they are given back."""
        engine = of.reading.engine
        for node, cards in self._ours.items():
            if node in engine.tables.row_of and cards:
                value = without(engine.tables, node, list(cards.values())).value
                wire = engine.tables.node(node)
                annotations = {**(wire.metadata.annotations or {}), names.CORDON: value or ""}
                engine.node_changed(replace(wire, metadata=replace(wire.metadata, annotations=annotations)))

    async def _take_away(self, node: str, indexes: Collection[int]) -> None:
        """Raises Unanswerable; on a node that is gone nothing is left to be given back."""
        ours = self._ours[node]
        with contextlib.suppress(NoSuchNode):
            await written(self._cluster, self._configuration, without, node, [ours[index] for index in indexes])
        self._ours[node] = {index: entry for index, entry in ours.items() if index not in indexes}

    def _cordoned(self, before: Mapping[int, str], tables: Tables, node: str, cards: Sequence[str]) -> Cordon:
        """As `cordoned`. What is about to be written is told, and ours, whatever is answered.

        before: that are ours already. Asked again where somebody else has written the node, who may have cordoned some.
        """
        made, told = cordoned(tables, node, cards), self._ours.get(node, {})
        if new := {index: entry for index, entry in made.added.items() if index not in told}:
            self._say(f"cordoned meanwhile; if this is killed: {_uncordon(node, new)}")
        self._ours[node] = {**before, **made.added}
        return made


def _uncordon(node: str, cards: Mapping[int, str]) -> str:
    flags = [word for _, entry in sorted(cards.items()) for word in ("--card", entry)]
    return typed("kubectl", "gpushare", "uncordon", node, *flags)
