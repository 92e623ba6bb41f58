"""The isolation of one node: the configured description, whether this node supports it, and its parts."""

import asyncio
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from config.settings import isolation
from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.isolation import IsolationMechanism
from config.settings.load import load
from config.settings.mistakes import ConfigurationError, Mistake
from deviceplugin.allocation.container_share import ContainerShare
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.cdi.edits import Additions
from deviceplugin.driver.cards import EXCLUSIVE_PROCESS
from deviceplugin.health.states import CardStates
from deviceplugin.isolation import fill
from deviceplugin.isolation.directories import ContainerDirectories
from deviceplugin.isolation.mps_cards import ComputeModes, ModeSetter, MpsCards, MpsMetrics
from deviceplugin.node.events import NodeEvent
from scheduler.kube.port import PodKey

_ELF: Final = b"\x7fELF"
_LIBRARY: Final = "hamiCore.library"


def mechanism_of(configuration: DevicePluginConfiguration) -> IsolationMechanism:
    """Return the configured isolation. Blocks while files are read. Raises ConfigurationError with the mistakes."""
    name = configuration.isolation
    match name:
        case "none":
            return isolation.NONE
        case "mps":
            return isolation.mps(configuration.mps)
        case "hami-core":
            if objection := _objection(Path(configuration.hami_core.library)):
                raise ConfigurationError([Mistake(_LIBRARY, "configuration", objection)])
            return isolation.hami_core(configuration.hami_core)
    found = load(IsolationMechanism, file=Path(name), environ={}, flags={}, env_prefix="")
    if found.hooks and configuration.mode != "cdi":
        message = f"needs mode: cdi, found mode: {configuration.mode}"
        raise ConfigurationError([Mistake("hooks", name, message)])
    return found


def _objection(library: Path) -> str:
    """Return why the library must not be loaded into containers; "" if it may."""
    try:
        about = library.stat()
        with library.open("rb") as opened:
            begins = opened.read(len(_ELF))
        above = [(directory, directory.stat().st_mode) for directory in library.resolve().parents]
    except OSError as error:
        return f"{library} cannot be read: {error.strerror}"
    if not stat.S_ISREG(about.st_mode) or begins != _ELF:
        return f"expected a shared library, but {library} is not an ELF file"
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"expected {library} to be writable only by its owner, found mode {stat.S_IMODE(about.st_mode):o}"
    for directory, mode in above:
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"expected {directory} to be writable only by its owner, found mode {stat.S_IMODE(mode):o}"
    return ""


DIRECTORY: Final = "isolation"
# After a start, the plugin has its daemons within a second or two; the kubelet retries later.
_READY_WITHIN_S: Final = 5.0


class NodeIsolation:
    """`allocation.allocators.Isolation`. Owned by the event loop; files are written in a thread.

    directories: files made for containers. mps: the daemons.
    """

    def __init__(self, mechanism: IsolationMechanism, state: Path, mps: MpsCards) -> None:
        """state: the plugin's state directory. mps: the MPS daemons, if the description requires them."""
        self._mechanism, self.mps = mechanism, mps
        self._state = state / DIRECTORY
        self.directories = ContainerDirectories(self._state, mechanism)

    def objection(self, share: ContainerShare) -> str:
        """Return why the container can never be isolated; "" if it can."""
        if self._mechanism.host_ipc and not share.pod.host_ipc:
            return "isolation on this node needs the node's shared memory; add hostIPC: true to the pod"
        if self._mechanism.preparation == "mps" and len(share.shares) > 1:
            return (
                f"container {share.container.name} has {len(share.shares)} cards; MPS supports only one per container: "
                "each card has its own daemon, and a program can connect to only one"
            )
        return ""

    async def prepare(self, share: ContainerShare) -> str:
        """Create directories and wait for the MPS daemon. Return why the container must not start yet, or ""."""
        await asyncio.to_thread(self.directories.make, share)
        if self._mechanism.preparation == "mps":
            return await self.mps.ready(share.shares[0].uuid, _READY_WITHIN_S)
        return ""

    def additions(self, share: ContainerShare) -> Additions:
        return fill.additions(self._mechanism, share, str(self._state))


MPS: Final = "mps"
log = structlog.get_logger()


def shared_in(mechanism: IsolationMechanism) -> str:
    """Return the compute mode in which programs share a card under this description."""
    return EXCLUSIVE_PROCESS if mechanism.preparation == MPS else ""


def isolation_for(  # noqa: PLR0917 - each a different type: none can take another's place
    configuration: DevicePluginConfiguration,
    mechanism: IsolationMechanism,
    driver: ModeSetter,
    states: CardStates,
    view: NodeRecords,
    record: Callable[[NodeEvent], None],
    registry: CollectorRegistry,
    backoff_s: Callable[[int], float],
) -> NodeIsolation:
    """Build the isolation. registry: for the plugin's metrics.

    Without daemons, it only restores the compute modes that an earlier plugin has set.
    """
    if configuration.isolation != "none":
        log.info("isolation", mechanism=configuration.isolation)
    state = Path(configuration.state_dir)
    by_mps = mechanism.preparation == MPS
    cards = MpsCards(
        settings=configuration.mps,
        modes=ComputeModes(state, driver, lambda: states.readings),
        wanted=lambda: cards_for_daemons(states) if by_mps else (),
        clients=lambda uuid: pods_with(view, uuid),
        record=record,
        backoff_s=backoff_s,
        metrics=MpsMetrics(registry) if by_mps else None,
    )
    return NodeIsolation(mechanism, state, cards)


def cards_for_daemons(states: CardStates) -> Sequence[str]:
    """Return the UUIDs of the cards that exist, are neither split nor an instance, and are held by the plugin."""
    whole = [card.uuid for card in states.named().cards if not (card.mig or card.parent)]
    released = states.released()
    return [uuid for uuid in whole if uuid not in released]


def pods_with(view: NodeRecords, uuid: str) -> list[PodKey]:
    """Return the pods that have the card."""
    return [
        pod.key for pod in view.asking() if pod.first_cards and any(uuid in on for on in pod.first_cards.units.values())
    ]
