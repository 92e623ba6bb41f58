"""When CUDA is tried on a card again, and what a trial says of the card. Pure.

UNTRIED --cuInit answers 0, or cannot be tried here--> STARTS ──ten minutes later, or its fabric changed──▶ again
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
    """at_s: monotonic seconds. fabric: `CardReading.fabric` then."""

    answer: CudaAnswer
    at_s: float
    fabric: str = ""


def next_s(trial: CudaTrial | None, fabric: str, pace: TrialPace) -> float:
    """When to try again, in monotonic seconds. fabric: as it is now."""
    if trial is None or trial.fabric != fabric:
        return _AT_ONCE
    return trial.at_s + (pace.failed_s if trial.answer.reason else pace.seldom_s)


def reason_of(trial: CudaTrial | None, fabric: str) -> str:
    """Why no new pod may have the card, in one word; "" where CUDA starts, or where nothing speaks against it.

    The fabric counts only where CUDA cannot be tried: one cuInit that answers 0 knows better.
    """
    if trial is None:
        return cuda.UNTRIED
    return fabric and f"{cuda.FABRIC}{fabric}" if trial.answer.lacking else trial.answer.reason
