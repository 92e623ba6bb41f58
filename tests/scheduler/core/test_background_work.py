"""Work in the background, a few milliseconds at a time: stale messages are updated, and the ledger is audited."""

from math import inf

import pytest

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.agenda import Agenda, BackgroundWork
from scheduler.core.build import build_engine
from scheduler.core.effects import Audited, Effect, NodeAudited, Reevaluated
from scheduler.core.engine import Engine
from scheduler.core.ledger_audit import LedgerAudit
from scheduler.core.reevaluation import EVERY_S
from scheduler.core.scheduling_cycle import NoFit
from scheduler.state.audit import AuditRound
from tests.scheduler.core.test_agenda import Pile
from tests.support.builders import engine, pod, wire_node
from tests.support.placing import NOW_NS, a_round

# docs/develop/decisions/0014
CORRECTED_S = EVERY_S + 5.0
STEP_S = 0.001


def crowd(many: int) -> Engine:
    """One node, and pods of as many templates; all are told to be unschedulable."""
    built, _ = build_engine(SchedulerConfiguration.model_validate({"reserveAfter": 0}))
    built.budgets_listed()
    built.node_changed(wire_node("n0", [8]))
    for number in range(many):
        built.pod_waiting(pod(f"p{number}", 16, requests={"cpu": f"{1 + number}m"}), 0.0)
    while (decision := built.decide(0.0, NOW_NS)) is not None:
        assert isinstance(decision.outcome, NoFit)
    return built


def run(agenda: Agenda, from_s: float, to_s: float) -> list[tuple[float, Effect]]:
    """Run the agenda; each step takes a millisecond. Return the time of each effect."""
    now_s, found = from_s, list[tuple[float, Effect]]()
    while now_s < to_s:
        step = agenda.step(now_s, NOW_NS)
        if step is None:
            now_s = max(agenda.due_s(), now_s + STEP_S)
        else:
            found += [(now_s, effect) for effect in step.effects]
            now_s += STEP_S
    return found


def of(engine: Engine, *works: BackgroundWork) -> Agenda:
    log: list[str] = []
    return Agenda(Pile(log, "no hint"), (), works or (engine.reevaluation,))


def test_two_hundred_pods_of_as_many_templates_are_corrected_in_time() -> None:
    built = crowd(200)
    agenda = of(built)
    run(agenda, 0.0, CORRECTED_S)
    built.node_changed(wire_node("n0", [8], unschedulable=True))
    corrected = run(agenda, CORRECTED_S, 2 * CORRECTED_S)
    assert len({effect.pod.key.name for _, effect in corrected if isinstance(effect, Reevaluated)}) == 200
    assert max(when_s for when_s, _ in corrected) <= CORRECTED_S + EVERY_S + 5


def test_it_takes_a_twentieth_of_the_time_and_else_comes_last() -> None:
    built, log = crowd(200), list[str]()
    built.node_changed(wire_node("n0", [8], unschedulable=True))
    agenda = Agenda(Pile(log, "no hint"), [Pile(log, "decide", 1, 1)], [built.reevaluation])
    began_s = EVERY_S
    assert agenda.step(began_s, NOW_NS) is not None
    assert log == []
    assert agenda.due_s() == -inf
    for number in (1, 2):
        assert agenda.step(began_s + number * STEP_S, NOW_NS) is not None
    assert log == ["decide", "decide"]
    assert agenda.due_s() == pytest.approx(began_s + STEP_S + 19 * STEP_S)
    assert agenda.step(began_s + 3 * STEP_S, NOW_NS) is None


def test_it_has_its_turn_beside_decisions_without_end() -> None:
    built, log = crowd(50), list[str]()
    agenda = Agenda(Pile(log, "no hint"), [Pile(log, "decide", *[1] * 2000)], [built.reevaluation])
    corrected = run(agenda, EVERY_S, EVERY_S + 1)
    assert 15 <= len(corrected) <= 25
    assert len(log) >= 970


def test_work_in_the_background_goes_on_while_no_pod_may_be_placed() -> None:
    log: list[str] = []
    agenda = Agenda(Pile(log, "hint", 0), [Pile(log, "decide", 1)], [crowd(1).reevaluation])
    assert agenda.step(EVERY_S, NOW_NS, may_place=False) is not None
    assert log == []


def test_a_round_of_the_audit_takes_a_step_for_each_node() -> None:
    built = engine(**{f"n{i}": [16] for i in range(60)})
    audit, steps = LedgerAudit(built.tables, period_s=600.0), 0
    audit.begin(0.0)
    assert audit.due_s() == 600.0
    effects: list[Effect] = []
    while not effects:
        effects += audit.step(600.0)
        steps += 1
    assert steps == 61
    assert effects == [Audited(AuditRound(nodes=60))]
    assert audit.due_s() == 1200.0


def test_the_audit_returns_what_it_found_in_every_round() -> None:
    built = engine(a=[16], b=[16])
    for _ in range(2):
        built.tables.cards.free[0, built.tables.row_of["a"]] -= 1
        found, ended = a_round(LedgerAudit(built.tables, period_s=600.0))
        assert isinstance(found, NodeAudited)
        assert found.audit.node == "a"
        assert ended == Audited(AuditRound(nodes=2, differences=1))
