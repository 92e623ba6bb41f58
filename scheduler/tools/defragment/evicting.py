"""`defragment apply`: makes the moves of a plan, one at a time, as long as each has its intended effect.

    plan ─▶ cordon the cards to be kept free ─▶ evict ─▶ wait: pod deleted, successor bound ─▶ read and plan again
              ▲                                                                                        │
              └─────── one fewer move is needed ◀──────────────────────────────────────────────────────┤
                        none is: done; as many as before, or no plan: stop  ◀──────────────────────────┘

For typical pods, the command continues if the successor is on the planned cards and fragmentation is lower. A successor
is never evicted itself.

A card that is kept free takes no new pods (`gpushare/cordon`), so the successor cannot go back. The cards are released
at the end in any case, except after SIGKILL: the command for that is printed before the first eviction.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from typing import Final, Protocol, cast

from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube import objects
from scheduler.kube.port import (
    PODS,
    ApiError,
    ApiNotFound,
    ApiRejected,
    ApiThrottled,
    Cluster,
    PodKey,
    WatchEvent,
)
from scheduler.process.terminal import some
from scheduler.tools.cli.asking import ClusterView, cluster_view, tell_unread
from scheduler.tools.cli.cordoning import Annotating
from scheduler.tools.cli.manifests import Manifest, Unanswerable, Unreadable
from scheduler.tools.defragment.keeping_free import KeptFree, Successors
from scheduler.tools.defragment.movable import Moved, kept_free
from scheduler.tools.defragment.planning import MovePlan, bound_already, plan_for, plan_for_usual
from scheduler.tools.defragment.text import units_text, verdict, where_of
from scheduler.tools.explain.pod_summary import cards_of

_NO_PRIORITY: Final = 0
_MOST_NAMES: Final = 3


class Evicting(Annotating, Protocol):
    """Cluster client that may evict pods, unlike the scheduler's."""

    async def evict_pod(self, pod: PodKey) -> None:
        """Evict the pod, as in KubeCluster."""
        ...


class Planner:
    """Makes plans for a cluster as read."""

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        pod: Manifest | None,
        *,
        most_moves: int,
        max_priority: int | None,
        namespace: str = "default",
    ) -> None:
        """pod: None for typical pods. max_priority: None for the pod's priority, or 0 if there is no pod.

        namespace: for a pod that names none.
        """
        self._configuration = configuration
        self._most_moves = most_moves
        self._max_priority = max_priority
        self._pod = pod
        self._namespace = namespace

    @property
    def for_pod(self) -> bool:
        """True if the plan makes room for one pod."""
        return self._pod is not None

    async def read(self, cluster: Cluster) -> ClusterView:
        """Read the current state of the cluster. Raises Unreadable."""
        of = await cluster_view(cluster, self._configuration)
        of.namespace = self._namespace
        return of

    async def plan(self, of: ClusterView, most_moves: int | None = None, stay: Collection[str] = ()) -> MovePlan:
        """Make a plan. most_moves: None for the requested number. stay: as in Movable. Raises Unanswerable."""
        most = self._most_moves if most_moves is None else most_moves
        if self._pod is None:
            return plan_for_usual(of.reading, most, self._max_priority or _NO_PRIORITY, stay=stay)
        wire, words = await of.prioritized(self._pod)
        pod, told = of.asking(wire)
        there = None if self._pod.template else bound_already(of.reading, pod)
        if there is not None:
            return there
        return plan_for(of.reading, pod, most, self._max_priority, (*words, *told), stay=stay)


