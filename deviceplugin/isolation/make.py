"""Makes the isolation of one node, as it is configured."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.isolation import IsolationMechanism
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.driver.cards import EXCLUSIVE_PROCESS
from deviceplugin.health.states import CardStates
from deviceplugin.isolation.compute_modes import ComputeModes, ModeSetter
from deviceplugin.isolation.mps_cards import MpsCards, MpsMetrics
from deviceplugin.isolation.node_isolation import NodeIsolation
from deviceplugin.node.events import NodeEvent
from scheduler.kube.port import PodKey

MPS: Final = "mps"
log = structlog.get_logger()


def shared_in(mechanism: IsolationMechanism) -> str:
    """The compute mode in which programs share a card by it."""
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
    """registry: of the plugin's metrics. Where no daemon is wanted, compute modes of an earlier time are given back."""
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
    """UUIDs of the cards that are there, in one piece, and held by the plugin."""
    released = states.released()
    return [card.uuid for card in states.named().cards if not card.mig and card.uuid not in released]


def pods_with(view: NodeRecords, uuid: str) -> list[PodKey]:
    """The pods that have the card."""
    return [
        pod.key for pod in view.asking() if pod.first_cards and any(uuid in on for on in pod.first_cards.units.values())
    ]
