"""`gpushare-scheduler simulate`: a cluster file, the engine at full speed, and the report."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

import msgspec
from rich.console import Console
from rich.table import Table

from config.clusterfile.reading import read
from config.settings.scheduler import SchedulerConfiguration
from scheduler.build import build_engine, installed_plugins, resource_names
from scheduler.simulation.replay import replay
from scheduler.simulation.report import Placed, Report
from scheduler.simulation.summary import ModelUse, Summary, summary
from scheduler.simulation.usage import CardUse

_NO_WRAPPING = 100_000  # columns: programs at the other end of a pipe cut lines themselves


def simulate(files: Sequence[Path], configuration: SchedulerConfiguration) -> tuple[Report, float]:
    """The report on the files, and how many seconds it took.

    Raises ConfigurationError with every mistake in all of them.
    """
    cluster = read(*files)
    built, resources = build_engine(configuration, installed_plugins()), resource_names(configuration)
    began_s = time.perf_counter()
    report = replay(cluster, built, resources=resources, unit_mib=configuration.memory_unit_mib)
    return report, time.perf_counter() - began_s


def as_json(report: Report) -> str:
    """The report for programs; the same files always give the same text."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def print_tables(report: Report, took_s: float, out: TextIO) -> None:
    """The report as tables: in colour and as wide as the terminal, or plain when `out` is none."""
    _print((_cards(report), _placed(report), _waiting(report)), _closing_lines(report, took_s), out)


def print_summary(report: Report, took_s: float, out: TextIO) -> None:
    """What the report comes to, in one screen, in the same form."""
    found = summary(report)
    _print((_reasons(found), _models(found.models)), (*_in_numbers(found), *_remarks(report, took_s)), out)


def _print(parts: Iterable[Table | str], closing: Iterable[str], out: TextIO) -> None:
    console = Console(file=out, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(file=out, highlight=False, width=_NO_WRAPPING)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
            console.print()
        for line in closing:
            console.print(line, markup=False)
    out.write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


def _cards(report: Report) -> Table | str:
    """Cards that were in use at some time, or are not healthy."""
    shown = [card for card in report.cards if card.peak or card.health != "healthy"]
    if not shown:
        return "No card was ever used."
    rows = [
        (c.node, str(c.index), c.model or "-", c.health, str(c.units), str(c.used), str(c.peak), f"{_share(c):.0%}")
        for c in shown
    ]
    return _table(("NODE", "CARD", "MODEL", "HEALTH", "UNITS", "USED", "PEAK", "AVERAGE"), rows, right=(4, 5, 6, 7))


def _share(card: CardUse) -> float:
    return card.average / card.units if card.units else 0.0


def _placed(report: Report) -> Table | str:
    if not report.placed:
        return "No pod was placed."
    rows = [
        (p.pod, p.node, _where(p), f"{p.bound_s:g}s", f"{p.wait_s:g}s", f"{p.ended_s:g}s {p.ended}" if p.ended else "")
        for p in report.placed
    ]
    return _table(("POD", "NODE", "CARD:UNITS", "BOUND", "WAITED", "ENDED"), rows, right=(3, 4))


def _where(placed: Placed) -> str:
    return " ".join(f"{share.index}:{share.units}" for share in placed.cards) or "-"


def _waiting(report: Report) -> Table | str:
    if not report.waiting:
        return "No pod is waiting."
    rows = [(w.pod, f"{w.since_s:g}s", str(w.attempts), w.reason) for w in report.waiting]
    return _table(("WAITING", "SINCE", "ATTEMPTS", "REASON"), rows, right=(1, 2))


def _closing_lines(report: Report, took_s: float) -> Iterable[str]:
    ended = sum(1 for placed in report.placed if placed.ended)
    unused = sum(1 for card in report.cards if not card.peak)
    yield (
        f"Pods placed: {len(report.placed)}, ended since: {ended}, waiting: {len(report.waiting)}. "
        f"Cards: {len(report.cards)}, never used: {unused}."
    )
    yield from _remarks(report, took_s)


def _reasons(found: Summary) -> Table | str:
    if not found.reasons:
        return "No pod is waiting."
    rows = [(str(each.pods), each.reason) for each in found.reasons]
    if found.other_reasons:
        rows.append(("", f"and {found.other_reasons} more reasons"))
    return _table(("WAITING", "REASON"), rows, right=(0,))


def _models(models: Sequence[ModelUse]) -> Table | str:
    if not models:
        return "There are no cards."
    rows = [
        (m.model or "-", str(m.cards), str(m.never_used), str(m.units), _of(m.used, m.units), _of(m.average, m.units))
        for m in models
    ]
    return _table(("MODEL", "CARDS", "NEVER USED", "UNITS", "USED", "AVERAGE"), rows, right=(1, 2, 3, 4, 5))


def _of(units: float, all_units: int) -> str:
    return f"{units / all_units if all_units else 0.0:.0%}"


def _in_numbers(found: Summary) -> Iterable[str]:
    yield (
        f"Pods placed: {found.placed}, ended since: {found.ended}, waiting: {found.waiting}. "
        f"Waited until placed: {found.median_wait_s:g} s at the median, {found.longest_wait_s:g} s at most."
    )


def _remarks(report: Report, took_s: float) -> Iterable[str]:
    if report.by_others:
        yield f"Pods bound by others: {report.by_others}."
    for problem in report.problems:
        yield f"Problem: {problem}"
    if report.ignored:
        yield f"Ignored: {', '.join(report.ignored)}"
    yield (
        f"Simulated time: {report.end_s:g} s. Decisions: {report.decisions} in {took_s:.2f} s"
        f" ({report.decisions / took_s:,.0f}/s)."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, title in enumerate(head):
        table.add_column(title, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    return table
