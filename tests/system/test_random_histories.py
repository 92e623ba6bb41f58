"""Random histories of nodes, cards, pods, other schedulers and faults, through the real service.

After each step, when everything that is due has happened, see `History.check`: no card is over-committed by us, no
pod is lost or bound twice, the tables hold what is counted from scratch. Each decision is the one without the memo:
see `CheckedCycle`. At the end of each history all that can be placed is bound: see `check_that_all_ends_well`.
"""

from typing import Final

from hypothesis import HealthCheck, settings

from tests.system.cluster_rules import ClusterRules
from tests.system.fault_rules import FaultRules
from tests.system.prompt_rules import PromptRules

EXAMPLES: Final = 110
STEPS: Final = 50


class Histories(ClusterRules, FaultRules, PromptRules):
    pass


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    # A history is long because what goes wrong needs one event to meet another.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def test_the_histories_were_long_and_everything_happened_in_them() -> None:
    """After the test above, in file order."""
    happened = Histories.happened

    print(sorted(happened.items()))
    assert happened["steps"] >= 5_000
