"""Pods' requests: a decaying count, learned only from the pods seen.

The later a pod was created, the larger its weight: weights double every half-life. So older pods count less without any
decay step, and a restart learns the same from the same pods.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from scheduler.pods.effective_requests import CPU
from scheduler.pods.gpu_request import Selection
from scheduler.pods.pod import Pod

# Tenants may vary their requests without limit: beyond this, the half that counts least is dropped.
MOST_SHAPES: Final = 1_024
# Model names per learned request: no cluster has as many models, and all names are stored.
MOST_MODELS: Final = 16
_MOST_CHARACTERS: Final = 1_024
# A week: usage changes from project to project rather than from day to day.
HALF_LIFE_S: Final = 7 * 86_400.0
# 2 to this power is still far from the limit of a float.
_HIGHEST_EXPONENT: Final = 500.0
_ANY_MODEL: Final = Selection()


@dataclass(frozen=True, slots=True, order=False)
class Shape:
    """Request that decides how much of a node's cards a pod can use. cards: 0 without GPU memory.

    units: per card. models: accepted models.
    """

    cpu_millis: int
    cards: int = 0
    units: int = 0
    models: Selection = _ANY_MODEL

    @classmethod
    def of(cls, pod: Pod) -> "Shape":
        """Shape of a pod's request, without UUIDs: no two pods that name UUIDs request the same."""
        cpu_millis, request = pod.template.requests.get(CPU, 0), pod.template.gpu_request
        if request is None:
            return cls(cpu_millis)
        return cls(cpu_millis, request.cards, request.units_per_card, request.models)


def is_learned(pod: Pod) -> bool:
    """Whether the pod's request counts: it requests GPU memory, and does not name many models."""
    request = pod.template.gpu_request
    if request is None:
        return False
    named = (*request.models.wanted, *request.models.excluded) if request.models else ()
    return len(named) <= MOST_MODELS and sum(map(len, named)) <= _MOST_CHARACTERS


def _every(_shape: Shape) -> bool:
    return True


class RequestsSeen:
    """Learned requests. Owned by the event loop; no method awaits.

    half_life_s: > 0; after this time a request counts half as much as a new one. Set it before the first request.
    """

    def __init__(self) -> None:
        self.half_life_s = HALF_LIFE_S
        self._began_s = 0.0
        self._weights: dict[Shape, float] = {}

    def note(self, shape: Shape, came_s: float) -> None:
        """Record a pod with this request. came_s: seconds, on any clock."""
        if not self._weights:
            self._began_s = came_s
        exponent = (came_s - self._began_s) / self.half_life_s
        if exponent > _HIGHEST_EXPONENT:
            self._begin_at(came_s)
            exponent = 0.0
        self._weights[shape] = self._weights.get(shape, 0.0) + 2.0 ** max(exponent, -_HIGHEST_EXPONENT)
        if len(self._weights) > MOST_SHAPES:
            self._weights = dict(self.heaviest(MOST_SHAPES // 2))

    def heaviest(self, most: int) -> list[tuple[Shape, float]]:
        """The `most` heaviest requests with their weights, heaviest first; ties by request."""
        return sorted(self._weights.items(), key=_rank)[:most]

    def shares(self, most: int, counts: Callable[[Shape], bool] = _every) -> list[tuple[Shape, float]]:
        """The `most` heaviest requests for which `counts` is true, and their shares, which add up to 1."""
        found = list(islice((entry for entry in self.heaviest(MOST_SHAPES) if counts(entry[0])), most))
        total = sum(weight for _, weight in found)
        return [(shape, weight / total) for shape, weight in found if weight > 0]

    def _begin_at(self, now_s: float) -> None:
        scale = 2.0 ** max(-2 * _HIGHEST_EXPONENT, (self._began_s - now_s) / self.half_life_s)
        self._began_s = now_s
        self._weights = {shape: weight * scale for shape, weight in self._weights.items()}


def _rank(entry: tuple[Shape, float]) -> tuple[float, int, int, int, list[str], list[str]]:
    shape, weight = entry
    models = shape.models
    return -weight, shape.cpu_millis, shape.cards, shape.units, sorted(models.wanted), sorted(models.excluded)
