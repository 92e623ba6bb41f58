"""Any history of a card, beside a small model: a list of what happened, judged again each time."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardReading, Xid
from deviceplugin.health.rules import (
    FAILED_FOR_S,
    FAILED_TIMES,
    GOOD_FOR_S,
    GOOD_READINGS,
    CardHealth,
    HealthState,
    after_reading,
    after_xid,
    announced,
    classes,
    cleared,
    failed,
    unanswered,
)

XIDS = classes((), ())
STEPS_S = st.sampled_from([0.0, 1.0, 10.0, 31.0, 301.0, 601.0])


@dataclass
class Model:
    """What must hold whatever the numbers are. broken: a hardware error that nobody has mended. good: since when."""

    broken: bool = False
    ever_bad: bool = False
    good: int = 0
    good_s: float = 0.0
    gone: bool = False
    failed_s: list[float] = field(default_factory=list)

    def bad(self) -> None:
        self.ever_bad, self.good = True, 0


class CardHistory(RuleBasedStateMachine):
    """Steps forward in time, and lets things happen."""

    def __init__(self) -> None:
        super().__init__()
        self.health, self.model, self.now_s = CardHealth(), Model(), 0.0

    @initialize(start_s=st.floats(0, 2e9))
    def start(self, start_s: float) -> None:
        self.now_s = start_s

    @rule(step_s=STEPS_S)
    def time_goes_by(self, step_s: float) -> None:
        self.now_s += step_s

    @rule(number=st.sampled_from([31, 43, 13]))
    def a_program_fails(self, number: int) -> None:
        before = self.health
        self.health = after_xid(self.health, Xid("GPU-a", number), self.now_s, XIDS)
        assert self.health == before

    @rule(number=st.sampled_from([48, 79, 119]))
    def the_hardware_fails(self, number: int) -> None:
        self.health = after_xid(self.health, Xid("GPU-a", number), self.now_s, XIDS)
        self.model.broken = True
        self.model.bad()

    @rule(uuid=st.sampled_from(["", "GPU-a"]))
    def something_odd_happens(self, uuid: str) -> None:
        self.health = after_xid(self.health, Xid(uuid, 32), self.now_s, XIDS)
        self.model.bad()

    @rule(lost=st.booleans())
    def it_answers_with_an_error(self, lost: bool) -> None:  # noqa: FBT001 - hypothesis passes it by name
        before = announced(self.health)[0]
        self.model.good = 0
        self.model.failed_s.append(self.now_s)
        self.health = failed(self.health, self.now_s, lost=lost)
        if len(self.model.failed_s) >= FAILED_TIMES and self.now_s - self.model.failed_s[0] >= FAILED_FOR_S:
            self.model.gone = self.model.broken = True
            self.model.bad()
        else:
            assert announced(self.health)[0] in {before, Health.SUSPECT}

    @rule()
    def an_operator_clears_it(self) -> None:
        if self.health.state is not HealthState.HEALTHY:
            self.model.failed_s, self.model.gone = [], False
        self.health = cleared(self.health, self.now_s)
        self.model.broken = False

    @rule()
    def it_answers(self) -> None:
        was_bad = announced(self.health)[0] is not Health.HEALTHY
        silent = self.health.reason in {"silent", "failing"}
        self.model.failed_s = []
        if self.model.gone:
            self.model.gone = self.model.broken = False
            self.model.good = 0
        self.health = after_reading(self.health, CardReading(used_mib=0), self.now_s)
        if self.model.good == 0:
            self.model.good_s = self.now_s
        self.model.good += 1
        if was_bad and announced(self.health)[0] is Health.HEALTHY and not silent:
            assert self.model.good >= GOOD_READINGS
            assert self.now_s - self.model.good_s >= GOOD_FOR_S

    @rule()
    def it_does_not_answer(self) -> None:
        before = announced(self.health)[0]
        self.health = unanswered(self.health, self.now_s)
        self.model.good = 0
        assert announced(self.health)[0] in {before, Health.SUSPECT}

    @invariant()
    def what_is_broken_stays_out(self) -> None:
        if self.model.broken:
            assert announced(self.health)[0] is Health.UNHEALTHY
            assert self.health.needs_reset

    @invariant()
    def what_was_never_bad_is_never_unhealthy(self) -> None:
        if not self.model.ever_bad:
            assert self.health.state in {HealthState.HEALTHY, HealthState.SUSPECT}

    @invariant()
    def a_reason_is_there_exactly_when_there_is_something_to_say(self) -> None:
        found, reason = announced(self.health)
        assert (found is Health.HEALTHY) is (reason == "")


TestCardHistory = CardHistory.TestCase
TestCardHistory.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
