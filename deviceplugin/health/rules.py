"""The health of one card, and what it takes to trust it again. Pure.

          unclassified error,                 hardware error, third unclassified one,
          no answer 3 times,                  fails 3 times in 20 s, the driver advises a reset
          fails, is gone
    HEALTHY ──────────────────▶ SUSPECT ──────────────────────────────┐
       │ ▲                        │                                   ▼
       │ └── good for a while ────┘                               UNHEALTHY ◀── anything bad ──┐
       │                                                              │                        │
       └────────────────────── the same ─────────────────────────────▶│── reset seen, ──▶ RECOVERING
       ▲                                                                  operator clears it   │
       └───────────────────────────── good for a while ────────────────────────────────────────┘

    in each of them: HELD --released, until some time--> RELEASED --taken back, or that time has come--> HELD

SUSPECT takes no new pods, and nothing is done to those that are there. A card that needs a reset never leaves UNHEALTHY
by time alone. A driver that does not answer says nothing of a card, so silence makes no card worse than SUSPECT, and
neither does one error in answer to a question, nor one that the driver reports and does not say whose it is. A reset is
seen when a card that was gone answers again, and by what its driver counts (`was_reset`). A released card is announced
as SUSPECT at best. A clock that is set back restarts every wait.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardReading, Xid

# Errors of a program, or that the driver ends by ending it; the card is healthy. These six are passed over by NVIDIA's
# own device plugin (k8s-device-plugin, internal/rm/health.go). By NVIDIA's catalogue ("Analyzing Xid Errors with the
# Xid Catalog", docs.nvidia.com/deploy/xid-errors), the action is to restart the program, or none, for all but 109,
# after which it may take a reset: a driver that finds so advises it (CardReading.recovery).
APPLICATION_XIDS: Final = {
    13: "graphics engine exception",
    31: "memory page fault in a program",
    43: "the program's channel was stopped",
    45: "cleanup after a program ended",
    68: "video processor exception",
    109: "context switch timed out",
}
# The same catalogue: reset the GPU, or the machine. 74 has a procedure of its own there, which may end in a reset. Not
# among them: 63 (a row was remapped; one that waits for a reset is seen in the readings) and 94 (contained memory
# error: the program that met it is restarted). Those are unclassified, which keeps new pods away for a while.
HARDWARE_XIDS: Final = {
    46: "the GPU stopped processing",
    48: "uncorrectable ECC error",
    62: "internal microcontroller halted",
    64: "row remapper failure",
    74: "NVLink error",
    79: "fallen off the bus",
    95: "uncontained memory error",
    110: "security fault",
    119: "GSP does not respond",
    120: "GSP error",
    136: "NVLink training failed",
    140: "unrecovered ECC error",
    143: "initialization failed",
    158: "fatal timeout",
}

# A suspect card is healthy again after this long without another error.
QUIET_S: Final = 300.0
_UNCLASSIFIED_TIMES: Final = 3
_UNCLASSIFIED_WITHIN_S: Final = 600.0
# A card that was reset answers at once; whether it goes on doing so takes a few looks.
GOOD_READINGS: Final = 3
GOOD_FOR_S: Final = 30.0
_SILENT_AFTER: Final = 3
# A healthy card may answer with an error for a moment; one that is gone goes on doing so.
FAILED_TIMES: Final = 3
FAILED_FOR_S: Final = 20.0
_DOUBTED_AFTER: Final = 2
_ANSWERS_AGAIN: Final = 2

RECOVERING: Final = "recovering"  # the reason, while it is watched
RELEASED: Final = "released"
_SILENT: Final = "silent"
_FAILING: Final = "failing"
_ECC: Final = "ecc"
_REMAP: Final = "row-remap"
_LOST: Final = "lost"
_ADVICE: Final = "recovery-"
_DRAIN: Final = "drain"


class HealthState(StrEnum):
    """States drawn above."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    UNHEALTHY = "unhealthy"
    RECOVERING = "recovering"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHealth:
    """Health of one card. Times are Unix seconds.

    reason: what is wrong, "" when it is healthy. bad_s: when it last had what only a quiet time
    gets over; None: never. needs_reset: time does not heal it. good: good answers in a row, since good_s. silent:
    times in a row without an answer. failed: answers in a row that were errors, since failed_s; gone: so many that the
    card was taken for lost. unclassified_s: of recent unclassified errors. uncorrected_ecc, attached, energy_mj,
    persistent: as read last; None before the first answer. released_s: until when it is released; None: held.
    annotated: the annotation `gpushare/release` named it, when that was last looked at.
    """

    state: HealthState = HealthState.HEALTHY
    reason: str = ""
    bad_s: float | None = None
    needs_reset: bool = False
    good: int = 0
    good_s: float = 0.0
    silent: int = 0
    failed: int = 0
    failed_s: float = 0.0
    gone: bool = False
    unclassified_s: tuple[float, ...] = ()
    uncorrected_ecc: int | None = None
    attached: int | None = None
    energy_mj: int | None = None
    persistent: bool = False
    released_s: float | None = None
    annotated: bool = False


