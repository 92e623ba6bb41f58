"""Cards that take no new pods during the moves of a plan, and are released at the end.

    want ──▶ cordoned, unless they already were ──▶ release

The entries written are released by UUID, because an entry stays even if its card leaves the inventory. A card that an
operator also cordons during the moves is released with the others, because the annotation does not name the author of a
cordon.

`Successors` finds the successor of an evicted pod among the pods of its owner.
A successor is created because the pod ends, so it did not exist while the pod was still running. Changes of a watch
arrive in order, but those of a list do not; so a list without the running pod proves nothing.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube import objects
from scheduler.kube.port import Changed, Deleted, ListBegins, ListEnds, WatchEvent
from scheduler.process.terminal import typed
from scheduler.state.tables import Tables
from scheduler.tools.cli.asking import ClusterView
from scheduler.tools.cli.cordoning import Annotating, NoSuchNode, written
from scheduler.tools.cli.manifests import Unanswerable
from scheduler.tools.explain.cordons import Cordon, cordoned, without


class Successors:
    """Finds the successor of an evicted pod in the events of a watch that begins before the eviction.

    listed: whether all existing pods are known.
    """

    def __init__(self, uid: str, owner: str, earlier: Collection[str]) -> None:
        """uid: the evicted pod's. owner: its owner's uid. earlier: uids of pods that are not successors."""
        self.listed = False
        self._uid = uid
        self._owner = owner
        self._earlier = set(earlier)
        self._pods: dict[str, objects.PodObject] = {}

    def take(self, batch: Sequence[WatchEvent[objects.PodObject]]) -> None:
        """Process the next events, in order."""
        for event in batch:
            match event:
                case Changed(pod) if any(owner.uid == self._owner for owner in pod.metadata.owner_references):
                    self._pods[pod.metadata.uid] = pod
                case Deleted(pod):
                    self._pods.pop(pod.metadata.uid, None)
                case ListBegins():
                    self._pods, self.listed = {}, False
                case ListEnds():
                    self.listed = True
                case _:
                    continue
            if self.listed and self._is_running():
                self._earlier.update(self._pods)

    def bound(self) -> tuple[str, str] | None:
        """Return (uid, node) of the successor once it is bound and the evicted pod is deleted."""
        if not self.listed or self._uid in self._pods:
            return None
        found = (pod for uid, pod in self._pods.items() if uid not in self._earlier and pod.spec.node_name)
        return next(((pod.metadata.uid, pod.spec.node_name) for pod in found), None)

    def waiting(self) -> list[str]:
        """Return the names of the owner's pods that have no node, sorted."""
        return sorted(pod.metadata.name for pod in self._pods.values() if not pod.spec.node_name)

    def _is_running(self) -> bool:
        pod = self._pods.get(self._uid)
        return pod is not None and not pod.metadata.deletion_timestamp


class KeptFree:
    """Cards that are cordoned only during the moves."""

    def __init__(self, cluster: Annotating, configuration: SchedulerConfiguration, say: Callable[[str], None]) -> None:
        """Start without cards. say: prints progress, one line at a time."""
        self._cluster = cluster
        self._configuration = configuration
        self._say = say
        # By node, index to entry: entries that were written, or may have been.
        self._ours: dict[str, dict[int, str]] = {}

    async def want(self, wanted: Mapping[str, frozenset[int]]) -> None:
        """Cordon exactly these cards, by node, and release the others if possible. Raises Unanswerable."""
        for node in sorted(wanted.keys() | self._ours.keys()):
            ours, cards = self._ours.get(node, {}), wanted.get(node, frozenset())
            if ours.keys() - cards:
                await self._take_away(node, ours.keys() - cards)
            if more := sorted(cards - ours.keys()):
                adding = partial(self._cordoned, self._ours.get(node, {}))
                await written(self._cluster, self._configuration, adding, node, list(map(str, more)))

    async def release(self) -> None:
        """Release all cards; report failures."""
        for node, cards in sorted(self._ours.items()):
            try:
                await self._take_away(node, list(cards))
            except Unanswerable as error:
                self._say(f"{error}; run: {_uncordon(node, cards)}")
            except (asyncio.CancelledError, KeyboardInterrupt):
                for left, its in sorted(self._ours.items()):
                    if its:
                        self._say(f"the cards may still be cordoned; run: {_uncordon(left, its)}")
                raise

    def hide_in(self, of: ClusterView) -> None:
        """Remove our cordons from the view, which then shows the cluster as it will be after the release."""
        engine = of.reading.engine
        for node, cards in self._ours.items():
            if node in engine.tables.row_of and cards:
                value = without(engine.tables, node, list(cards.values())).value
                wire = engine.tables.node(node)
                annotations = {**(wire.metadata.annotations or {}), names.CORDON: value or ""}
                engine.node_changed(replace(wire, metadata=replace(wire.metadata, annotations=annotations)))

    async def _take_away(self, node: str, indexes: Collection[int]) -> None:
        """Remove entries. Raises Unanswerable; a deleted node has nothing to release."""
        ours = self._ours[node]
        with contextlib.suppress(NoSuchNode):
            await written(self._cluster, self._configuration, without, node, [ours[index] for index in indexes])
        self._ours[node] = {index: entry for index, entry in ours.items() if index not in indexes}

    def _cordoned(self, before: Mapping[int, str], tables: Tables, node: str, cards: Sequence[str]) -> Cordon:
        """Cordon the cards. First prints how to undo it.

        The entries count as ours from now on, whatever the API server answers.
        before: entries that are already ours. Called again after another write to the node, which may have cordoned
        some cards.
        """
        made, told = cordoned(tables, node, cards), self._ours.get(node, {})
        if new := {index: entry for index, entry in made.added.items() if index not in told}:
            self._say(f"cordoned until this command ends; if it is killed, run: {_uncordon(node, new)}")
        self._ours[node] = {**before, **made.added}
        return made


def _uncordon(node: str, cards: Mapping[int, str]) -> str:
    flags = [word for _, entry in sorted(cards.items()) for word in ("--card", entry)]
    return typed("kubectl", "gpushare", "uncordon", node, *flags)