class Rebalancing:
    """One execution of a plan."""

    def __init__(
        self,
        cluster: Evicting,
        configuration: SchedulerConfiguration,
        planner: Planner,
        timeout_s: float,
        say: Callable[[str], None],
    ) -> None:
        """timeout_s: for each move. say: prints progress, one line at a time."""
        self._cluster = cluster
        self._planner = planner
        self._timeout_s = timeout_s
        self._say = say
        self._kept = KeptFree(cluster, configuration, say)
        self._successors: set[str] = set()  # uids

    async def run(self, show: Callable[[MovePlan], None]) -> bool:
        """Plan, show the plan, and make its moves. Returns whether all of them succeeded. Raises Unanswerable."""
        of = await self._planner.read(self._cluster)
        plan = await self._planner.plan(of)
        tell_unread(of.unread)
        show(plan)
        if not plan.moves:
            return plan.answer.found
        try:
            with _stopped_by(signal.SIGTERM, signal.SIGHUP):
                done = await self._move_all(of, plan)
        finally:
            await self._kept.release()
        if done and self._planner.for_pod:
            self._say("Any pod can take the free cards; create the pod now unless it is already pending.")
        return done

    async def _move_all(self, of: ClusterView, plan: MovePlan) -> bool:
        count = len(plan.moves)
        for number in range(1, count + 1):
            await self._kept.want(kept_free(plan.answer.place, plan.answer.moves))
            move = plan.answer.moves[0]
            self._say(f"{number} of {count}: evicting pod {move.pod} from node {move.at.node}")
            uid, node = await self._evicted(plan.moves[0], of)
            self._successors.add(uid)
            self._say(f"{number} of {count}: its successor is bound to node {node}")
            of = await self._planner.read(self._cluster)
            self._kept.hide_in(of)
            after = await self._planner.plan(of, max(1, len(plan.moves) - 1), self._successors)
            if why := _elsewhere(plan, of, uid) or _in_vain(plan, after):
                self._say(f"Stopped after {number} of {count} moves: {why}")
                return False
            plan = after
            if not plan.moves:
                break
        self._say(f"Done. {_progress(plan)}")
        return True

    async def _evicted(self, moved: Moved, of: ClusterView) -> tuple[str, str]:
        """Evict the pod and wait for its successor; return the successor's uid and node. Raises Unanswerable."""
        pod = moved.record.pod
        # Somebody else may evict the pod before the watch begins: pods of the plan are older than any successor.
        earlier = {uid for uid, owner in of.reading.controllers.items() if owner.uid == pod.owner_uid}
        successors = Successors(pod.key.uid, pod.owner_uid, earlier)
        async with contextlib.aclosing(self._following(successors)) as changes:
            await self._listed(pod.key, changes)
            await self._evict(pod.key)
            try:
                async with asyncio.timeout(self._timeout_s):
                    while (found := successors.bound()) is None:
                        await anext(changes)
                    return found
            except TimeoutError as error:
                raise Unanswerable(_without_successor(pod.key, self._timeout_s, successors)) from error

    async def _listed(self, pod: PodKey, changes: AsyncGenerator[None, None]) -> None:
        """Wait until all pods are listed.

        Raises Unreadable if they cannot be: the pod must not be evicted if its successor could not be recognized.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await anext(changes)
        except TimeoutError as error:
            message = f"pod {pod} was not evicted: pods could not be listed within {self._timeout_s:g} s"
            raise Unreadable(message) from error

    async def _evict(self, pod: PodKey) -> None:
        try:
            await self._cluster.evict_pod(pod)
        except ApiNotFound:
            self._say(f"pod {pod} no longer exists")
        except (ApiRejected, ApiThrottled) as error:
            raise Unanswerable(f"pod {pod} was not evicted: {error.message}") from error
        except ApiError as error:
            raise Unreadable(f"it is unknown whether pod {pod} was evicted: {error.message}") from error

    async def _following(self, successors: Successors) -> AsyncGenerator[None, None]:
        """Yield after each change, once all pods are listed."""
        while True:
            try:
                async with contextlib.aclosing(self._batches()) as batches:
                    async for batch in batches:
                        successors.take(batch)
                        if successors.listed:
                            yield
            except ApiError as error:
                self._say(f"the watch of pods ended and restarts: {error.message}")
                await asyncio.sleep(1.0)

    def _batches(self) -> AsyncGenerator[list[WatchEvent[objects.PodObject]], None]:
        return cast("AsyncGenerator[list[WatchEvent[objects.PodObject]], None]", self._cluster.watch(PODS, None))


@contextlib.contextmanager
def _stopped_by(*signals: signal.Signals) -> Iterator[None]:
    """Let signals (also a closed terminal's) interrupt the program, so that kept cards are released first.

    Raises SystemExit then, with the shell's code for the signal.
    """
    loop, task, came = asyncio.get_running_loop(), asyncio.current_task(), list[signal.Signals]()
    # Ignored signals stay ignored, as under `nohup`.
    obeyed = [which for which in signals if signal.getsignal(which) is not signal.SIG_IGN]

    def stop(which: signal.Signals) -> None:
        if task is not None and not came:
            came.append(which)
            task.cancel()

    for which in obeyed:
        loop.add_signal_handler(which, stop, which)
    try:
        yield
    except asyncio.CancelledError as error:
        if came:
            raise SystemExit(128 + came[0]) from error
        raise
    finally:
        # A second signal must not stop the release.
        for which in obeyed:
            loop.add_signal_handler(which, lambda: None)


def _without_successor(pod: PodKey, timeout_s: float, successors: Successors) -> str:
    waiting = successors.waiting()
    named = f": {some(waiting, _MOST_NAMES)}" if waiting else ""
    count = f"{len(waiting)} pod{'' if len(waiting) == 1 else 's'} of its owner wait{'s' if len(waiting) == 1 else ''}"
    return f"pod {pod} was evicted, but no successor of it was bound within {timeout_s:g} s; {count}{named}"


def _elsewhere(plan: MovePlan, of: ClusterView, uid: str) -> str:
    """Return where the first move's successor is, for typical pods; "" if it is where planned.

    The gain of the plan depends on it, and fragmentation may also drop for other reasons. When making room for one pod,
    it does not matter as long as one fewer move is needed. uid: the successor's.
    """
    if plan.answer.fragmentation is None:
        return ""
    move, tables = plan.answer.moves[0], of.reading.engine.tables
    if (record := tables.record(uid)) is None:
        return f"the successor of pod {move.pod} no longer exists."
    cards = cards_of(tables, record)
    if record.node == move.to.node and cards.keys() == move.to.cards.keys():
        return ""
    planned = where_of(move.to.node, move.to.cards)
    return f"the successor of pod {move.pod} is on {where_of(record.node, cards)}; the plan was {planned}."


def _in_vain(before: MovePlan, after: MovePlan) -> str:
    """Return why the last move failed; "" if it succeeded."""
    was, now = before.answer.fragmentation, after.answer.fragmentation
    if was is not None and now is not None:
        return "" if now.before < was.before else f"{_progress(after)} {units_text(was.before)} were before."
    if after.answer.place is None or len(after.moves) >= len(before.moves):
        return f"{verdict(after.answer)} Another pod has taken the space, or a pod was not placed as planned."
    return ""


def _progress(plan: MovePlan) -> str:
    """Return a sentence about the current state."""
    now = plan.answer.fragmentation
    if now is None:
        return verdict(plan.answer)
    return f"{units_text(now.before)} of {units_text(now.free)} free units cannot be used by typical pods."
