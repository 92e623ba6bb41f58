"""What a scheduler that knows nothing yet would make of a world as it is."""

from typing import Final, TypeAlias

from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.framework.profile import Profile
from scheduler.intake.event_handlers import EventHandlers
from scheduler.kube.port import CONFIG_MAPS, NODES, PODS, Changed, Kind, T
from scheduler.pods.pod import PodReader
from scheduler.state.tables import Tables
from scheduler.testing.cluster.store import shown_by
from scheduler.testing.cluster.world import World
from tests.support.builders import READER, wire_pod
from tests.support.reported import STANDING, Reported
from tests.support.without_cache import evaluation
from tests.system.histories.pod_templates import OURS

# Template -> why no node will do, or, by node that will do, what its scores are.
Views: TypeAlias = dict[str, str | dict[str, tuple[int, ...]]]
_PROBES: Final = {name: READER.read(wire_pod(name.replace(" ", "-"), **OURS[name])) for name in OURS}


def fresh(of: World, built: tuple[Engine, PodReader]) -> Engine:
    """An engine that has been told of everything once, in order of creation."""
    engine, reader = built
    handlers = EventHandlers(engine, reader, Reported(), STANDING)
    handlers.namespaces([Changed(namespace) for namespace in of.namespaces])
    handlers.nodes(_all(of, NODES))
    handlers.config_maps(_all(of, CONFIG_MAPS))
    handlers.pods(_all(of, PODS))
    return engine


def places_left(engine: Engine) -> list[str]:
    """The waiting pods that it places, one after the other, and where."""
    placed = []
    while (decision := engine.decide(0.0, 0)) is not None:
        if isinstance(decision.outcome, Placement):
            placed.append(f"{decision.outcome.pod.key} on {decision.outcome.node}")
    return placed


def views(profile: Profile, tables: Tables) -> Views:
    """What the tables say of one pod of each template: equal for tables that stand for the same world."""
    # On which cards a place is kept is known to the process that has chosen them.
    booked = [record for row in tables.row_of.values() for record in tables.nominated_on(row)]
    for record in booked:
        tables.lift(record)
    seen = _views(profile, tables)
    for record in booked:
        tables.put_back(record)
    return seen


def _views(profile: Profile, tables: Tables) -> Views:
    seen: Views = {}
    for name, probe in _PROBES.items():
        _, judged = evaluation(profile, tables, probe)
        # What pods usually ask is learned: a process that starts has seen fewer of them.
        scores = () if name == "fragmentation" else (judged.total, *judged.raw)
        seen[name] = judged.unschedulable or {
            node: tuple(int(column[row]) for column in scores)
            for node, row in tables.row_of.items()
            if judged.feasible[row]
        }
    return seen


def _all(of: World, kind: Kind[T]) -> list[Changed[T]]:
    shown = shown_by(kind)
    return [Changed(found) for found in of.collection(kind) if shown(found)]
