"""The command: one round, or rounds until nothing is left; with probes for a DaemonSet's pod.

lock ──▶ look, remove ──clean──▶ 0, or with `stay` ready until it is stopped
              ▲   └─ wait: pods, the kubelet, the API server ─┐
              └──────────────── every 10 s ───────────────────┘
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin import lock
from deviceplugin.backends import backend_for
from deviceplugin.driver.cards import Driver, SourceFailed
from deviceplugin.health.states import CardStates
from deviceplugin.isolation import compute_modes
from deviceplugin.isolation.compute_modes import ComputeModes
from deviceplugin.isolation.directories import remove_tree
from deviceplugin.lock import AlreadyRunning, InstanceLock, LockUnknown
from deviceplugin.node.publisher import NodeApi
from deviceplugin.uninstall.look import look
from deviceplugin.uninstall.plan import Item, ItemKind
from scheduler.kube.port import ApiError
from scheduler.kube.rest.client_config.connect import ConnectError, connect
from scheduler.kube.rest.transport import Transport
from scheduler.process import build_info
from scheduler.process.probes import serve
from scheduler.process.scrape import exposition
from scheduler.process.startup import StartupError
from scheduler.process.terminal import printable


@dataclass(frozen=True, slots=True)
class Hands:
    """Removal of items. api: access to the node object, or None.

    driver: factory, called if compute modes must be restored.
    """

    api: NodeApi | None
    driver: Callable[[], Driver]

    async def remove(self, item: Item) -> str:
        """Remove the item. Return its name and why it still exists; "" if it is gone."""
        try:
            why = await self._remove(item)
        except ApiError as error:
            why = error.message
        except OSError as error:
            inner = f"{error.filename}: " if error.filename and str(error.filename) != item.name else ""
            why = f"{inner}{error.strerror}"
        return why and f"{item}: {why}"

    async def _remove(self, item: Item) -> str:
        """Remove the item. Return why it still exists, or "". Raises ApiError, OSError."""
        if item.kind is ItemKind.RESOURCE and self.api:
            await self.api.forget_resource(item.name)
        elif item.kind is ItemKind.ANNOTATION and self.api:
            await self.api.annotate({item.name: None})
        elif item.kind is ItemKind.MODES and (why := await self._not_given_back(Path(item.name))):
            return f"{why}; on the node, run nvidia-smi -i CARD -c DEFAULT, then remove the file"
        else:
            await asyncio.to_thread(_remove_path, item.kind, Path(item.name))
        return ""

    async def _not_given_back(self, path: Path) -> str:
        """Restore each card's compute mode. Return why that failed; "" if it succeeded."""
        if not compute_modes.load(path):
            return ""
        driver = self.driver()
        try:
            modes = ComputeModes(path.parent, driver, CardStates(None))
            await driver.cards()  # Queried before a mode is set.
            return "; ".join(filter(None, [await modes.restore(uuid) for uuid in sorted(modes.before)]))
        except SourceFailed as error:
            return f"compute modes cannot be restored: {error}"
        finally:
            await driver.close()


def _remove_path(kind: ItemKind, path: Path) -> None:
    """Remove the path without following links. Raises OSError."""
    if kind in {ItemKind.FILE, ItemKind.MODES}:
        path.unlink(missing_ok=True)
    elif kind is ItemKind.TREE and path.is_dir():
        remove_tree(path)
    elif kind is ItemKind.FOLDER and path.is_dir():
        path.rmdir()


_CONNECTIONS: Final = 2
_END_IT: Final = "stop it first; with Helm, devicePlugin.uninstall=true replaces it with this command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Flags of the command. again_s: seconds between two rounds."""

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
    """Return whether nothing of the plugin is left on the node. say: receives text at once. Raises StartupError."""
    state, uninstall = Path(configuration.state_dir), Uninstall(configuration, environment, options, say)
    try:
        if options.dry_run:
            lock.look(state)
            return await uninstall.dry_run()
        return await uninstall.run(state, stop)
    except AlreadyRunning as error:
        raise StartupError(f"the device plugin is still running on this node: {error.held}; {_END_IT}") from error
    except LockUnknown as error:
        raise StartupError(str(error)) from error