@dataclass(frozen=True, slots=True)
class XidClasses:
    """ignored: say nothing of the card. hardware: need a reset. Every other one is unclassified."""

    ignored: frozenset[int]
    hardware: frozenset[int]


def classes(ignored_xids: Collection[int], hardware_xids: Collection[int]) -> XidClasses:
    """The tables above, as the configuration corrects them."""
    ignored, hardware = frozenset(ignored_xids), frozenset(hardware_xids)
    return XidClasses(
        (ignored | APPLICATION_XIDS.keys()) - hardware,
        (hardware | HARDWARE_XIDS.keys()) - ignored,
    )


def after_xid(health: CardHealth, xid: Xid, now_s: float, xids: XidClasses) -> CardHealth:
    """The driver reported an error of this card or, without a UUID, of some card."""
    if xid.number in xids.ignored:
        return health
    reason = f"xid-{xid.number}"
    if not xid.uuid:
        if health.state is HealthState.RECOVERING:
            return replace(health, good=0)
        return _bad(health, HealthState.SUSPECT, reason, now_s)
    if xid.number in xids.hardware:
        return _bad(health, HealthState.UNHEALTHY, reason, now_s, needs_reset=True)
    before_s = (min(then_s, now_s) for then_s in health.unclassified_s)
    recent_s = [then_s for then_s in before_s if now_s - then_s < _UNCLASSIFIED_WITHIN_S]
    unclassified_s = (*recent_s, *[now_s] * min(xid.times, _UNCLASSIFIED_TIMES))
    state = HealthState.UNHEALTHY if len(unclassified_s) >= _UNCLASSIFIED_TIMES else HealthState.SUSPECT
    return replace(_bad(health, state, reason, now_s), unclassified_s=unclassified_s[-_UNCLASSIFIED_TIMES:])


def after_reading(health: CardHealth, reading: CardReading, now_s: float) -> CardHealth:
    """The card answered."""
    reading = _completed(reading, health)
    known = health.uncorrected_ecc
    grown = known is not None and (reading.uncorrected_ecc or 0) > known
    if health.gone or was_reset(health, reading):
        health = _recovering(health, now_s)
    health = _as_reported(reading, health)
    if reading.recovery and reading.recovery != _DRAIN:
        return _bad(health, HealthState.UNHEALTHY, f"{_ADVICE}{reading.recovery}", now_s, needs_reset=True)
    if health.needs_reset and health.reason.startswith(_ADVICE):
        # What the driver advised, it no longer advises: it has been done.
        health = _recovering(health, now_s)
    if reading.recovery or reading.remap_pending or grown:
        reason = _ADVICE + _DRAIN if reading.recovery else _REMAP if reading.remap_pending else _ECC
        bad = _bad(health, HealthState.SUSPECT, reason, now_s)
        # What waits is over when the driver says so; an error is over at once, and proves nothing by it.
        waits = not grown and health.state is not HealthState.RECOVERING
        return replace(bad, bad_s=health.bad_s) if waits else bad
    return _better(_counted(health, now_s), now_s)


