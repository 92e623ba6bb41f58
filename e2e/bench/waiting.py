"""What it costs that many pods wait: the engine alone, then the service on a cluster in memory.

python -m e2e.bench.waiting              5,000 nodes, 50,000 pods of 500 templates, into docs/benchmarks.md
python -m e2e.bench.waiting --quick      a tenth of that, printed only
"""

import argparse
import asyncio
import logging
import sys
from typing import Final

import structlog
from rich.console import Console
from rich.table import Table

from e2e.bench import document, waiting_engine, waiting_service
from e2e.bench.waiting_engine import EngineFigures
from e2e.bench.waiting_service import ServiceFigures

_NODES: Final = 5000
_WAITING: Final = 50_000
_ENDS: Final = 1000
_TITLE: Final = "While many pods wait"
_EXPLANATION: Final = """\
{nodes:,} full nodes; {waiting:,} pods of {templates} templates wait, one pod after the other ends, and each place is
taken by one that waits. The engine alone, through its event handlers; then the whole service with 100 pods that end
each second, on a cluster in memory that runs in the same process and is part of its figures. Times are of the
processor.
"""


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write it where asked. Exit code: 1 when a figure is missed."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.waiting", description="Measure what waiting pods cost.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, printed only")
    quick = parser.parse_args(arguments).quick
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    size = (_NODES // 10, _WAITING // 10, _ENDS // 10) if quick else (_NODES, _WAITING, _ENDS)
    engine = waiting_engine.measure(*size)
    service = asyncio.run(waiting_service.measure(*size))
    rows = _rows(engine, service)
    table = Table("figure", "measured", "must reach", title=_TITLE)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    if not quick:
        body = "\n".join(
            ("| figure | measured | must reach |", "|---|---:|---|", *(f"| {' | '.join(r)} |" for r in rows))
        )
        explained = _EXPLANATION.format(nodes=size[0], waiting=size[1], templates=waiting_engine.TEMPLATES)
        section = f"## {_TITLE}\n\n{explained}\n{body}\n\n{document.today()}. {document.description()}."
        path = document.PATH
        path.write_text(document.with_section(path.read_text() if path.exists() else "", "waiting", section))
    return 0


def _rows(engine: EngineFigures, service: ServiceFigures) -> list[tuple[str, str, str]]:
    return [
        _row("engine: CPU per pod that ends", engine.cpu_ms, 1.0, "ms"),
        _row("engine: attempts per place that came free", engine.attempts, 1.2, ""),
        _row("engine: longest single step", engine.longest_ms, 20.0, "ms"),
        _row("engine: a heartbeat without news", engine.heartbeat_us, 50.0, "µs"),
        _row("engine: questions after 1,000 such heartbeats", engine.asked_by_heartbeats, 0.0, ""),
        _row("service: attempts per bind", service.attempts, 1.2, ""),
        _row("service: requests that write, per attempt", service.writes, 2.0, ""),
        _row("service: longest hold of the event loop", service.longest_hold_ms, 20.0, "ms"),
        ("service: CPU per pod that ends, cluster in memory included", f"{service.cpu_ms:.2f} ms", ""),
    ]


def _row(name: str, measured: float, most: float, unit: str) -> tuple[str, str, str]:
    said = "reached" if measured <= most else "**missed**"
    return name, f"{measured:,.2f} {unit}".strip(), f"≤ {most:g} {unit}".strip() + f", {said}"


if __name__ == "__main__":
    sys.exit(main())
