"""The health of one card, and the conditions for trusting it again. Pure.

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

    in each of them: HELD --released until a set time--> RELEASED --reclaimed, or that time has come--> HELD

SUSPECT takes no new pods; existing pods are left alone. A card that needs a reset never leaves UNHEALTHY by time alone.
A silent driver says nothing about a card. So silence makes no card worse than SUSPECT, nor does a single error in
answer to a query, nor an error that the driver reports without naming a card. A reset is detected when a missing card
answers again, and by the driver's counters (`was_reset`). A released card is announced as SUSPECT at best. A clock that
is set back restarts every wait.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardReading, Xid

# Errors that a program causes, or that the driver resolves by ending the program; the card is healthy. NVIDIA's own
# device plugin ignores these six (k8s-device-plugin, internal/rm/health.go). According to NVIDIA's catalog ("Analyzing
# Xid Errors with the Xid Catalog", docs.nvidia.com/deploy/xid-errors), the action is to restart the program, or none,
# for all but 109. XID 109 may require a reset: a driver that finds so advises it (CardReading.recovery).
APPLICATION_XIDS: Final = {
    13: "graphics engine exception",
    31: "memory page fault in a program",
    43: "the program's channel was stopped",
    45: "cleanup after a program ended",
    68: "video processor exception",
    109: "context switch timed out",
}
# The same catalog: reset the GPU, or the machine. 74 has its own procedure there, which may end in a reset. Not listed
# here: 63 (a row was remapped; the readings show one that waits for a reset) and 94 (contained memory error: the
# affected program is restarted). Those are unclassified, which keeps new pods away for a while.
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
# A card answers at once after a reset; a few more readings show whether it keeps answering.
GOOD_READINGS: Final = 3
GOOD_FOR_S: Final = 30.0
_SILENT_AFTER: Final = 3
# A healthy card may briefly return an error; a missing card keeps returning it.
FAILED_TIMES: Final = 3
FAILED_FOR_S: Final = 20.0
_DOUBTED_AFTER: Final = 2
_ANSWERS_AGAIN: Final = 2

RECOVERING: Final = "recovering"  # the reason during recovery
RELEASED: Final = "released"
_SILENT: Final = "silent"
_FAILING: Final = "failing"
_ECC: Final = "ecc"
_REMAP: Final = "row-remap"
_LOST: Final = "lost"
_ADVICE: Final = "recovery-"
_DRAIN: Final = "drain"


class HealthState(StrEnum):
    """States of a card; the module's description shows the transitions."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    UNHEALTHY = "unhealthy"
    RECOVERING = "recovering"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHealth:
    """Health of one card. Times are Unix seconds.

    reason: the problem, "" if healthy. bad_s: last time of an error that only a quiet period clears; None if never.
    needs_reset: time alone does not heal it. good: consecutive good answers, since good_s. silent: consecutive missing
    answers. failed: consecutive errors, since failed_s. gone: these errors are enough to consider the card lost.
    unclassified_s: times of recent unclassified errors. uncorrected_ecc, attached, energy_mj, persistent: values last
    read; None before the first answer. released_s: end of its release; None if held. annotated: the annotation
    `gpushare/release` named it when last checked.
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
    """Classes of errors. ignored: say nothing about the card. hardware: need a reset. All others are unclassified."""

    ignored: frozenset[int]
    hardware: frozenset[int]


def classes(ignored_xids: Collection[int], hardware_xids: Collection[int]) -> XidClasses:
    """Return the built-in classes of errors with the corrections from the configuration."""
    ignored, hardware = frozenset(ignored_xids), frozenset(hardware_xids)
    return XidClasses(
        (ignored | APPLICATION_XIDS.keys()) - hardware,
        (hardware | HARDWARE_XIDS.keys()) - ignored,
    )


def after_xid(health: CardHealth, xid: Xid, now_s: float, xids: XidClasses) -> CardHealth:
    """Return the health after the driver reported an error of this card or, without a UUID, of an unknown card."""
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
    """Return the health after a reading of the card."""
    reading = _completed(reading, health)
    known = health.uncorrected_ecc
    grown = known is not None and (reading.uncorrected_ecc or 0) > known
    if health.gone or was_reset(health, reading):
        health = _recovering(health, now_s)
    health = _as_reported(reading, health)
    if reading.recovery and reading.recovery != _DRAIN:
        return _bad(health, HealthState.UNHEALTHY, f"{_ADVICE}{reading.recovery}", now_s, needs_reset=True)
    if health.needs_reset and health.reason.startswith(_ADVICE):
        # The driver has withdrawn its advice: the advised action has been taken.
        health = _recovering(health, now_s)
    if reading.recovery or reading.remap_pending or grown:
        reason = _ADVICE + _DRAIN if reading.recovery else _REMAP if reading.remap_pending else _ECC
        bad = _bad(health, HealthState.SUSPECT, reason, now_s)
        # A wait ends when the driver reports its end. An error is over at once, so its end proves nothing.
        waits = not grown and health.state is not HealthState.RECOVERING
        return replace(bad, bad_s=health.bad_s) if waits else bad
    return _better(_counted(health, now_s), now_s)


def _completed(reading: CardReading, health: CardHealth) -> CardReading:
    """Return the reading. Takes pending actions from `health` if the driver could not report them."""
    waits = health.reason if health.state in {HealthState.SUSPECT, HealthState.UNHEALTHY} else ""
    advice = waits.removeprefix(_ADVICE) if waits.startswith(_ADVICE) else ""
    remap = waits == _REMAP if reading.remap_pending is None else reading.remap_pending
    return replace(reading, remap_pending=remap, recovery=advice if reading.recovery is None else reading.recovery)


def was_reset(health: CardHealth, reading: CardReading) -> bool:
    """Return whether the card was reset between its last reading and this one, even if nobody was watching.

    Signs: the driver attached to the card again, because the driver was reloaded or the card left the bus. Or a counter
    that starts at the card's initialization has become smaller: volatile ECC errors, energy (NVML API reference,
    nvmlEccCounterType_t and nvmlDeviceGetTotalEnergyConsumption). Counters prove it only in persistence mode: otherwise
    the driver initializes the card at each first use. If the energy has already grown past its old value, this detects
    no reset.
    """
    if None not in {health.attached, reading.attached} and health.attached != reading.attached:
        return True
    less = _less(reading.uncorrected_ecc, health.uncorrected_ecc) or _less(reading.energy_mj, health.energy_mj)
    return health.persistent and less


def unanswered(health: CardHealth, now_s: float) -> CardHealth:
    """Return the health after a query that neither the card nor the driver answered."""
    health = replace(health, silent=health.silent + 1, good=0)
    return _doubted(health, _SILENT, now_s) if health.silent >= _SILENT_AFTER else health


def failed(health: CardHealth, now_s: float, *, lost: bool) -> CardHealth:
    """Return the health after the card answered with an error, or was not listed. lost: the card is missing."""
    since_s = health.failed_s if health.failed and health.failed_s <= now_s else now_s
    health = replace(health, failed=health.failed + 1, failed_s=since_s, silent=0, good=0)
    if health.failed >= FAILED_TIMES and now_s - since_s >= FAILED_FOR_S:
        return replace(_bad(health, HealthState.UNHEALTHY, _LOST, now_s, needs_reset=True), gone=True)
    return _doubted(health, _FAILING, now_s) if lost or health.failed >= _DOUBTED_AFTER else health


def cleared(health: CardHealth, now_s: float) -> CardHealth:
    """Return the health after an operator cleared the card: it recovers, if it was unhealthy."""
    if health.state is HealthState.SUSPECT:
        return _as_read(health)
    return _recovering(health, now_s)


def released(health: CardHealth, until_s: float | None) -> CardHealth:
    """Return the health of a card that is released until `until_s`, or reclaimed if it is None.

    The next reading shows whether it was reset.
    """
    return replace(health, released_s=until_s, silent=0, failed=0, good=0)


def announced(health: CardHealth) -> tuple[Health, str]:
    """Return health and reason as in docs/develop/protocol.md, "Inventory": `unhealthy` also while recovering."""
    if health.state is HealthState.RECOVERING:
        return Health.UNHEALTHY, RECOVERING
    if health.released_s is not None and health.state is not HealthState.UNHEALTHY:
        return Health.SUSPECT, RELEASED
    return Health(health.state.value), health.reason


def _doubted(health: CardHealth, reason: str, now_s: float) -> CardHealth:
    """Return a healthy card as suspect, for this reason; any other card unchanged."""
    if health.state is not HealthState.HEALTHY:
        return health
    return replace(health, state=HealthState.SUSPECT, reason=reason, bad_s=now_s)


def _bad(health: CardHealth, state: HealthState, reason: str, now_s: float, *, needs_reset: bool = False) -> CardHealth:
    """Return a health that is never better than before: an error keeps an unhealthy card so and ends a recovery.

    The first reason that needs a reset is kept, unless it is the driver's advice: advice may be withdrawn, errors may
    not.
    """
    stays = health.needs_reset and not (needs_reset and health.reason.startswith(_ADVICE))
    if health.state is HealthState.RECOVERING:
        state = HealthState.UNHEALTHY
    elif health.state is HealthState.UNHEALTHY and (state is HealthState.SUSPECT or stays):
        state, reason, needs_reset = HealthState.UNHEALTHY, health.reason, health.needs_reset
    # Time does not matter if a reset is needed: the same reason again changes nothing and causes no write.
    bad_s = health.bad_s if needs_reset else now_s
    return replace(health, state=state, reason=reason, bad_s=bad_s, needs_reset=needs_reset, good=0)


def _recovering(health: CardHealth, now_s: float) -> CardHealth:
    """Return the health after a reset or an operator's clearing: only an unhealthy card has to recover."""
    if health.state not in {HealthState.UNHEALTHY, HealthState.RECOVERING}:
        return health
    return replace(
        _as_read(health), state=HealthState.RECOVERING, reason=health.reason, bad_s=now_s, uncorrected_ecc=None
    )


def _counted(health: CardHealth, now_s: float) -> CardHealth:
    """Count one more good answer. The count starts over at 1 if the clock was set back."""
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
    """Return a healthy state that keeps the values read and the operators' releases."""
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
    """Rate limit for logged errors: time of the last log line per card and error number."""

    _logged_s: dict[tuple[str, int], float] = field(default_factory=dict)
    _unlogged: dict[tuple[str, int], int] = field(default_factory=dict)

    def times(self, xid: Xid, now_s: float) -> int:
        """Return how many errors to log now, including suppressed ones; 0 if none yet."""
        key = (xid.uuid, xid.number)
        times = self._unlogged.pop(key, 0) + xid.times
        if key in self._logged_s and 0 <= now_s - self._logged_s[key] < _EVERY_S:
            self._unlogged[key] = times
            return 0
        self._logged_s[key] = now_s
        return times
