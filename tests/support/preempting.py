"""Victims of an unschedulable pod: the starting point of preemption tests and comparisons with kube-scheduler."""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from scheduler.core.effects import Effect, Evict, Nominate, Unschedulable
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.preemption import Preemption
from scheduler.kube import objects
from scheduler.pods.pod import Pod
from scheduler.state.columns.resources import CPU_INDEX
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables
from tests.support.builders import bound, pod
from tests.support.placing import decided, on_card

GUARDED: Final = {"app": "guarded"}
MINUTES: Final = [f"2026-01-01T00:{minute:02d}:00Z" for minute in range(60)]


class PostFiltered(NamedTuple):
    """Result of PostFilter. displaced: pods that lost their nomination."""

    pod: Pod
    diagnosis: Diagnosis
    preemption: Preemption | None
    displaced: tuple[Pod, ...]


class Chosen(NamedTuple):
    """Outcome. node: "" if preemption does not help. victims: as `namespace/name`, the most important one first."""

    node: str
    victims: tuple[str, ...]
    message: str


def runs(built: Engine, name: str, node: str, *, priority: int = 1, minute: int = 0, **options: Any) -> PodRecord:  # noqa: ANN401 - as `pod`
    """Add a pod that is on a node since that minute; with `units`, on its card `card`."""
    card, units = options.pop("card", 0), options.pop("units", 0)
    written = on_card(card, units) if units else {}
    placed = replace(bound(pod(name, units, priority=priority, **options), node, written), started=MINUTES[minute])
    built.pod_assigned(placed)
    record = built.tables.record(placed.key.uid)
    assert record is not None
    return record


def fits(tables: Tables, waiting: Pod, node: str, slots: Collection[int], stay: Collection[PodRecord]) -> bool:
    """Return whether the pod could have these cards next to the remaining pods: by units, card ownership and CPU."""
    template, inventory = waiting.template, tables.inventory(node)
    asked = [template, *(record.pod.template for record in stay)]
    cpu = sum(each.requests.get("cpu", 0) for each in asked)
    if template.requests.get("cpu", 0) and cpu > tables.resources.allocatable[CPU_INDEX, tables.row_of[node]]:
        return False
    if (request := template.gpu_request) is None:
        return True
    if sum(each.gpu_units for each in asked) > inventory.allocatable:
        return False
    for slot in slots:
        holders = [record for record in stay if record.written.per_card.get(slot, 0)]
        if holders and (request.exclusive or any(record.exclusive for record in holders)):
            return False
        held = sum(record.written.per_card[slot] for record in holders)
        if inventory.cards[slot].units - held < request.units_per_card:
            return False
    return True


def no_fit(built: Engine, waiting: Pod) -> NoFit:
    """Return the decision for an unschedulable pod; no search has started yet."""
    built.pod_waiting(waiting, 0.0)
    outcome = decided(built)
    assert isinstance(outcome, NoFit)
    return outcome


def sought(built: Engine, waiting: Pod) -> PostFiltered:
    """Return the result for an unschedulable pod, whose nomination is then in `built.nominations`."""
    built.budgets_listed()
    return post_filtered(built, no_fit(built, waiting))


def post_filtered(built: Engine, undecided: NoFit) -> PostFiltered:
    """Run all steps of the search."""
    return search_ended(built, first_step(built, undecided))


def first_step(built: Engine, undecided: NoFit) -> PostFiltered | None:
    """Run the first step of the search; return its result, None while there are more steps."""
    effects = built.searches.post_filter(undecided, 0.0, attempt=1)
    found = of_effects(effects)
    return None if found is not None and found.diagnosis is undecided.diagnosis and len(effects) == 1 else found


def search_ended(built: Engine, found: PostFiltered | None) -> PostFiltered:
    """Run the rest of a search. found: result of its last step, None while there are more steps."""
    while found is None:
        found = next_step(built)
    return found


def next_step(built: Engine, now_s: float = 0.0) -> PostFiltered | None:
    """Run one step of the most important search; return its result, None while there are more steps."""
    return of_effects(built.searches.step(now_s, 0) or ())


def is_searching(built: Engine) -> bool:
    """Return whether a search for victims has a step to do."""
    return built.searches.rank(0.0) is not None


def search(built: Engine, now_s: float) -> bool:
    """Run one step of each kind of search. Returns whether there was one."""
    return built.searches.step(now_s, 0) is not None or built.reservations.step(now_s, 0) is not None


def of_effects(effects: Sequence[Effect]) -> PostFiltered | None:
    """Return the result that these effects carry out; None if there is none."""
    told = next((one for one in effects if isinstance(one, Unschedulable)), None)
    if told is None:
        return None
    preemption = next((one.preemption for one in effects if isinstance(one, Evict)), None)
    displaced = tuple(one.pod for one in effects if isinstance(one, Nominate))
    return PostFiltered(told.pod, told.diagnosis, preemption, displaced)


def chosen(built: Engine, waiting: Pod) -> Chosen:
    """Return the node and victims; the cluster is unchanged. The pod must be unschedulable."""
    found = sought(built, waiting)
    built.pod_gone(waiting.key.uid)
    message, preemption = found.diagnosis.message, found.preemption
    if preemption is None:
        return Chosen("", (), message)
    return Chosen(preemption.node, tuple(str(victim.key) for victim in preemption.victims), message)


def guard(built: Engine, allowed: int) -> None:
    """Add a disruption budget that allows this many disruptions of pods with the labels GUARDED."""
    manifest = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": GUARDED}},
        "status": {"disruptionsAllowed": allowed},
    }
    built.tables.budgets.set(msgspec.convert(manifest, objects.PodDisruptionBudget))
