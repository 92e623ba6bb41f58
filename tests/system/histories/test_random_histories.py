"""Random histories of nodes, cards, pods, other schedulers and faults, through the real service.

After each step, when everything that is due has happened, see `History.check`: no card is over-committed by us, no
pod is lost or bound twice, the tables hold what is counted from scratch. Each decision is the one without the cache,
and takes what is free: see `CheckedCycle`. At the end of each history all that can be placed is bound: see
`History.check_that_all_ends_well`.
"""

import gc
from collections import Counter
from contextlib import ExitStack
from typing import Final
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.system.histories.cluster_rules import ClusterRules
from tests.system.histories.fault_rules import FaultRules, ReplicaRules
from tests.system.histories.happening import happenings
from tests.system.histories.history import History

# At every change; `nightly` makes thousands of histories.
PORTIONS: Final = 4
HISTORIES: Final = 12
STEPS: Final = 50
FAULTS_OF_BINDS: Final = ("Throttle", "Refuse", "Fail", "Silence", "Stranger", "Slow", "Overtaken")
# In virtual time the loop is never late, and what is swept is little: doing both as often as the programs do takes a
# quarter of the run.
_SELDOM: Final = {"scheduler.service._LAG_EVERY_S": 2.0, "scheduler.dispatch.status._SWEPT_S": 60.0}


class Histories(ClusterRules, FaultRules, ReplicaRules):
    """Everything that may happen."""


def portion(machine: type[History], number: int, *, histories: int, steps: int = STEPS) -> Counter[str]:
    """So many histories, by their number always the same ones; what happened in them. Raises what a check raises."""
    machine.happened.clear()
    chosen = settings(
        max_examples=histories,
        stateful_step_count=steps,
        database=None,
        deadline=None,
        print_blob=True,
        phases=(Phase.generate, Phase.shrink),
        # A history is long because what goes wrong needs one event to meet another.
        suppress_health_check=list(HealthCheck),
    )
    with ExitStack() as stack:
        for name, seconds in _SELDOM.items():
            stack.enter_context(patch(name, seconds))
        # Histories leave reference cycles. Each collection would otherwise also traverse all that was loaded before.
        gc.freeze()
        stack.callback(gc.unfreeze)
        run_state_machine_as_test(seed(number)(machine), settings=chosen)
    return Counter(machine.happened)


def missing(happened: Counter[str]) -> list[str]:
    """What may happen, and has not."""
    wanted = [*(h.name for h in happenings(Histories)), *(f"bind: {fault}" for fault in FAULTS_OF_BINDS)]
    return [what for what in wanted if not happened[what]]


@pytest.mark.parametrize("number", range(PORTIONS))
def test_whatever_happens_no_card_is_given_twice_and_no_pod_is_lost(number: int) -> None:
    happened = portion(Histories, number, histories=HISTORIES)

    assert happened["steps"] >= HISTORIES * STEPS * 0.9
    assert happened["placed"] >= 2 * HISTORIES
    assert happened["no fit"] >= 2 * HISTORIES
    # A rare thing is missing from so few histories; a rule that never applies any more, `nightly` finds.
    assert len(missing(happened)) <= len(happenings(Histories)) // 2
