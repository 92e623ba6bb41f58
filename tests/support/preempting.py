"""Whom a pod that fits nowhere makes go: what tests of preemption, and comparisons with kube-scheduler, start with."""

from typing import NamedTuple

from scheduler.engine import Engine
from scheduler.pods.pod import Pod
from scheduler.preemption_searches import PostFiltered
from scheduler.scheduling_cycle import NoFit
from tests.support.placing import NOW_NS


class Chosen(NamedTuple):
    """node: "" where preemption does not help. victims: as `namespace/name`, the most important one first."""

    node: str
    victims: tuple[str, ...]
    message: str


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
