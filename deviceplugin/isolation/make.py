"""The isolation of one node: the configured description, whether this node supports it, and its parts."""

import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import structlog
from prometheus_client import CollectorRegistry

from config.protocol.isolation import DRIVER, MPS
from config.settings import isolation
from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.isolation import AUTO, IsolationMechanism
from config.settings.load import load
from config.settings.mistakes import ConfigurationError, Mistake
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.cdi.mode import Coverage, Injection
from deviceplugin.driver.cards import EXCLUSIVE_PROCESS
from deviceplugin.events import EventRecorder
from deviceplugin.health.states import CardStates
from deviceplugin.isolation.compute_modes import ComputeModes, ModeSetter
from deviceplugin.isolation.directories import ContainerDirectories
from deviceplugin.isolation.driver_limits import LimitSupport
from deviceplugin.isolation.host_cgroup import cgroup_problem
from deviceplugin.isolation.kind import KindFile, NodeKind
from deviceplugin.isolation.mps_cards import MpsCards, MpsMetrics
from deviceplugin.isolation.node_isolation import NodeIsolation
from scheduler.kube.port import PodKey

log = structlog.get_logger()
_ELF: Final = b"\x7fELF"
_LIBRARY: Final = "hamiCore.library"


def mechanism_of(configuration: DevicePluginConfiguration, kind: str = "") -> IsolationMechanism:
    """Return the mechanism of this kind, or of the configured one. Blocks while files are read.

    Raises ConfigurationError with the mistakes.
    """
    name = kind or configuration.isolation
    match name:
        case "none" | "driver" | "auto":
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


def configured_kinds(configuration: DevicePluginConfiguration) -> tuple[str, ...]:
    """Return the kinds that the configuration allows."""
    if configuration.isolation == AUTO:
        return (DRIVER, configuration.isolation_fallback)
    return (configuration.isolation,)


def mechanisms_of(configuration: DevicePluginConfiguration, kept: str) -> dict[str, IsolationMechanism]:
    """Return kind -> mechanism, for the configured kinds and the kept one ("" if there is none).

    Raises ConfigurationError for a configured kind; a kept one that can no longer be provided is left out.
    """
    found = {kind: mechanism_of(configuration, kind) for kind in configured_kinds(configuration)}
    if kept and kept not in found:
        try:
            found[kept] = mechanism_of(configuration, kept)
        except ConfigurationError as error:
            log.warning("isolation.gone", mechanism=kept, reason=str(error))
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


def shared_in(mechanism: IsolationMechanism) -> str:
    """Return the compute mode in which programs share a card under this description."""
    return EXCLUSIVE_PROCESS if mechanism.preparation == MPS else ""


class _LimitEdits(Protocol):
    """Port: the part of a source of device edits that says whether the driver's limits reach a container."""

    @property
    def limits_by_hook(self) -> bool:
        """Whether limits need NVIDIA's hook."""
        ...

    @property
    def coverage(self) -> Coverage:
        """Coverage of the cards by NVIDIA's CDI specs."""
        ...

    @property
    def prepared(self) -> bool:
        """Whether the specs have been compared with the cards that the driver names."""
        ...

    @property
    def hookless(self) -> frozenset[str]:
        """UUIDs of the cards that the specs inject without the hook."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationParts:
    """Parts of the plugin that isolation needs. kind: the node's. driver: sets compute modes.

    edits: of the cards. registry: for the plugin's metrics.
    """

    kind: NodeKind
    driver: ModeSetter
    states: CardStates
    view: NodeRecords
    edits: _LimitEdits
    injection: Injection
    recorder: EventRecorder
    registry: CollectorRegistry
    backoff_s: Callable[[int], float]


def node_kind(configuration: DevicePluginConfiguration) -> NodeKind:
    """Return the node's kind, kept from the previous plugin if it can still be provided. Raises ConfigurationError."""
    file = KindFile(Path(configuration.state_dir))
    mechanisms = mechanisms_of(configuration, file.load())
    return NodeKind(configuration.isolation, configuration.isolation_fallback, mechanisms, file)


def isolation_for(configuration: DevicePluginConfiguration, parts: IsolationParts) -> NodeIsolation:
    """Build the isolation. Without daemons, it only restores the compute modes that an earlier plugin has set."""
    state, states = Path(configuration.state_dir), parts.states
    cgroup = cgroup_problem(Path(configuration.host_cgroup))

    def support() -> LimitSupport:
        return LimitSupport(
            cdi=parts.injection.chosen != "environment",
            cgroup=cgroup,
            hookless=parts.edits.hookless,
            uncovered=parts.edits.coverage.uncovered,
            real=parts.edits.limits_by_hook,
            known=bool(states.driver) and parts.edits.prepared,
        )

    return NodeIsolation(
        kind=parts.kind,
        required=configuration.enforcement == "required",
        soft_limits=configuration.soft_limits,
        directories=ContainerDirectories(state / DIRECTORY),
        mps=_mps_cards(configuration, parts, state),
        states=states,
        support=support,
        view=parts.view,
        recorder=parts.recorder,
    )


def _mps_cards(configuration: DevicePluginConfiguration, parts: IsolationParts, state: Path) -> MpsCards:
    return MpsCards(
        settings=configuration.mps,
        modes=ComputeModes(state, parts.driver, parts.states),
        node=_NodeWithMps(parts.kind, parts.states, parts.view),
        recorder=parts.recorder,
        backoff_s=parts.backoff_s,
        metrics=MpsMetrics(parts.registry) if parts.kind.may_be_mps else None,
    )


@dataclass(frozen=True, slots=True)
class _NodeWithMps:
    """`mps_cards.MpsNode`."""

    kind: NodeKind
    states: CardStates
    view: NodeRecords

    @property
    def wanted(self) -> Sequence[str]:
        # Which protocol a daemon speaks depends on the driver's version.
        mps = self.kind.mechanism.preparation == MPS and self.states.driver
        return cards_for_daemons(self.states) if mps else ()

    @property
    def driver(self) -> str:
        # Own descriptions name the variables and pipes of protocol 2.
        return self.states.driver if self.kind.now == MPS else ""

    @property
    def live(self) -> set[str] | None:
        pods = self.view.pods
        return {pod.metadata.uid for pod in pods} if pods.complete else None

    def clients(self, uuid: str) -> list[PodKey]:
        return pods_with(self.view, uuid)


def cards_for_daemons(states: CardStates) -> Sequence[str]:
    """Return the UUIDs of the cards that exist, are not split or instances, and are held by the plugin."""
    released = states.released()
    return [card.uuid for card in states.named().cards if not (card.mig or card.parent or card.uuid in released)]


def pods_with(view: NodeRecords, uuid: str) -> list[PodKey]:
    """Return the pods that have the card."""
    return [pod.key for pod in view.asking() if pod.has_card(uuid)]
