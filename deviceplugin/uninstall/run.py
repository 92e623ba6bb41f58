"""The command: once, or again and again until nothing is left; with probes, for a DaemonSet's pod.

lock ──▶ look, plan, remove, look again ──clean──▶ 0, or with `stay` ready until it is told to stop
                   ▲                     └─ wait: pods, the kubelet, the API server ─┐
                   └──────────────────────── every 10 s ─────────────────────────────┘
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin.backends import backend_for
from deviceplugin.lock import AlreadyRunning, LockUnknown
from deviceplugin.node.api import NodeApi
from deviceplugin.uninstall import report
from deviceplugin.uninstall.away import PluginAway
from deviceplugin.uninstall.hands import Hands
from deviceplugin.uninstall.look import look
from deviceplugin.uninstall.plan import plan
from deviceplugin.uninstall.report import Remaining
from scheduler.kube.rest.client_config.connect import ConnectError, Connection, connect
from scheduler.kube.rest.transport import Transport
from scheduler.process import build_info
from scheduler.process.probes import serve
from scheduler.process.scrape import exposition
from scheduler.process.startup import StartupError

_CONNECTIONS: Final = 2
_END_IT: Final = "end it first; with the chart, devicePlugin.uninstall=true puts this command in its place"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """As the flags. again_s: from one look to the next."""

    wait: bool = False
    stay: bool = False
    force: bool = False
    dry_run: bool = False
    again_s: float = 10.0


async def run(
    configuration: DevicePluginConfiguration,
    environment: Mapping[str, str],
    options: Options,
    say: Callable[[str], None],
    stop: asyncio.Event,
) -> bool:
    """Whether nothing of the plugin is left on the node. say: takes text as it comes. Raises StartupError."""
    try:
        with PluginAway(Path(configuration.state_dir)) as away:
            return await Uninstall(configuration, environment, away, options, say).run(stop)
    except AlreadyRunning as error:
        message = f"the device plugin still runs on this node: {error.held}; {_END_IT}"
        raise StartupError(message) from error
    except LockUnknown as error:
        raise StartupError(str(error)) from error


@asynccontextmanager
async def _connected(
    c: DevicePluginConfiguration, environment: Mapping[str, str]
) -> AsyncIterator[tuple[Transport | str, Hands]]:
    """(a client of the API server, or why there is none; what removes)."""
    async with contextlib.AsyncExitStack() as closing:
        connection = await _connection(c, environment)
        reader: Transport | str = connection if isinstance(connection, str) else Transport(connection, _CONNECTIONS)
        writer = None if isinstance(connection, str) else NodeApi(connection, c.node_name)
        for one in (reader, writer):
            if isinstance(one, Transport | NodeApi):
                closing.push_async_callback(one.close)
        yield reader, Hands(writer, lambda: backend_for(c).driver)


async def _connection(c: DevicePluginConfiguration, environment: Mapping[str, str]) -> Connection | str:
    wanted = c.client_connection
    try:
        return await connect(
            environment,
            kubeconfig=Path(wanted.kubeconfig) if wanted.kubeconfig else None,
            context=wanted.context or None,
        )
    except ConnectError as error:
        return str(error)


class Uninstall:
    """Of one node. Owned by the event loop."""

    def __init__(
        self,
        configuration: DevicePluginConfiguration,
        environment: Mapping[str, str],
        away: PluginAway,
        options: Options,
        say: Callable[[str], None],
    ) -> None:
        """environment: where a kubeconfig or a service account is found."""
        self._configuration, self._environment, self._away = configuration, environment, away
        self._options, self._say = options, say
        self._said = ""
        self.problem = "it has not looked at the node yet"

    async def run(self, stop: asyncio.Event) -> bool:
        """Whether nothing is left. Raises StartupError where probes cannot be served."""
        if self._options.dry_run:
            self._away.look()
            async with _connected(self._configuration, self._environment) as (api, _):
                facts = await look(self._configuration, api)
            found = plan(facts, force=self._options.force)
            self._say(report.would_remove(facts, found))
            return Remaining(facts, found).clean
        async with self._probes() if self._options.stay else nullcontext():
            clean = await self._until_clean(stop)
            if self._options.stay:
                await stop.wait()
        return clean

    async def _until_clean(self, stop: asyncio.Event) -> bool:
        options = self._options
        while True:
            found = await self._once()
            self.problem = found.problem
            again = options.stay or (options.wait and found.later)
            if found.clean or not again or await _set_within(stop, options.again_s):
                return found.clean

    async def _once(self) -> Remaining:
        """Remove what can be; what is left then. Says what was removed, and what is left when that has changed."""
        c, force = self._configuration, self._options.force
        self._away.keep()
        # Made each time: what there is to connect with may come, or change, while pods are waited for.
        async with _connected(c, self._environment) as (api, hands):
            facts = await look(c, api)
            self._away.keep()
            done = await hands.remove(plan(facts, force=force))
            if done.removed:
                self._say(report.removed(done.removed))
            after = await look(c, api)
        found = Remaining(after, plan(after, force=force), {**dict(after.unreadable), **done.failed})
        told = report.left(found)
        if told != self._said:
            self._said = told
            self._say(told)
        return found

    @asynccontextmanager
    async def _probes(self) -> AsyncIterator[None]:
        registry = CollectorRegistry()
        build_info.show(registry)

        def scrape() -> Iterator[bytes]:
            return exposition(registry)

        c = self._configuration
        try:
            server = await serve(c.listen_address, scrape, ready=lambda: self.problem, alive=lambda: "")
        except OSError as error:
            message = f"cannot listen on {c.listen}: {error.strerror}"
            raise StartupError(message) from error
        try:
            yield
        finally:
            await server.cleanup()


async def _set_within(stop: asyncio.Event, within_s: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await stop.wait()
    return stop.is_set()
