"""How long the event loop is held at a time while a backlog is bound.

python -m e2e.bench.holds                             1,000 and 5,000 nodes, into docs/benchmarks.md
python -m e2e.bench.holds --nodes 200 --pods 1000     a size of your own, printed only
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from e2e.bench import figures, probed, race
from e2e.bench.contenders import OURS, start_ours
from e2e.bench.rows import Row
from e2e.bench.workload import Size
from e2e.control_plane import binaries

_SIZES: Final = tuple(Size(nodes, 5000, templates) for nodes in (1000, 5000) for templates in (1, 50))
_TITLE: Final = "How long the event loop is held"
_EXPLANATION: Final = """\
The backlogs of the races, bound by the scheduler with a probe in its event loop: a timer of 1 ms notes the CPU that the
loop's thread has used since it was last called, so that other processes that have the core do not count. From the first
turn of the loop, the lists of nodes and pods among them; one run each.
"""


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.holds", description="How long the event loop is held.")
    parser.add_argument("--nodes", type=int, help="a size of your own, printed only")
    parser.add_argument("--pods", type=int, default=5000, help="with --nodes")
    chosen = parser.parse_args(arguments)
    binaries.ensure(["etcd", "kube-apiserver"])
    sizes = (Size(chosen.nodes, chosen.pods, 1),) if chosen.nodes else _SIZES
    measured = [measure(size) for size in sizes]
    figures.show(_TITLE, figures.MUST_REACH, measured)
    if chosen.nodes is None:
        figures.write("holds", _TITLE, _EXPLANATION, figures.MUST_REACH, measured)
    return 0


def measure(size: Size) -> tuple[str, str, str]:
    """One backlog, as a row. Raises RaceStalled."""
    row = Row(size=size)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "holds.json"
        race.run(OURS, row, lambda cluster: start_ours(cluster, holds=written))
        return probed.read(written).row(row.title)


if __name__ == "__main__":
    sys.exit(main())
