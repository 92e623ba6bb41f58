"""Race ours against kube-scheduler on real API servers.

    python -m e2e.bench                                    the standard sizes, into docs/benchmarks.md
    python -m e2e.bench --nodes 200 --pods 500 --runs 1    one size of your own, printed only

Each run has a fresh etcd and kube-apiserver; the schedulers take turns. Exit codes: 0 measured,
whatever the figures; 1 a run did not end, or its result is wrong.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from e2e.bench import document, race, report
from e2e.bench.contenders import CONTENDERS
from e2e.bench.race import Run
from e2e.bench.report import Goals
from e2e.bench.workload import Size
from e2e.control_plane import binaries
from e2e.control_plane.processes import Died

STANDARD: Final[dict[Size, Goals]] = {
    Size(nodes=1000, pods=5000, templates=1): Goals(rate_at_least=2.5, cpu_at_most=0.35),
    Size(nodes=1000, pods=5000, templates=50): Goals(rate_at_least=2.5, cpu_at_most=0.35),
    Size(nodes=5000, pods=5000, templates=1): Goals(rate_at_least=3.5, cpu_at_most=0.35),
}

_INTRODUCTION: Final = """\
# Benchmarks

Measured, not promised: `make bench` rewrites these tables. Rates on another machine, or on a busy one, differ by a
factor of two and more; the ratios of schedulers that took turns on the same machine hold.
"""

_RULES: Final = """\
## Scheduling a backlog, beside kube-scheduler

A backlog of pods waits on a fresh kube-apiserver and etcd (no fsync, no priority and fairness, no compaction); then one
scheduler is started. The pods look like those of Deployments: owner, labels, two containers, a projected token volume,
tolerations. Rate: from the first pod that a separate watch sees with a node to the last. CPU: user and system time of
the scheduler's process, from its start to the last `Scheduled` event. Both write events and conditions as shipped.
kube-scheduler has its client limits lifted; the rest is as shipped, all its plugins too, so it looks at a part of
the nodes only, and it counts card memory per node and knows no cards. Medians of runs in turn (minimum - maximum).
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the races that were asked for, print their tables, write them where asked."""
    chosen = _parser().parse_args(arguments)
    sizes = _sizes(chosen)
    output: Path | None = chosen.output or (None if chosen.nodes else document.PATH)
    binaries.ensure(["etcd", "kube-apiserver", "kube-scheduler"])
    wrong: list[str] = []
    for size in sizes:
        try:
            runs = list(_races(size, chosen.schedulers, chosen.runs))
        except (race.RaceStalled, Died) as failure:
            _tell(f"{report.title(size)}: {failure}")
            return 1
        section = f"### {report.title(size)}\n\n{report.table(runs, STANDARD.get(size))}"
        sys.stdout.write(f"{section}\n\n")
        wrong += [f"{report.title(size)}: {problem}" for run in runs for problem in report.problems(run)]
        if output is not None:
            _write(output, size, f"{section}\n\n{_made_on(chosen.runs)}")
    for problem in wrong:
        _tell(f"WRONG: {problem}")
    return 1 if wrong else 0


def _races(size: Size, schedulers: Sequence[str], times: int) -> Iterator[Run]:
    for number in range(1, times + 1):
        for scheduler in schedulers:
            run = race.run(scheduler, size)
            _tell(f"{report.title(size)}, run {number} of {times}: {report.line(run)}")
            yield run


def _sizes(chosen: argparse.Namespace) -> list[Size]:
    if chosen.nodes is None:
        return list(STANDARD)
    return [Size(chosen.nodes, chosen.pods, chosen.templates)]


def _made_on(runs: int) -> str:
    return f"{runs} runs each, {document.today()}. {document.description()}. {document.versions()}."


def _write(path: Path, size: Size, section: str) -> None:
    text = path.read_text() if path.exists() else _INTRODUCTION
    text = document.with_section(text, "race-rules", _RULES)
    path.write_text(document.with_section(text, f"race-{size.nodes}-{size.pods}-{size.templates}", section))


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench", description="Race schedulers on real API servers.")
    parser.add_argument("--nodes", type=int, help="one size only, with this many nodes (default: the standard sizes)")
    parser.add_argument("--pods", type=int, default=5000, help="with --nodes: pods in the backlog")
    parser.add_argument("--templates", type=int, default=1, help="with --nodes: templates that the pods come from")
    parser.add_argument("--runs", type=int, default=3, help="of each scheduler, for each size")
    parser.add_argument("--schedulers", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--output", type=Path, help="Markdown file to write into (standard sizes: docs/benchmarks.md)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
