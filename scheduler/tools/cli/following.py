"""`--watch`: prints a table of a changing cluster, and from then on only the rows that change."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, Final

from scheduler.intake.watches import Watched
from scheduler.kube.port import ApiError, Kind, ListEnds
from scheduler.kube.reflector import WatchBackoff, reflect
from scheduler.process.output import warn
from scheduler.tools.cli.answering import show_lines
from scheduler.tools.cli.asking import ClusterView, empty_view, left_out, unreadable
from scheduler.tools.cli.manifests import Unreadable
from scheduler.tools.cli.session import WATCHES, session
from scheduler.tools.cli.target import Target
from scheduler.tools.explain.tones import Line

# Changes that arrive together are shown together.
_AT_MOST_EVERY_S: Final = 0.5
_RECONNECT_MAX_S: Final = 30.0


def follow(
    target: Target,
    kinds: Collection[Kind[Any]],
    lines: Callable[[ClusterView], Awaitable[Iterable[Line]]],
    *,
    headers: bool,
) -> None:
    """Print the table, then every new or changed row, until interrupted. Raises Unanswerable."""
    before: set[tuple[str, ...]] = set()

    async def show(view: ClusterView) -> None:
        found = list(await lines(view))
        show_lines(changed_rows(found, before), headers=headers)
        before.clear()
        before.update(tuple(line.text.split()) for line in found)

    async def in_cluster() -> None:
        async with session(target, WATCHES) as of:
            view, handled = empty_view(of.cluster, of.configuration, kinds)
            view.namespace = of.namespace
            await Following(view, handled).run(show)

    asyncio.run(in_cluster())


def changed_rows(lines: Iterable[Line], before: Collection[tuple[str, ...]]) -> list[Line]:
    """Return lines whose words were not there before; other rows may only have moved."""
    return [line for line in lines if tuple(line.text.split()) not in before]


class Following:
    """Watches that keep a view of the cluster up to date."""

    def __init__(self, view: ClusterView, handled: Collection[Watched[Any]]) -> None:
        """view, handled: see `empty_view`."""
        self._view = view
        self._handled = handled
        # Names of the kinds whose list is not complete yet.
        self._unlisted = {one.kind.name for one in handled if not one.kind.optional}
        # Why a kind cannot be listed, or is not watched now.
        self._failed: Unreadable | None = None
        self._interrupted: dict[str, str] = {}
        self._changed = asyncio.Event()

    async def run(self, show: Callable[[ClusterView], Awaitable[None]]) -> None:
        """Call `show` once everything is listed, and after each change. Raises Unreadable."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in self._handled:
                    tasks.create_task(self._watch(one))
                tasks.create_task(self._show_changes(show))
        except BaseExceptionGroup as group:
            expected, others = group.split(Unreadable)
            if expected is None or others is not None:
                raise
            raise self._failed or expected from None

    def problem(self) -> str:
        """Why the view is not up to date; "" if it is."""
        if self._unlisted:
            return f"waiting for the first list of {', '.join(sorted(self._unlisted))}"
        return "; ".join(f"{kind}: {message}" for kind, message in sorted(self._interrupted.items()))

    async def _show_changes(self, show: Callable[[ClusterView], Awaitable[None]]) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._failed is not None:
                raise self._failed
            if not self._unlisted:
                await show(self._view)
                await asyncio.sleep(_AT_MOST_EVERY_S)

    async def _watch(self, one: Watched[Any]) -> None:
        backoff = WatchBackoff(random.Random(), reconnect_max_s=_RECONNECT_MAX_S)  # noqa: S311 - guards nothing
        on_trouble = partial(self._trouble, one)
        async for batch in reflect(self._view.cluster, one.kind, backoff=backoff, on_trouble=on_trouble):
            one.handle(batch)
            if any(isinstance(event, ListEnds) for event in batch):
                self._unlisted.discard(one.kind.name)
            self._changed.set()

    def _trouble(self, one: Watched[Any], _kind: object, error: ApiError | None) -> None:
        """Record a failure. A kind that was listed once may fail for a while, because the watch is retried."""
        self._interrupted.pop(one.kind.name, None)
        if error is None or one.kind.optional:
            return
        if one.kind.name not in self._unlisted:
            self._interrupted[one.kind.name] = error.message
            warn([f"the watch of {one.kind.name} ended and restarts: {error.message}"])
            return
        if left_out(one, error):
            self._unlisted.discard(one.kind.name)
            self._view.leave_out(one.kind.name)
        else:
            self._failed = unreadable(one, error)
        self._changed.set()
