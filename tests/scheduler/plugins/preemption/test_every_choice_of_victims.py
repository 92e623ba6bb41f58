"""Which pods go: on small clusters, held against every choice of node, cards and victims."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit
from scheduler.framework.preemption import Preemption
from scheduler.pods.pod import Pod
from scheduler.state.ledger import of_tables
from scheduler.state.pod_record import PodRecord
from tests.support.builders import engine, pod
from tests.support.placing import NOW_NS
from tests.support.preempting import GUARDED, MINUTES, guard, post_filtered, runs


class Tried:
    """Every node, every set of cards, every choice of victims, the slow way."""

    def __init__(self, built: Engine, waiting: Pod, allowed: int) -> None:
        """allowed: how many pods with the label `app` may go."""
        self.tables = built.tables
        self.waiting = waiting
        self.allowed = allowed

    def keys(self) -> Iterator[tuple[int, ...]]:
        request = self.waiting.template.gpu_request
        for node in self.tables.row_of:
            slots = range(len(self.tables.inventory(node).cards))
            for some in combinations(slots, request.cards) if request else [()]:
                yield from self._keys(node, set(some))

    def key(self, gone: Sequence[Pod]) -> tuple[int, ...]:
        highest = max(pod.priority for pod in gone)
        earliest = min(MINUTES.index(pod.started) for pod in gone if pod.priority == highest)
        protected = self._protected(gone[0].node_name)
        violations = sum(pod.key.name in protected for pod in gone)
        return violations, highest, sum(pod.priority + 2**31 for pod in gone), len(gone), -earliest

    def _keys(self, node: str, slots: set[int]) -> Iterator[tuple[int, ...]]:
        there = self.tables.records_on(node)
        potential = [record for record in there if record.pod.priority < self.waiting.priority]
        for number in range(1, len(potential) + 1):
            for gone in combinations(potential, number):
                if self._fits(node, slots, [record for record in there if record not in gone]):
                    yield self.key([record.pod for record in gone])

    def _protected(self, node: str) -> set[str]:
        """Names of those that the budget does not let go, were all of them to go: the most important ones go first."""
        records = self.tables.records_on(node)
        guarded = [r.pod for r in records if r.pod.labels and r.pod.priority < self.waiting.priority]
        ordered = sorted(guarded, key=lambda pod: (-pod.priority, pod.started, pod.key.name))
        return {pod.key.name for pod in ordered[self.allowed :]}

    def _fits(self, node: str, slots: set[int], there: list[PodRecord]) -> bool:
        """By what the pods of these tests ask: units of cards and of the node, cards alone, and cpu."""
        template, cards = self.waiting.template, self.tables.inventory(node).cards
        cpu = sum(record.pod.template.requests.get("cpu", 0) for record in there) + template.requests.get("cpu", 0)
        if cpu > 64_000:
            return False
        request = template.gpu_request
        if request is None:
            return True
        total = sum(record.pod.template.gpu_units for record in there) + request.units
        if total > self.tables.inventory(node).allocatable:
            return False
        on = {slot: [record for record in there if record.written.per_card.get(slot, 0)] for slot in slots}
        if any(holders and (request.exclusive or any(r.exclusive for r in holders)) for holders in on.values()):
            return False
        return all(
            cards[slot].units - sum(record.written.per_card[slot] for record in on[slot]) >= request.units_per_card
            for slot in slots
        )


UNITS = st.integers(3, 12)
# Node, card, units, priority, minute, cores, whether the budget is about it, whether it has its card alone.
VICTIMS = st.lists(
    st.tuples(
        *(st.integers(0, 2), st.integers(0, 3), UNITS, st.integers(0, 4), st.integers(0, 59), st.integers(0, 20)),
        *(st.sampled_from((True, True, False)), st.sampled_from((False, False, False, True))),
    ),
    min_size=8,
    max_size=16,
)
EXCLUSIVE: Final = {"gpushare/exclusive": "true"}


@settings(max_examples=150)
@given(VICTIMS, st.integers(1, 2), st.integers(10, 16), st.integers(0, 40), st.booleans(), st.integers(0, 1))
def test_no_other_node_cards_and_pods_are_cheaper(  # noqa: PLR0917 - as drawn
    there: list[tuple[Any, ...]],
    cards: int,
    units: int,
    cpu: int,
    alone: bool,  # noqa: FBT001 - as drawn
    allowed: int,
) -> None:
    built = engine(a=[16, 16], b=[16, 16, 16, 16], c=[16, 12])
    guard(built, allowed)
    on_node = [0, 0, 0]
    for number, (node, card, held, priority, minute, cores, guarded, exclusive) in enumerate(there):
        name, most = "abc"[node], (2, 4, 2)[node]
        on_node[node] += 1
        if on_node[node] > 8:
            # Of more, those that cannot come back one by one are taken.
            continue
        runs(
            built,
            f"v{number}",
            name,
            card=card % most,
            units=held,
            priority=priority,
            minute=minute,
            requests={"cpu": str(cores)},
            labels=GUARDED if guarded else {},
            annotations=EXCLUSIVE if exclusive else {},
        )
    asked = {"aliyun.com/gpu-count": str(cards), **(EXCLUSIVE if alone else {})}
    waiting = pod("p", units * cards, priority=4, requests={"cpu": str(cpu)}, annotations=asked)
    before = of_tables(built.tables)
    built.pod_waiting(waiting, 0.0)
    decision = built.decide(0.0, NOW_NS)
    assert decision is not None
    if not isinstance(decision.outcome, NoFit):
        return
    tried = Tried(built, waiting, allowed)
    expected = min(tried.keys(), default=None)
    built.budgets_listed()
    preemption = post_filtered(built, decision.outcome).preemption

    assert (None if preemption is None else tried.key(preemption.victims)) == expected
    assert preemption is None or expected is None or preemption.violations == expected[0]
    built.nominations.remove(waiting.key.uid)
    assert of_tables(built.tables) == before
    assert_it_helps(built, waiting, preemption)


def assert_it_helps(built: Engine, waiting: Pod, preemption: Preemption | None) -> None:
    if preemption is None:
        return
    for victim in preemption.victims:
        built.pod_gone(victim.key.uid)
    while built.run_hint(1.0):
        pass
    decision = built.decide(1.0, NOW_NS)
    assert decision is not None
    assert not isinstance(decision.outcome, NoFit), f"{waiting.key} still fits nowhere"
    assert decision.outcome.node == preemption.node
