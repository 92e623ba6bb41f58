"""What it costs that many pods wait: the engine alone, then the service on a cluster in memory.

python -m e2e.bench.waiting              5,000 nodes, 50,000 pods of 500 templates, into docs/evidence/benchmarks.md
python -m e2e.bench.waiting --quick      a tenth of that, printed only
"""

import argparse
import asyncio
import logging
import sys
from typing import Final

import structlog

from e2e.bench import figures
from e2e.bench.waiting import engine, service
from e2e.bench.waiting.engine import EngineFigures
from e2e.bench.waiting.service import ServiceFigures

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
    rows = _rows(engine.measure(*size), asyncio.run(service.measure(*size)))
    explained = _EXPLANATION.format(nodes=size[0], waiting=size[1], templates=engine.TEMPLATES)
    figures.report("waiting", _TITLE, explained, rows, written=not quick)
    return 0


def _rows(alone: EngineFigures, served: ServiceFigures) -> list[tuple[str, str, str]]:
    return [
        _row("engine: CPU per pod that ends", alone.cpu_ms, 1.0, " ms"),
        _row("engine: attempts per place that came free", alone.attempts, 1.2, ""),
        _row("engine: longest single step", alone.longest_ms, 20.0, " ms"),
        _row("engine: a heartbeat without news", alone.heartbeat_us, 50.0, " µs"),
        _row("engine: questions after 1,000 such heartbeats", alone.asked_by_heartbeats, 0.0, ""),
        _row("service: attempts per bind", served.attempts, 1.2, ""),
        _row("service: requests that write, per attempt", served.writes, 2.0, ""),
        _row("service: longest hold of the event loop", served.longest_hold_ms, 20.0, " ms"),
        ("service: CPU per pod that ends, cluster in memory included", f"{served.cpu_ms:.2f} ms", ""),
    ]


def _row(name: str, measured: float, most: float, unit: str) -> tuple[str, str, str]:
    return name, f"{measured:,.2f}{unit}", figures.at_most(measured, most, unit)


if __name__ == "__main__":
    sys.exit(main())
