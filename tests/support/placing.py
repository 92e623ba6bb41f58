"""Schedules pods one by one with the whole engine: the starting point of tests of card rules."""

import json

from config.protocol import names
from config.protocol.inventory import Card
from scheduler.core.effects import Audited, Effect
from scheduler.core.engine import Engine
from scheduler.core.ledger_audit import LedgerAudit
from scheduler.core.scheduling_cycle import NoFit, Placement
from scheduler.state.tables import Tables
from tests.support.builders import bound, pod, wire_node

NOW_NS = 1_700_000_000_000_000_000


def decided(built: Engine, now_s: float = 0.0) -> Placement | NoFit:
    """Return the next decision, which must exist."""
    decision = built.decide(now_s, NOW_NS)
    assert decision is not None
    return decision.outcome


def place(built: Engine, name: str = "p", gpu_mem: int | list[int] = 3, **options: object) -> Placement | NoFit:
    """Queue one pod and decide for it; bind a placement at once."""
    waiting = pod(name, gpu_mem, **options)
    built.pod_waiting(waiting, 0.0)
    outcome = decided(built)
    if isinstance(outcome, Placement):
        built.bound(outcome)
        built.pod_assigned(bound(waiting, outcome.node, outcome.annotations))
    return outcome


def where(outcome: Placement | NoFit) -> list[tuple[str, int]]:
    """Return (node, card index) of a placement."""
    assert isinstance(outcome, Placement), outcome
    return [(outcome.node, share.index) for share in outcome.cards]


def why(outcome: Placement | NoFit) -> str:
    """Return the message of an unschedulable pod."""
    assert isinstance(outcome, NoFit), outcome
    return outcome.diagnosis.message


def on_card(index: int, units: int) -> dict[str, str]:
    """Return the annotations of a pod that another program has bound to a card of its node."""
    return {names.ALLOCATION: json.dumps({"0": {str(index): units}}), names.UNIT_MIB: "1024"}


def refit(tables: Tables, *cards: Card, **options: object) -> None:
    """Give node a these cards."""
    tables.upsert_node(wire_node("a", list(cards), **options))  # type: ignore[arg-type]


def settle(built: Engine) -> list[str]:
    """Run every queueing hint and decide every pod; return the names of the placed pods."""
    placed: list[str] = []
    while True:
        checked, decision = built.run_hint(1.0), built.decide(1.0, NOW_NS)
        if decision is None:
            if not checked:
                return placed
        elif isinstance(decision.outcome, Placement):
            placed.append(decision.outcome.pod.key.name)


def a_round(audit: LedgerAudit) -> list[Effect]:
    """Run a whole round of the audit; its last effect is `Audited`."""
    audit.begin(0.0)
    effects: list[Effect] = []
    while not effects or not isinstance(effects[-1], Audited):
        effects += audit.step(0.0)
    return effects
