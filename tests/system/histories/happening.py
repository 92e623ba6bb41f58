"""What may happen in a step of a random history, and how often."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

# Which of the candidates, see `nth`.
PICK: Final = st.integers(0, 2**16)
HappeningT = TypeVar("HappeningT", bound=Callable[..., None])


@dataclass(frozen=True, eq=False)
class Happening:
    """Something that may happen in a step; a moment passes after one that passes no time itself.

    weight: how often, beside the others. possible: asked each time.
    """

    name: str
    weight: int
    possible: Callable[[Any], object]
    arguments: Mapping[str, st.SearchStrategy[Any]]


def happens(
    weight: int, possible: Callable[[Any], object] = bool, **arguments: st.SearchStrategy[Any]
) -> Callable[[HappeningT], HappeningT]:
    """A rule with a weight: hypothesis' own rules are all as likely, and it leaves some out of each history."""

    def mark(method: HappeningT) -> HappeningT:
        method.happening = Happening(method.__name__, weight, possible, arguments)  # type: ignore[attr-defined]
        return method

    return mark


@cache
def happenings(machine: type) -> tuple[Happening, ...]:
    methods = (getattr(machine, name) for name in sorted(dir(machine)))
    # The likeliest first: it is what hypothesis draws more often than its share.
    return tuple(sorted((m.happening for m in methods if hasattr(m, "happening")), key=lambda h: -h.weight))


@cache
def one_of(possible: tuple[Happening, ...]) -> st.SearchStrategy[str]:
    """Names, as often as their weights say."""
    return st.sampled_from([h.name for h in possible for _ in range(h.weight)])


def nth(candidates: list[Any], pick: int) -> Any:  # noqa: ANN401 - one of them
    return candidates[pick % len(candidates)]
