"""Whether a process stays as it is. Pure.

A run has nine windows of equal length, at 45 minutes of 5 each. The first two are for what fills up at first: caches,
pools of connections, the allocator. The third one is what the last one is compared with.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from config.settings.leader_election import LeaderElectionSection
from e2e.soak.measured import Sample
from scheduler.kube.rest.bare_connections import KEEP_ALIVE_S

WINDOWS: Final = 9
_SECOND: Final = 1
_WARM: Final = 2
_LAST: Final = WINDOWS - 1
# Of a few ten; what leaks leaks more in half an hour.
_MORE: Final = 3
# aiohttp takes the connection that has been idle for longest: the renewals of the Lease alone keep so many of a burst.
_IN_TURN: Final = int(KEEP_ALIVE_S / LeaderElectionSection().retry_period_s)
# A connection is a descriptor, and is kept for the next request.
_KEPT: Final = ("connections", "descriptors")
# One stall of the machine may have several pods under way, and connections of a burst stay open for a while.
_OF_BURSTS: Final = ("tasks", *_KEPT)
_COUNTED: Final = (*_OF_BURSTS, "threads")
# The p99 of fewer pods is one or two of them.
_MANY: Final = 300


@dataclass(frozen=True, slots=True)
class Limits:
    """growth: of memory, of 1. latency: how much slower the last window may be. free_s: a wait that nobody minds."""

    growth: float
    latency: float = 2.0
    free_s: float = 0.3


def window(at_s: float, run_s: float) -> int:
    """In which of the windows a moment is."""
    return min(_LAST, int(WINDOWS * at_s / run_s))


def wrong(name: str, samples: Sequence[Sample], run_s: float, limits: Limits) -> list[str]:
    """What grew in one process, a line each; [] is well. Raises ValueError when a window is empty."""
    warm, last = ([one for one in samples if window(one.at_s, run_s) == number] for number in (_WARM, _LAST))
    if not warm or not last:
        message = f"{name}: no sample in the windows that are compared"
        raise ValueError(message)
    # In shorter windows those of one burst say nothing. `left_over` looks at them too.
    counted = _COUNTED if run_s / WINDOWS > 2 * KEEP_ALIVE_S else [one for one in _COUNTED if one not in _OF_BURSTS]
    return [f"{name}: {line}" for line in _grown(warm, last, limits, counted)]


def growth(samples: Sequence[Sample], run_s: float) -> float:
    """Of resident memory, of 1: from the third window to the last."""
    warm, last = (
        median(one.resident_mib for one in samples if window(one.at_s, run_s) == number) for number in (_WARM, _LAST)
    )
    return last / warm - 1


def left_over(name: str, before: Sample, after: Sample) -> list[str]:
    """What was not there before the first pod came, and is when the last one is gone. Some connections may be kept."""
    found = [f"{after.unfinished} pods are still under way"] * bool(after.unfinished)
    for what, more in {"tasks": 0, **dict.fromkeys(_KEPT, _IN_TURN)}.items():
        had, has = getattr(before, what), getattr(after, what)
        if has > had + more:
            found.append(f"{had} {what} before the first pod, {has} after the last")
    return [f"{name}: {line}" for line in found]


def slower(timed: Sequence[tuple[float, float]], run_s: float, limits: Limits) -> list[str]:
    """Whether pods wait longer in the end: by the median where few were bound in a window. timed: (when, s)."""
    shown, bound = quantiles(timed, run_s), Counter(window(at_s, run_s) for at_s, _ in timed)
    which = "p99" if min(bound[_SECOND], bound[_LAST]) >= _MANY else "p50"
    second, last = (shown[number][which == "p99"] for number in (_SECOND, _LAST))
    allowed_s = max(limits.latency * second, limits.free_s)
    return [f"{which} until bound is {last:.3f} s in the end, and was {second:.3f} s"] * (last > allowed_s)


def quantiles(timed: Sequence[tuple[float, float]], run_s: float) -> list[tuple[float, float]]:
    """(p50, p99) of each window, in seconds; 0 where no pod was bound."""
    of: list[list[float]] = [[] for _ in range(WINDOWS)]
    for at_s, took_s in timed:
        of[window(at_s, run_s)].append(took_s)
    return [(_quantile(sorted(one), 0.5), _quantile(sorted(one), 0.99)) for one in of]


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _grown(warm: Sequence[Sample], last: Sequence[Sample], limits: Limits, counted: Iterable[str]) -> Iterator[str]:
    before, after = (median(one.resident_mib for one in those) for those in (warm, last))
    if after > before * (1 + limits.growth):
        yield f"{before:.1f} MiB resident, {after:.1f} in the end"
    for what in counted:
        before, after = (median(getattr(one, what) for one in those) for those in (warm, last))
        if after > before + _MORE:
            yield f"{before:g} {what}, {after:g} in the end"
