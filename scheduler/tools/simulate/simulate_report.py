"""`gpushare-scheduler simulate`: the report on one run, as tables."""

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.table import Table

from config.clusterfile.reading import left_out
from scheduler.tools.cli.console import print_parts, table
from scheduler.tools.simulate.report import ModelUse, PlacedPod, Report, Summary, summary
from scheduler.tools.simulate.usage import CardUse


def print_tables(report: Report, took_s: float, out: TextIO) -> None:
    """Print the report as tables: in color and as wide as the terminal, or plain if `out` is not a terminal."""
    parts = [_cards(report), _placed(report), _waiting(report), *([_rejected(report)] if report.rejected else ())]
    print_parts(parts, _closing_lines(report, took_s), out)


def print_summary(report: Report, took_s: float, out: TextIO) -> None:
    """Print the summary of the report on one screen, in the same form."""
    found = summary(report)
    print_parts((_reasons(found), _models(found.models)), (*_in_numbers(found), *_remarks(report, took_s)), out)


def _cards(report: Report) -> Table | str:
    """Return the cards that were in use at some time, or are not healthy."""
    shown = [card for card in report.cards if card.peak or card.health != "healthy"]
    if not shown:
        return "No card was ever used."
    rows = [
        (c.node, str(c.index), c.model or "-", c.health, str(c.units), str(c.used), str(c.peak), f"{_share(c):.0%}")
        for c in shown
    ]
    return table(("NODE", "CARD", "MODEL", "HEALTH", "UNITS", "USED", "PEAK", "AVERAGE"), rows, right=(4, 5, 6, 7))


def _share(card: CardUse) -> float:
    return card.average / card.units if card.units else 0.0


def _placed(report: Report) -> Table | str:
    if not report.placed:
        return "No pod was placed."
    rows = [
        (p.pod, p.node, _where(p), f"{p.bound_s:g}s", f"{p.wait_s:g}s", f"{p.ended_s:g}s {p.ended}" if p.ended else "")
        for p in report.placed
    ]
    return table(("POD", "NODE", "CARD:UNITS", "BOUND", "WAITED", "ENDED"), rows, right=(3, 4))


def _where(placed: PlacedPod) -> str:
    return " ".join(f"{share.index}:{share.units}" for share in placed.cards) or "-"


def _waiting(report: Report) -> Table | str:
    if not report.waiting:
        return "No pod is waiting."
    rows = [(w.pod, f"{w.since_s:g}s", str(w.attempts), w.reason) for w in report.waiting]
    return table(("WAITING", "SINCE", "ATTEMPTS", "REASON"), rows, right=(1, 2))


def _rejected(report: Report) -> Table:
    rows = [(each.pod, f"{each.since_s:g}s", each.reason) for each in report.rejected]
    return table(("REJECTED", "AT", "REASON"), rows, right=(1,))


def _closing_lines(report: Report, took_s: float) -> Iterable[str]:
    ended = sum(1 for placed in report.placed if placed.ended)
    unused = sum(1 for card in report.cards if not card.peak)
    without = _without(len(report.waiting), len(report.rejected))
    yield (
        f"Pods placed: {len(report.placed)}, ended since: {ended}, {without}. "
        f"Cards: {len(report.cards)}, never used: {unused}."
    )
    yield from _remarks(report, took_s)


def _without(waiting: int, rejected: int) -> str:
    return f"waiting: {waiting}" + (f", rejected: {rejected}" if rejected else "")


def _reasons(found: Summary) -> Table | str:
    if not found.reasons:
        return "No pod is waiting."
    rows = [(str(each.pods), each.reason) for each in found.reasons]
    if found.other_reasons:
        rows.append(("", f"and {found.other_reasons} more reasons"))
    return table(("REJECTED" if found.rejected else "WAITING", "REASON"), rows, right=(0,))


def _models(models: Sequence[ModelUse]) -> Table | str:
    if not models:
        return "There are no cards."
    rows = [
        (m.model or "-", str(m.cards), str(m.never_used), str(m.units), _of(m.used, m.units), _of(m.average, m.units))
        for m in models
    ]
    return table(("MODEL", "CARDS", "NEVER USED", "UNITS", "USED", "AVERAGE"), rows, right=(1, 2, 3, 4, 5))


def _of(units: float, all_units: int) -> str:
    return f"{units / all_units if all_units else 0.0:.0%}"


def _in_numbers(found: Summary) -> Iterable[str]:
    yield (
        f"Pods placed: {found.placed}, ended since: {found.ended}, {_without(found.waiting, found.rejected)}. "
        f"Waited until placed: {found.median_wait_s:g} s at the median, {found.longest_wait_s:g} s at most."
    )
    if found.models:
        part = f"{found.fragmented:.0f} ({found.fragmented / found.free if found.free else 0.0:.0%})"
        yield f"Units free when the last pod had arrived: {found.free}; typical pods cannot use {part}."


def _remarks(report: Report, took_s: float) -> Iterable[str]:
    if report.by_others:
        yield f"Pods bound by others: {report.by_others}."
    for problem in report.problems:
        yield f"Problem: {problem}"
    if line := left_out(report.ignored):
        yield line
    yield (
        f"Simulated time: {report.end_s:g} s. Decisions: {report.decisions} in {took_s:.2f} s"
        f" ({report.decisions / took_s:,.0f}/s)."
    )