def _completed(reading: CardReading, health: CardHealth) -> CardReading:
    """The reading; where the driver failed to tell what the card waits for, it waits for the same as before."""
    waits = health.reason if health.state in {HealthState.SUSPECT, HealthState.UNHEALTHY} else ""
    advice = waits.removeprefix(_ADVICE) if waits.startswith(_ADVICE) else ""
    remap = waits == _REMAP if reading.remap_pending is None else reading.remap_pending
    return replace(reading, remap_pending=remap, recovery=advice if reading.recovery is None else reading.recovery)


def was_reset(health: CardHealth, reading: CardReading) -> bool:
    """Whether the card was reset between its last reading and this one, also while nobody looked.

    The driver was attached to it again: it was reloaded, or the card left the bus. Or what it counts since it
    initialised the card has become less: volatile ECC errors, energy (NVML API reference, nvmlEccCounterType_t and
    nvmlDeviceGetTotalEnergyConsumption). Only persistence mode makes that a proof: without it the driver initialises a
    card whenever somebody uses it again. Energy may have grown past what it was; then this sees no reset.
    """
    if None not in {health.attached, reading.attached} and health.attached != reading.attached:
        return True
    less = _less(reading.uncorrected_ecc, health.uncorrected_ecc) or _less(reading.energy_mj, health.energy_mj)
    return health.persistent and less


def unanswered(health: CardHealth, now_s: float) -> CardHealth:
    """The card was asked, and neither it nor the driver answered."""
    health = replace(health, silent=health.silent + 1, good=0)
    return _doubted(health, _SILENT, now_s) if health.silent >= _SILENT_AFTER else health


def failed(health: CardHealth, now_s: float, *, lost: bool) -> CardHealth:
    """The card answered with an error, or the driver does not list it. lost: the error says that it is gone."""
    since_s = health.failed_s if health.failed and health.failed_s <= now_s else now_s
    health = replace(health, failed=health.failed + 1, failed_s=since_s, silent=0, good=0)
    if health.failed >= FAILED_TIMES and now_s - since_s >= FAILED_FOR_S:
        return replace(_bad(health, HealthState.UNHEALTHY, _LOST, now_s, needs_reset=True), gone=True)
    return _doubted(health, _FAILING, now_s) if lost or health.failed >= _DOUBTED_AFTER else health


def cleared(health: CardHealth, now_s: float) -> CardHealth:
    """An operator has cleared the card: it recovers, if it was unhealthy."""
    if health.state is HealthState.SUSPECT:
        return _as_read(health)
    return _recovering(health, now_s)


def released(health: CardHealth, until_s: float | None) -> CardHealth:
    """Released until then; None: reclaimed. The next reading shows whether it was reset in between."""
    return replace(health, released_s=until_s, silent=0, failed=0, good=0)


def announced(health: CardHealth) -> tuple[Health, str]:
    """Health and reason as in docs/develop/protocol.md, "Inventory": `unhealthy` also while recovering."""
    if health.state is HealthState.RECOVERING:
        return Health.UNHEALTHY, RECOVERING
    if health.released_s is not None and health.state is not HealthState.UNHEALTHY:
        return Health.SUSPECT, RELEASED
    return Health(health.state.value), health.reason


def _doubted(health: CardHealth, reason: str, now_s: float) -> CardHealth:
    """A healthy card as suspect, for this reason; any other card unchanged."""
    if health.state is not HealthState.HEALTHY:
        return health
    return replace(health, state=HealthState.SUSPECT, reason=reason, bad_s=now_s)


