"""Any history of a card, also with a clock that is set back: what holds it out, and that nothing else does forever."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardReading, Xid
from deviceplugin.health.record import HealthFile
from deviceplugin.health.rules import (
    FAILED_FOR_S,
    FAILED_TIMES,
    GOOD_FOR_S,
    GOOD_READINGS,
    QUIET_S,
    CardHealth,
    HealthState,
    after_reading,
    after_xid,
    announced,
    classes,
    cleared,
    failed,
    released,
    unanswered,
)

XIDS = classes((), ())
GOOD = CardReading(used_mib=0, uncorrected_ecc=0)
STEPS_S = st.sampled_from([0.0, 1.0, 10.0, 31.0, 301.0, 601.0, -5.0, -1000.0])


class CardHistory(RuleBasedStateMachine):
    """A card, and what must have been seen of it.

    locks: what only a reset or a word opens. good_s: good answers in a row. hurt_s: the last error, and the good
    answers since; empty when there was none. failed_s: answers in a row that were errors. counted: uncorrected errors
    that the driver has counted. attached: a number that changes with each reset.
    """

    def __init__(self) -> None:
        super().__init__()
        self.health, self.now_s = CardHealth(), 1e6
        self.locks: set[str] = set()
        self.good_s: list[float] = []
        self.hurt_s: list[float] = []
        self.failed_s: list[float] = []
        self.counted = self.attached = 0

    @rule(step_s=STEPS_S)
    def time_goes_by(self, step_s: float) -> None:
        self.now_s += step_s

    @rule(number=st.sampled_from([13, 31, 43]))
    def a_program_fails(self, number: int) -> None:
        assert after_xid(self.health, Xid("GPU-a", number), self.now_s, XIDS) == self.health

    @rule(number=st.sampled_from([48, 79, 119]))
    def the_hardware_fails(self, number: int) -> None:
        self._report(Xid("GPU-a", number))
        self.locks.add("error")

    @rule(times=st.sampled_from([1, 2, 3]), every_s=st.sampled_from([1.0, 10.0]), lost=st.booleans())
    def it_answers_with_an_error(self, times: int, every_s: float, lost: bool) -> None:  # noqa: FBT001 - by name
        for _ in range(times):
            before = announced(self.health)[0]
            self._fail(lost=lost)
            if "lost" not in self.locks:
                assert announced(self.health)[0] in {before, Health.SUSPECT}
            self.now_s += every_s

    @rule()
    def it_is_reset(self) -> None:
        """The next answer shows it, also after a restart of the plugin."""
        self.attached, self.counted = self.attached + 1, 0

    @rule()
    def the_plugin_restarts(self) -> None:
        with TemporaryDirectory() as folder:
            HealthFile(Path(folder), "boot").save({"GPU-a": self.health})
            kept = HealthFile(Path(folder), "boot").load().get("GPU-a", CardHealth())
        assert announced(kept) == announced(self.health)
        self.health, self.good_s, self.failed_s = kept, [], []

    @rule(until_s=st.sampled_from([None, 1e9]))
    def it_is_released_or_taken_back(self, until_s: float | None) -> None:
        before = announced(self.health)
        self.health = released(self.health, until_s)
        self.good_s, self.failed_s = [], []
        assert (announced(self.health)[0] is Health.UNHEALTHY) is (before[0] is Health.UNHEALTHY)
        if until_s is not None:
            assert announced(self.health)[0] is not Health.HEALTHY

    @rule(uuid=st.sampled_from(["", "GPU-a"]), number=st.sampled_from([32, 63, 94]))
    def something_odd_happens(self, uuid: str, number: int) -> None:
        if uuid or self.health.state is not HealthState.RECOVERING:
            self.hurt_s = [self.now_s]
        self._report(Xid(uuid, number))

    @rule()
    def a_hardware_error_of_no_card_happens(self) -> None:
        before = announced(self.health)[0]
        if self.health.state is not HealthState.RECOVERING:
            self.hurt_s = [self.now_s]
        self._report(Xid("", 79))
        assert announced(self.health)[0] in {before, Health.SUSPECT}

    @rule()
    def an_operator_clears_it(self) -> None:
        if self.health.state is not HealthState.HEALTHY:
            self._starts_over()
        self.health = cleared(self.health, self.now_s)

    @rule(advice=st.sampled_from(["reset", "reboot", "drain-reset"]))
    def the_driver_advises_a_reset(self, advice: str) -> None:
        self._read(replace(GOOD, recovery=advice))
        self.locks.add("advice")

    @rule(reading=st.sampled_from([replace(GOOD, remap_pending=True), replace(GOOD, recovery="drain")]))
    def something_waits(self, reading: CardReading) -> None:
        self._withdrawn()
        self._read(reading)
        assert announced(self.health)[0] is not Health.HEALTHY

    @rule()
    def uncorrected_errors_grow(self) -> None:
        self.counted += 1
        known = self.health.uncorrected_ecc
        # Fewer than before a reset that nobody has seen yet are not more.
        if known is not None and self.counted > known:
            self._withdrawn()
            self.hurt_s = [self.now_s]
            self._read(GOOD)
            assert announced(self.health)[0] is not Health.HEALTHY

    @rule(times=st.sampled_from([1, 2, 3, 40]), every_s=st.sampled_from([1.0, 10.0]))
    def it_answers(self, times: int, every_s: float) -> None:
        for _ in range(times):
            self._answer()
            self.now_s += every_s

    @rule()
    def it_does_not_answer(self) -> None:
        before = announced(self.health)[0]
        self.health = unanswered(self.health, self.now_s)
        self.good_s = []
        assert announced(self.health)[0] in {before, Health.SUSPECT}

    @invariant()
    def what_needs_a_reset_is_out(self) -> None:
        assert self.health.needs_reset is bool(self.locks)
        if self.locks:
            assert self.health.state is HealthState.UNHEALTHY

    @invariant()
    def a_reason_is_there_exactly_when_there_is_something_to_say(self) -> None:
        found, reason = announced(self.health)
        assert (found is Health.HEALTHY) is (reason == "")

    def teardown(self) -> None:
        """Whatever happened: what answers for long enough is let back in, unless it needs a reset."""
        self._seen_again()
        self.locks.discard("advice")
        self.health = released(self.health, None)
        for _ in range(100):
            self.health = after_reading(self.health, self._counting(GOOD), self.now_s)
            self.now_s += 10
        assert (self.health.state is HealthState.HEALTHY) is not bool(self.locks)

    def _answer(self) -> None:
        self._withdrawn()
        before = self.health
        self.health = after_reading(before, self._counting(GOOD), self.now_s)
        self.good_s = [] if self.good_s and self.now_s < self.good_s[0] else self.good_s
        self.good_s.append(self.now_s)
        self.hurt_s += [self.now_s] * bool(self.hurt_s)
        if before.state is HealthState.HEALTHY or self.health.state is not HealthState.HEALTHY:
            return
        if before.reason in {"silent", "failing"} and before.state is HealthState.SUSPECT:
            assert len(self.good_s) >= 2
            return
        assert len(self.good_s) >= GOOD_READINGS
        assert self.now_s - self.good_s[0] >= GOOD_FOR_S
        assert not self.hurt_s or self.now_s - min(self.hurt_s) >= QUIET_S

    def _report(self, xid: Xid) -> None:
        self.health = after_xid(self.health, xid, self.now_s, XIDS)
        self.good_s = []

    def _read(self, reading: CardReading) -> None:
        self._seen_again()
        self.health = after_reading(self.health, self._counting(reading), self.now_s)
        self.good_s = []

    def _counting(self, reading: CardReading) -> CardReading:
        return replace(reading, uncorrected_ecc=self.counted, attached=self.attached)

    def _fail(self, *, lost: bool) -> None:
        if self.failed_s and self.now_s < self.failed_s[0]:
            self.failed_s = []
        self.failed_s.append(self.now_s)
        self.good_s = []
        self.health = failed(self.health, self.now_s, lost=lost)
        if len(self.failed_s) >= FAILED_TIMES and self.now_s - self.failed_s[0] >= FAILED_FOR_S:
            self.locks.add("lost")

    def _seen_again(self) -> None:
        """It answers: was it gone, or reset?"""
        reset = self.health.attached not in {None, self.attached}
        unhealthy = announced(self.health)[0] is Health.UNHEALTHY
        self.failed_s = []
        if "lost" in self.locks or (reset and unhealthy):
            self._starts_over()

    def _withdrawn(self) -> None:
        self._seen_again()
        if self.locks == {"advice"}:
            self._starts_over()
        self.locks.discard("advice")

    def _starts_over(self) -> None:
        self.locks, self.good_s, self.hurt_s, self.failed_s = set(), [], [], []


TestCardHistory = CardHistory.TestCase
TestCardHistory.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
