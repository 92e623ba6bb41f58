"""The isolation of a node, without daemons: its kind, its cards, and what limits by the driver need."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from config.protocol import names
from config.protocol.inventory import Card
from config.settings.deviceplugin import Mps
from config.settings.isolation import NONE, IsolationMechanism
from config.settings.scheduler import Resources
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.view import NodeRecords, OwnPods
from deviceplugin.driver.cards import DriverCard
from deviceplugin.events import EventRecorder
from deviceplugin.health.states import CardStates
from deviceplugin.isolation.compute_modes import ComputeModes
from deviceplugin.isolation.directories import ContainerDirectories
from deviceplugin.isolation.driver_limits import LimitSupport
from deviceplugin.isolation.kind import KindFile, NodeKind
from deviceplugin.isolation.make import DIRECTORY
from deviceplugin.isolation.mps_cards import MpsCards
from deviceplugin.isolation.node_isolation import NodeIsolation
from deviceplugin.kubelet.client import PodResources
from scheduler.kube.port import PodKey
from tests.support.node.node_pods import UNIT_MIB
from tests.support.node.ports import Recorded

WITH_LIMITS = LimitSupport(cdi=True)


class NoDriver:
    """A driver that nobody may call."""

    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        raise AssertionError(uuid, mode)


class NoDaemons:
    """`MpsNode` without cards for daemons."""

    wanted: Collection[str] = ()
    driver = ""
    live: Collection[str] | None = None

    def clients(self, _: str) -> Sequence[PodKey]:
        return ()


def limited_card(index: int = 0, *, limits: bool = True, mig: bool = False) -> DriverCard:
    """Return the card GPU-<four digits>, as in `share_of`."""
    return DriverCard(index=index, uuid=f"GPU-{index:04}", model="M", memory_mib=16384, limits=limits, mig=mig)


def records(state: Path, cards: Sequence[Card] = ()) -> NodeRecords:
    """Return the records of a node without pods."""
    return NodeRecords(
        resources=Resources(),
        pods=OwnPods(),
        journal=Journal(state),
        kubelet=PodResources(state / "pod-resources.sock", names.GPU_MEM),
        checkpoint=state / "checkpoint",
        recorder=Recorded(),
        unit_mib=UNIT_MIB,
        cards=tuple(cards),
    )


NOTHING: Mapping[str, IsolationMechanism] = {"none": NONE, "driver": NONE}


def kind_of(
    state: Path, configured: str, mechanisms: Mapping[str, IsolationMechanism] = NOTHING, fallback: str = "none"
) -> NodeKind:
    """Return the kind of a node that can provide these mechanisms."""
    return NodeKind(configured, fallback, mechanisms, KindFile(state))


def isolating(
    state: Path,
    kind: NodeKind,
    *,
    cards: Sequence[DriverCard] = (),
    support: Callable[[], LimitSupport] = lambda: WITH_LIMITS,
    required: bool = False,
    soft_limits: bool = False,
    recorder: EventRecorder | None = None,
    protocol: Literal["auto", 2, 3] = "auto",
) -> NodeIsolation:
    """Return the isolation of a node with these cards, each announced with the memory that its driver reports."""
    states, recorder = CardStates(None, cards=tuple(cards)), Recorded() if recorder is None else recorder
    daemons = MpsCards(
        settings=Mps(protocol=protocol),
        modes=ComputeModes(state, NoDriver(), states),
        node=NoDaemons(),
        recorder=recorder,
        backoff_s=float,
    )
    announced = [Card(index=c.index, uuid=c.uuid, model="M", memory_mib=c.memory_mib, units=16) for c in cards]
    return NodeIsolation(
        kind=kind,
        required=required,
        soft_limits=soft_limits,
        directories=ContainerDirectories(state / DIRECTORY),
        mps=daemons,
        states=states,
        support=support,
        again_s=0.001,
        ready_within_s=0.05,
        view=records(state / "records", announced),
        recorder=recorder,
    )