@dataclass(slots=True)
class Uninstall:
    """Uninstallation of one node. Owned by the event loop. environment: variables that name the kubeconfig."""

    configuration: DevicePluginConfiguration
    environment: Mapping[str, str]
    options: Options
    say: Callable[[str], None]
    problem: str = "the node has not been examined yet"
    said: str = ""

    async def dry_run(self) -> bool:
        """Print what would be removed. Return whether there is nothing to remove."""
        async with self._connected() as (api, _):
            found = await look(self.configuration, api, force=self.options.force)
        would = [item for item in found.items if not item.stays]
        would += [] if found.waits else found.last
        self.say(found.report(f"would remove {item}" for item in would))
        return not (would or found.waits)

    async def run(self, state: Path, stop: asyncio.Event) -> bool:
        """Run rounds until nothing is left. Return whether that is so.

        Raises AlreadyRunning; LockUnknown; StartupError if the probes cannot be served.
        """
        stay, again_s = self.options.stay, self.options.again_s
        async with self._probes() if stay else nullcontext():
            while True:
                # Taken anew for each round, because its file is removed last, and held from one round to the next.
                with InstanceLock(state):
                    waits = await self._round()
                    again = self.problem and (stay or (self.options.wait and waits))
                    if not again or await _set_within(stop, again_s):
                        break
            if stay:
                await stop.wait()
        return not self.problem

    async def _round(self) -> bool:
        """Remove all possible items; report them and changes of the rest. Return whether to try again."""
        # Reconnected each time: a token or kubeconfig may appear or change while the command waits for pods.
        async with self._connected() as (api, hands):
            found = await look(self.configuration, api, force=self.options.force)
            failed = await self._removed(hands, [item for item in found.items if not item.stays])
            if not (failed or found.waits):
                # Not reported: this command creates them if they are missing.
                failed = [why for item in found.last if (why := await hands.remove(item))]
        self.problem = found.problem(failed)
        end = "not everything has been removed." if self.problem else "the device plugin has been completely removed."
        left = found.report([f"cannot remove {why}" for why in failed], f"Node {self.configuration.node_name}: {end}")
        if left != self.said:
            self.said = left
            self.say(left)
        return any(item.kind is not ItemKind.UNREADABLE for item in found.waits)

    async def _removed(self, hands: Hands, items: Sequence[Item]) -> list[str]:
        """Remove the items and report it. Return which could not be removed, and why."""
        failures = [await hands.remove(item) for item in items]
        if removed := [f"removed {item}" for item, why in zip(items, failures, strict=True) if not why]:
            self.say(printable(removed))
        return [*filter(None, failures)]

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Transport | str, Hands]]:
        """Yield a client of the API server, or why it is unavailable, and the remover."""
        c = self.configuration
        wanted = c.client_connection
        try:
            connection = await connect(self.environment, kubeconfig=wanted.kubeconfig, context=wanted.context)
        except ConnectError as error:
            yield str(error), Hands(None, lambda: backend_for(c).driver)
            return
        async with contextlib.AsyncExitStack() as closing:
            reader, writer = Transport(connection, _CONNECTIONS), NodeApi(connection, c.node_name)
            closing.push_async_callback(reader.close)
            closing.push_async_callback(writer.close)
            yield reader, Hands(writer, lambda: backend_for(c).driver)

    @asynccontextmanager
    async def _probes(self) -> AsyncIterator[None]:
        c, registry = self.configuration, CollectorRegistry()
        build_info.show(registry)
        try:
            server = await serve(
                c.listen_address, lambda: exposition(registry), ready=lambda: self.problem, alive=lambda: ""
            )
        except OSError as error:
            raise StartupError(f"cannot listen on {c.listen}: {error.strerror}") from error
        try:
            yield
        finally:
            await server.cleanup()


async def _set_within(stop: asyncio.Event, within_s: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await stop.wait()
    return stop.is_set()
