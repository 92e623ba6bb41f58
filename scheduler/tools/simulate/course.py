"""Growth of the cards' booked share while pods arrive. Pure.

Arrivals count by their requests, placed or not, in percent of all units of the cluster. So the share booked at 100 %
arrived is the usable part of a cluster for pods that together request exactly all of it.
"""

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

# Decimal places to which each share is rounded before averaging, as in the published curves.
_ROUNDED_TO: Final = 100
_FULL: Final = 100
# Limit for percent arrived: one pod may request more than all clusters have, and each percent is a number that is kept.
_LAST: Final = 1_000


class Came(NamedTuple):
    """Arrival of a pod, and the result of its first attempt.

    at_s: seconds from the start. asked: units of all pods up to this one. used: units booked after it. placed: whether
    it was placed.
    """

    at_s: float
    asked: int
    used: int
    placed: bool


@dataclass(slots=True)
class Course:
    """First attempts of all pods.

    units: on all cards, as first seen. came: in the order of the first attempts. average: units booked on average from
    the start until the last arrival.
    """

    units: int = 0
    came: list[Came] = field(default_factory=list)
    average: float = 0.0

    def note(self, at_s: float, asked: int, used: int, *, placed: bool) -> None:
        """Record the first attempt for a pod. asked: its own units."""
        before = self.came[-1].asked if self.came else 0
        self.came.append(Came(at_s, before + asked, used, placed))


def shares_by_arrived(course: Course) -> tuple[float | None, ...]:
    """Return the booked percent at 0, 1, 2, … percent arrived, up to 1,000: the mean over the pods that arrived there.

    None if no pod arrived there.
    """
    sums: dict[int, tuple[float, int]] = {}
    for came in course.came if course.units else ():
        # Never decreases from one pod to the next.
        if (arrived := round(_FULL * came.asked / course.units)) > _LAST:
            break
        total, count = sums.get(arrived, (0.0, 0))
        sums[arrived] = total + _rounded(_FULL * came.used / course.units), count + 1
    means = {arrived: total / count for arrived, (total, count) in sums.items()}
    return tuple(means.get(arrived) for arrived in range(max(means, default=-1) + 1))


def first_unplaced(course: Course) -> float | None:
    """Return the percent arrived with the first pod that was not placed; None if all pods were."""
    asked = next((came.asked for came in course.came if not came.placed), None)
    return None if asked is None or not course.units else _FULL * asked / course.units


def _rounded(percent: float) -> float:
    return math.floor(percent * _ROUNDED_TO + 0.5) / _ROUNDED_TO
