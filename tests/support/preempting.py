"""Whom a pod that fits nowhere makes go: what tests of preemption, and comparisons with kube-scheduler, start with."""

from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from scheduler.core.engine import Engine
from scheduler.core.preemption_searches import PostFiltered
from scheduler.core.scheduling_cycle import NoFit
from scheduler.kube import objects
from scheduler.pods.pod import Pod
from tests.support.builders import bound, pod
from tests.support.placing import NOW_NS, on_card

GUARDED: Final = {"app": "guarded"}
MINUTES: Final = [f"2026-01-01T00:{minute:02d}:00Z" for minute in range(60)]


class Chosen(NamedTuple):
    """node: "" where preemption does not help. victims: as `namespace/name`, the most important one first."""

    node: str
    victims: tuple[str, ...]
    message: str


def runs(built: Engine, name: str, node: str, *, priority: int = 1, minute: int = 0, **options: Any) -> Pod:  # noqa: ANN401 - as `pod`
    """A pod that is on a node since that minute; with `units`, on its card `card`."""
    card, units = options.pop("card", 0), options.pop("units", 0)
    written = on_card(card, units) if units else {}
    placed = replace(bound(pod(name, units, priority=priority, **options), node, written), started=MINUTES[minute])
    built.pod_assigned(placed)
    return placed


def sought(built: Engine, waiting: Pod) -> PostFiltered:
    """What comes of a pod that fits nowhere. The place is then kept for it: `built.nominations`."""
    built.budgets_listed()
    built.pod_waiting(waiting, 0.0)
    decision = built.decide(0.0, NOW_NS)
    assert decision is not None
    assert isinstance(decision.outcome, NoFit)
    return post_filtered(built, decision.outcome)


def post_filtered(built: Engine, no_fit: NoFit) -> PostFiltered:
    """All steps of the search."""
    found = built.post_filter(no_fit, 0.0)
    while found is None:
        found = built.post_filter_next(0.0)
    return found


def chosen(built: Engine, waiting: Pod) -> Chosen:
    """(cluster, pod) -> (node, victims); the cluster is as it was. The pod must fit nowhere."""
    found = sought(built, waiting)
    built.pod_gone(waiting.key.uid)
    message, preemption = found.diagnosis.message, found.preemption
    if preemption is None:
        return Chosen("", (), message)
    return Chosen(preemption.node, tuple(str(victim.key) for victim in preemption.victims), message)


def guard(built: Engine, allowed: int) -> None:
    """A disruption budget that lets so many pods with the labels GUARDED go."""
    manifest = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": GUARDED}},
        "status": {"disruptionsAllowed": allowed},
    }
    built.budget_changed(msgspec.convert(manifest, objects.PodDisruptionBudget))
