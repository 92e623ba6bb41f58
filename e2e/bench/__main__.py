"""Race ours against kube-scheduler on real API servers.

    python -m e2e.bench                                    every row, into docs/evidence/benchmarks.md
    python -m e2e.bench --row spread claims                some of them
    python -m e2e.bench --nodes 200 --pods 500 --runs 1    one size of your own, printed only; with --row, of that row

Each run has a fresh etcd and kube-apiserver; the schedulers take turns. Exit codes: 0 measured,
whatever the figures; 1 a run did not end, or its result is wrong.
"""

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from e2e.bench import document
from e2e.bench.contenders import CONTENDERS
from e2e.bench.race import race, report
from e2e.bench.race.race import Run
from e2e.bench.race.rows import ROWS, Row
from e2e.bench.workload import Size
from e2e.control_plane import binaries
from e2e.control_plane.processes import Died

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

_RULES_OF_ROWS: Final = """\
## One rule at a time, beside kube-scheduler

Backlogs as above, on 5,000 nodes in three zones; the pods of each Deployment ask one thing more:

- hard topology spread: over the zones, `maxSkew: 1`, `DoNotSchedule`;
- required anti-affinity: no two of a Deployment on one node;
- preferred affinity: a zone (node affinity), the zone where the others are (pod affinity), and nodes where none is (pod
  anti-affinity). In our scores, cards that are in use already count more: pods that end in another zone are counted,
  and are no error;
- bound claims: a volume of a CSI driver for each pod, which nodes of one zone reach; a node attaches 24 at most.

Preemption: every card of every node is full of one pod of priority 0. When the scheduler has bound a first pod, which
asks for no card, 500 pods of a higher priority come that need one card each. Rate: from the creation of the first of
them to the node of the last. No kubelet runs: the benchmark deletes each pod for good as soon as it sees that it is
being deleted, for both schedulers alike. Pods that are evicted beyond one for each that comes are counted.

After each run nodes and pods are read from the API server, and besides what is on nodes and cards the row's own rule is
checked.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the races that were asked for, print their tables, write them where asked."""
    chosen = _parser().parse_args(arguments)
    output: Path | None = chosen.output or (None if chosen.nodes else document.PATH)
    binaries.ensure(["etcd", "kube-apiserver", "kube-scheduler"])
    wrong: list[str] = []
    for key, row in _rows(chosen).items():
        try:
            runs = list(_races(row, chosen.schedulers, chosen.runs))
        except (race.RaceStalled, Died) as failure:
            # Its table stays as it was; the other rows are measured all the same.
            wrong.append(f"{row.title}: {failure}")
            continue
        section = f"### {row.title}\n\n{report.table(runs, row.goals)}"
        sys.stdout.write(f"{section}\n\n")
        wrong += [f"{row.title}: {problem}" for run in runs for problem in report.problems(run)]
        if output is not None:
            _write(output, key, f"{section}\n\n{_made_on(chosen.runs)}")
    for problem in wrong:
        document.tell(f"WRONG: {problem}")
    return 1 if wrong else 0


def _races(row: Row, schedulers: Sequence[str], times: int) -> Iterator[Run]:
    for number in range(1, times + 1):
        for scheduler in schedulers:
            run = race.run(scheduler, row)
            document.tell(f"{row.title}, run {number} of {times}: {report.line(run)}")
            yield run


def _rows(chosen: argparse.Namespace) -> dict[str, Row]:
    """Those that were asked for, by key. Of a size of one's own, no goals are asked."""
    if chosen.nodes is None:
        return {key: ROWS[key] for key in chosen.row or ROWS}
    size = Size(chosen.nodes, chosen.pods, chosen.templates)
    if not chosen.row:
        return {f"{size.nodes}-{size.pods}-{size.templates}": Row(size=size)}
    return {key: dataclasses.replace(ROWS[key], size=size, goals=None) for key in chosen.row}


def _made_on(runs: int) -> str:
    return f"{runs} runs each, {document.today()}. {document.description()}. {document.versions()}."


def _write(path: Path, key: str, section: str) -> None:
    text = path.read_text() if path.exists() else _INTRODUCTION
    text = document.with_section(text, "race-rules", _RULES)
    text = document.with_section(text, "race-rows", _RULES_OF_ROWS)
    path.write_text(document.with_section(text, f"race-{key}", section))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench", description="Race schedulers on real API servers.")
    parser.add_argument("--row", nargs="+", choices=ROWS, help="of the standard rows these only")
    parser.add_argument("--nodes", type=int, help="a size of your own, with this many nodes")
    parser.add_argument("--pods", type=int, default=5000, help="with --nodes: pods in the backlog")
    parser.add_argument("--templates", type=int, default=1, help="with --nodes: templates that the pods come from")
    parser.add_argument("--runs", type=int, default=3, help="of each scheduler, for each row")
    parser.add_argument("--schedulers", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument(
        "--output", type=Path, help="Markdown file to write into (standard rows: docs/evidence/benchmarks.md)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