def _bad(health: CardHealth, state: HealthState, reason: str, now_s: float, *, needs_reset: bool = False) -> CardHealth:
    """Never better than it is: what is bad keeps an unhealthy card so, and ends a recovery.

    Of reasons that need a reset the first stays, except the driver's advice: it may be withdrawn, an error may not.
    """
    stays = health.needs_reset and not (needs_reset and health.reason.startswith(_ADVICE))
    if health.state is HealthState.RECOVERING:
        state = HealthState.UNHEALTHY
    elif health.state is HealthState.UNHEALTHY and (state is HealthState.SUSPECT or stays):
        state, reason, needs_reset = HealthState.UNHEALTHY, health.reason, health.needs_reset
    # Time means nothing to what needs a reset: the same reason again is no news, and nothing to write down.
    bad_s = health.bad_s if needs_reset else now_s
    return replace(health, state=state, reason=reason, bad_s=bad_s, needs_reset=needs_reset, good=0)


def _recovering(health: CardHealth, now_s: float) -> CardHealth:
    """A reset was seen, or an operator cleared it: only an unhealthy card has anything to recover from."""
    if health.state not in {HealthState.UNHEALTHY, HealthState.RECOVERING}:
        return health
    return replace(
        _as_read(health), state=HealthState.RECOVERING, reason=health.reason, bad_s=now_s, uncorrected_ecc=None
    )


def _counted(health: CardHealth, now_s: float) -> CardHealth:
    """One more good answer; the first one, and one of before a clock was set back, begins the count."""
    if health.bad_s is not None and now_s < health.bad_s:
        health = replace(health, bad_s=now_s)
    if health.good == 0 or now_s < health.good_s:
        return replace(health, good=1, good_s=now_s)
    return replace(health, good=health.good + 1)


def _better(health: CardHealth, now_s: float) -> CardHealth:
    steady = health.good >= GOOD_READINGS and now_s - health.good_s >= GOOD_FOR_S
    quiet = steady and (health.bad_s is None or now_s - health.bad_s >= QUIET_S)
    if health.state is HealthState.SUSPECT:
        healthy = health.good >= _ANSWERS_AGAIN if health.reason in {_SILENT, _FAILING} else quiet
        return _healthy(health) if healthy else health
    if health.state is HealthState.RECOVERING:
        return _healthy(health) if steady else health
    if health.state is HealthState.UNHEALTHY and not health.needs_reset and quiet:
        return _recovering(health, now_s)
    return health


def _healthy(health: CardHealth) -> CardHealth:
    return replace(_as_read(health), unclassified_s=health.unclassified_s)


def _as_reported(reading: CardReading, health: CardHealth) -> CardHealth:
    counted = health.uncorrected_ecc if reading.uncorrected_ecc is None else reading.uncorrected_ecc
    return replace(
        health,
        silent=0,
        failed=0,
        gone=False,
        uncorrected_ecc=counted,
        attached=reading.attached,
        energy_mj=reading.energy_mj,
        persistent=reading.persistent,
    )


def _as_read(health: CardHealth) -> CardHealth:
    """Nothing is held against it; what was read of it stays, and what operators have said of releasing it."""
    return CardHealth(
        uncorrected_ecc=health.uncorrected_ecc,
        attached=health.attached,
        energy_mj=health.energy_mj,
        persistent=health.persistent,
        released_s=health.released_s,
        annotated=health.annotated,
    )


def _less(now: int | None, before: int | None) -> bool:
    return now is not None and before is not None and now < before


_EVERY_S: Final = 60.0


@dataclass(slots=True)
class XidLog:
    """Time of the last log line per card and error number."""

    _logged_s: dict[tuple[str, int], float] = field(default_factory=dict)
    _unlogged: dict[tuple[str, int], int] = field(default_factory=dict)

    def times(self, xid: Xid, now_s: float) -> int:
        """How many errors to log now, those that were passed over included; 0: none yet."""
        key = (xid.uuid, xid.number)
        times = self._unlogged.pop(key, 0) + xid.times
        if key in self._logged_s and 0 <= now_s - self._logged_s[key] < _EVERY_S:
            self._unlogged[key] = times
            return 0
        self._logged_s[key] = now_s
        return times
