"""Plots of `simulate --plot`: the share that is not booked while pods arrive. Needs matplotlib."""

import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from scheduler.tools.simulate.comparison import Outcome

_FULL = 100
_FROM = 75
_WIDE_IN, _HIGH_IN, _DOTS = 7.0, 4.5, 150


class NoPlot(Exception):
    """The plot cannot be drawn. The message names the missing part."""


def check_plot(file: Path) -> None:
    """Raise NoPlot if `plot` could not draw or write the file, before hours are spent."""
    if file.suffix not in {".png", ".svg"}:
        raise NoPlot(f"{file}: expected a file whose name ends in .png or .svg")
    _check_place(file)
    try:
        import matplotlib as _  # noqa: F401, ICN001, PLC0415 - an extra: nothing else needs it
    except ImportError as error:
        raise NoPlot("--plot needs matplotlib: pip install 'gpushare-scheduler[plot]'") from error


def _check_place(file: Path) -> None:
    try:
        message = _unwritable(file)
    except OSError as error:
        message = f"{file} cannot be written: {error.strerror}"
    if message:
        raise NoPlot(message)


def _unwritable(file: Path) -> str:
    if not file.parent.is_dir():
        return f"{file}: there is no folder {file.parent}"
    if file.is_dir():
        return f"{file}: expected a file, found a folder"
    may = os.access(file, os.W_OK) if file.exists() else os.access(file.parent, os.W_OK | os.X_OK)
    return "" if may else f"{file} cannot be written"


def plot(outcomes: Sequence[Outcome], file: Path, title: str = "") -> None:
    """Draw a curve for each configuration: the median of its runs, and the range of the middle half of them.

    Raises OSError if the file cannot be written.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    figure = Figure(figsize=(_WIDE_IN, _HIGH_IN), layout="constrained")
    axes = figure.add_subplot()
    for config in dict.fromkeys(outcome.config for outcome in outcomes):
        arrived, low, middle, high = quartiles([outcome.shares for outcome in outcomes if outcome.config == config])
        (line,) = axes.plot(arrived, middle, label=config)
        axes.fill_between(arrived, low, high, color=line.get_color(), alpha=0.25, linewidth=0)
    axes.set_xlabel("arrived, % of the cluster's GPU memory")
    axes.set_ylabel("not booked, %")
    if all(len(outcome.shares) > _FULL for outcome in outcomes):
        # Before that, all curves coincide: their differences are too small to see.
        axes.set_xlim(left=_FROM)
        axes.set_ylim(top=_FULL - _FROM + 1)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    if title:
        axes.set_title(title)
    # Without date and random ids, so that the same outcomes give the same file.
    with rc_context({"svg.hashsalt": "gpushare"}):
        figure.savefig(file, dpi=_DOTS, metadata={"Date": None} if file.suffix == ".svg" else None)


def quartiles(
    runs: Sequence[Sequence[float | None]],
) -> tuple[list[int], list[float], list[float], list[float]]:
    """Return (percent arrived; then for the shares not booked there: lower quartile, median, upper quartile)."""
    arrived, low, middle, high = list[int](), list[float](), list[float](), list[float]()
    for percent in range(max(map(len, runs), default=0)):
        free = [_FULL - share for run in runs if percent < len(run) and (share := run[percent]) is not None]
        if free:
            quarters = statistics.quantiles(free, n=4, method="inclusive") if len(free) > 1 else free * 3
            arrived.append(percent)
            low.append(quarters[0])
            middle.append(quarters[1])
            high.append(quarters[2])
    return arrived, low, middle, high
