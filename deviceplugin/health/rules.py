"""The health of one card, and what it takes to trust it again. Pure.

          unclassified error,                 hardware error, third unclassified one,
          no answer 3 times                   lost, the driver advises a reset
    HEALTHY ──────────────────▶ SUSPECT ──────────────────────────────┐
       │ ▲                        │                                   ▼
       │ └── good for a while ────┘                               UNHEALTHY ◀── anything bad ──┐
       │                                                              │                        │
       └────────────────────── the same ─────────────────────────────▶│── reset seen, ──▶ RECOVERING
       ▲                                                                  operator clears it   │
       └───────────────────────────── good for a while ────────────────────────────────────────┘

SUSPECT takes no new pods, and nothing is done to those that are there. A card that needs a reset never leaves UNHEALTHY
by time alone. A driver that does not answer says nothing of a card, so silence makes no card worse than SUSPECT, and
neither does an error of which the driver does not say whose it is. A clock that is set back restarts every wait.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardEvent, Lost, Reading, Xid

# Errors of a program, or that the driver ends by ending it; the card is healthy. These six are passed over by NVIDIA's
# own device plugin (k8s-device-plugin, internal/rm/health.go). By NVIDIA's catalogue ("Analyzing Xid Errors with the
# Xid Catalog", docs.nvidia.com/deploy/xid-errors), the action is to restart the program, or none, for all but 109,
# after which it may take a reset: a driver that finds so advises it (Reading.recovery).
APPLICATION_XIDS: Final = {
    13: "graphics engine exception",
    31: "memory page fault of a program",
    43: "the program's channel was stopped",
    45: "cleanup after a program that ended",
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
    119: "GSP does not answer",
    120: "GSP error",
    136: "NVLink training failed",
    140: "unrecovered ECC error",
    143: "initialisation failed",
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
_ANSWERS_AGAIN: Final = 2

RECOVERING: Final = "recovering"  # the reason, while it is watched
_SILENT: Final = "silent"
_ECC: Final = "ecc"
_REMAP: Final = "row-remap"
_LOST: Final = "lost"
_ADVICE: Final = "recovery-"
_DRAIN: Final = "drain"


class HealthState(StrEnum):
    """Drawn above."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    UNHEALTHY = "unhealthy"
    RECOVERING = "recovering"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHealth:
    """Of one card. Times are Unix seconds.

    reason: what is wrong, "" when it is healthy. bad_s: when it last had what only a quiet time
    gets over; None: never. needs_reset: time does not heal it. good: good answers in a row, since good_s. silent:
    failures to answer in a row. unclassified_s: of recent unclassified errors. uncorrected_ecc: as counted last; None
    before the first answer.
    """

    state: HealthState = HealthState.HEALTHY
    reason: str = ""
    bad_s: float | None = None
    needs_reset: bool = False
    good: int = 0
    good_s: float = 0.0
    silent: int = 0
    unclassified_s: tuple[float, ...] = ()
    uncorrected_ecc: int | None = None


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


def after_event(health: CardHealth, event: CardEvent, now_s: float, xids: XidClasses) -> CardHealth:
    """The driver reported something of this card, or, as an Xid without a UUID, of some card."""
    if isinstance(event, Xid):
        if event.number in xids.ignored:
            return health
        return _after_xid(health, event, now_s, hardware=event.number in xids.hardware)
    if isinstance(event, Lost):
        return _bad(health, HealthState.UNHEALTHY, _LOST, now_s, needs_reset=True)
    return _recovering(health, now_s)


def after_reading(health: CardHealth, reading: Reading, now_s: float) -> CardHealth:
    """The card answered."""
    health = replace(health, silent=0)
    grown = health.uncorrected_ecc is not None and (reading.uncorrected_ecc or 0) > health.uncorrected_ecc
    if reading.uncorrected_ecc is not None:
        health = replace(health, uncorrected_ecc=reading.uncorrected_ecc)
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


def unanswered(health: CardHealth, now_s: float) -> CardHealth:
    """The card was asked, and neither it nor the driver answered."""
    health = replace(health, silent=health.silent + 1, good=0)
    if health.state is HealthState.HEALTHY and health.silent >= _SILENT_AFTER:
        return replace(health, state=HealthState.SUSPECT, reason=_SILENT, bad_s=now_s)
    return health


def cleared(health: CardHealth, now_s: float) -> CardHealth:
    """An operator has cleared the card: it recovers, if it was unhealthy."""
    if health.state is HealthState.SUSPECT:
        return CardHealth(uncorrected_ecc=health.uncorrected_ecc)
    return _recovering(health, now_s)


def is_lost(health: CardHealth) -> bool:
    """Whether it is unhealthy for having been lost, and for nothing else that takes a reset."""
    return health.state is HealthState.UNHEALTHY and health.reason == _LOST


def announced(health: CardHealth) -> tuple[Health, str]:
    """Health and reason as in the inventory (docs/protocol.md, "Inventory"): `unhealthy` also while recovering."""
    if health.state is HealthState.RECOVERING:
        return Health.UNHEALTHY, RECOVERING
    return Health(health.state.value), health.reason


def _after_xid(health: CardHealth, xid: Xid, now_s: float, *, hardware: bool) -> CardHealth:
    reason = f"xid-{xid.number}"
    if not xid.uuid:
        if health.state is HealthState.RECOVERING:
            return replace(health, good=0)
        return _bad(health, HealthState.SUSPECT, reason, now_s)
    if hardware:
        return _bad(health, HealthState.UNHEALTHY, reason, now_s, needs_reset=True)
    before_s = (min(then_s, now_s) for then_s in health.unclassified_s)
    unclassified_s = (*(then_s for then_s in before_s if now_s - then_s < _UNCLASSIFIED_WITHIN_S), now_s)
    state = HealthState.UNHEALTHY if len(unclassified_s) >= _UNCLASSIFIED_TIMES else HealthState.SUSPECT
    return replace(_bad(health, state, reason, now_s), unclassified_s=unclassified_s[-_UNCLASSIFIED_TIMES:])


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
    return CardHealth(state=HealthState.RECOVERING, reason=health.reason, bad_s=now_s, uncorrected_ecc=None)


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
        healthy = health.good >= _ANSWERS_AGAIN if health.reason == _SILENT else quiet
        return _healthy(health) if healthy else health
    if health.state is HealthState.RECOVERING:
        return _healthy(health) if steady else health
    if health.state is HealthState.UNHEALTHY and not health.needs_reset and quiet:
        return _recovering(health, now_s)
    return health


def _healthy(health: CardHealth) -> CardHealth:
    return CardHealth(unclassified_s=health.unclassified_s, uncorrected_ecc=health.uncorrected_ecc)
