"""`page`: serves the web page of a cluster on this machine, with the rights of the user who runs it."""

import asyncio
import time

from scheduler.kube.scheduling import KINDS_AND_OPTIONAL
from scheduler.process.output import show_text
from scheduler.tools.cli.asking import ClusterView, empty_view, tell_unread
from scheduler.tools.cli.following import Following
from scheduler.tools.cli.session import WATCHES, session
from scheduler.tools.cli.target import Target
from scheduler.tools.page.server import page_served


def page(target: Target, port: int) -> None:
    """Serve the page until interrupted. Raises Unanswerable, and StartupError."""
    asyncio.run(_serve(target, port))


async def _serve(target: Target, port: int) -> None:
    listed = False

    async def settle(view: ClusterView) -> None:
        nonlocal listed
        if not listed:
            tell_unread(view.unread)
        listed = True
        view.unread.clear()
        # Takes notice of the changes, as a decision would.
        view.reading.engine.run_hint(time.monotonic())

    async with session(target, WATCHES) as of:
        view, handled = empty_view(of.cluster, of.configuration, KINDS_AND_OPTIONAL)
        view.namespace = of.namespace
        following = Following(view, handled)
        async with page_served(view, following.problem, port) as url:
            show_text(f"The page is at {url} until you press Ctrl-C.\n")
            await following.run(settle)
