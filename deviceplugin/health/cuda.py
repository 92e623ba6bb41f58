"""Decides when to retry CUDA on a card, and what a trial says about the card. Pure.

UNTRIED --cuInit returns 0, or cannot be tried here--> STARTS ──ten minutes later, or its fabric changed──▶ again
   └──────────── any other answer, or none ─────────▶ FAILED ──15 s later─────────────────────────────────▶ again
"""

from dataclasses import dataclass
from typing import Final

from deviceplugin.driver import cuda
from deviceplugin.driver.cuda import CudaAnswer

_AT_ONCE: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class TrialPace:
    """Seconds until a card is tried again. failed_s: after a failure. seldom_s: otherwise."""

    failed_s: float = 15.0
    seldom_s: float = 600.0


USUAL: Final = TrialPace()


@dataclass(frozen=True, slots=True)
class CudaTrial:
    """Result of the last trial. at_s: monotonic seconds. fabric: `CardReading.fabric` then."""

    answer: CudaAnswer
    at_s: float
    fabric: str = ""


def next_s(trial: CudaTrial | None, fabric: str, pace: TrialPace) -> float:
    """Return when to try again, in monotonic seconds. fabric: as it is now."""
    if trial is None or trial.fabric != fabric:
        return _AT_ONCE
    return trial.at_s + (pace.failed_s if trial.answer.reason else pace.seldom_s)


def reason_of(trial: CudaTrial | None, fabric: str) -> str:
    """Return why no new pod may have the card, in one word; "" if CUDA starts or nothing indicates that it does not.

    The fabric counts only if CUDA cannot be tried: a cuInit that returns 0 is better evidence.
    """
    if trial is None:
        return cuda.UNTRIED
    return fabric and f"{cuda.FABRIC}{fabric}" if trial.answer.lacking else trial.answer.reason
