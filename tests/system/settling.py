"""What a scheduler that knows nothing yet would do with a world as it is."""

from scheduler.engine import Engine
from scheduler.event_handlers import EventHandlers
from scheduler.pod import PodReader
from scheduler.ports import CONFIG_MAPS, NODES, PODS, Changed, Kind, T
from scheduler.scheduling_cycle import Placement
from scheduler.simulation.selection import shown_by
from scheduler.simulation.world import World


def places_left(of: World, built: tuple[Engine, PodReader]) -> list[str]:
    """The waiting pods that a fresh engine would place, one after the other, and where."""
    engine, reader = built
    handlers = EventHandlers(
        engine, reader, now_s=lambda: 0.0, report=lambda _: None, ignored=lambda _pod, _preference: None
    )
    handlers.namespaces([Changed(namespace) for namespace in of.namespaces])
    handlers.nodes(_all(of, NODES))
    handlers.config_maps(_all(of, CONFIG_MAPS))
    handlers.pods(_all(of, PODS))
    placed = []
    while (decision := engine.decide(0.0, 0)) is not None:
        if isinstance(decision.outcome, Placement):
            placed.append(f"{decision.outcome.pod.key} on {decision.outcome.node}")
    return placed


def _all(of: World, kind: Kind[T]) -> list[Changed[T]]:
    shown = shown_by(kind)
    return [Changed(found) for found in of.collection(kind) if shown(found)]
