"""The OpenB trace as files that `simulate` reads: `python -m e2e.packing.convert OPENB OUT --help`."""

import argparse
import csv
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from config.clusterfile.arrivals import Arrival, write_arrivals
from e2e.packing.openb import UNITS, WORKLOADS, Node, Pod, asked_by, nodes_of, orders_of, pods_of

# Of a card in a cluster file, so that it has UNITS units of the default size.
_CARD_MIB: Final = UNITS * 1024
# Published nodes take so many pods.
_MOST_PODS: Final = 1001
ASKED: Final = "workload.csv"


def main() -> None:
    """Convert what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("openb", type=Path, help="the folder with the trace")
    parser.add_argument("out", type=Path, help="where each workload gets a folder")
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS, help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--durations", action="store_true", help="pods come and go, after their times in the trace")
    parser.add_argument("--longest", type=float, metavar="S", help="with --durations: no pod runs for longer")
    parser.add_argument(
        "--load", type=float, metavar="F", help="with --durations: pods drawn at random ask F times the cluster"
    )
    parser.add_argument("--pods", type=int, default=30_000, metavar="N", help="with --load: how many are drawn")
    asked = parser.parse_args()
    for workload in asked.workloads:
        out = asked.out / workload
        if asked.durations:
            convert_with_durations(
                asked.openb, workload, out, longest_s=asked.longest, load=asked.load, draws=asked.pods
            )
        else:
            convert(asked.openb, workload, out)


def convert(openb: Path, workload: str, out: Path) -> list[int]:
    """The published runs: for each seed a cluster file and the arrivals; and what the pods ask. Returns the seeds."""
    nodes, pods = nodes_of(openb), pods_of(openb, workload)
    by_number = {pod.number: pod for pod in pods}
    out.mkdir(parents=True, exist_ok=True)
    _write_asked(out / ASKED, pods)
    orders = orders_of(openb, workload)
    for order in orders:
        (out / f"nodes-{order.seed}.yaml").write_text(cluster_file(nodes, order.ranks), encoding="utf-8")
        coming = _in_turn([by_number[number] for number in order.pods])
        write_arrivals(out / f"arrivals-{order.seed}.csv.gz", coming)
    return [order.seed for order in orders]


def convert_with_durations(
    openb: Path, workload: str, out: Path, *, longest_s: float | None, load: float | None, draws: int
) -> list[int]:
    """As `convert`, with pods that go: at their own times, or drawn at random at a load. Returns the seeds."""
    nodes, pods = nodes_of(openb), pods_of(openb, workload)
    if any(pod.created_s is None for pod in pods):
        message = f"{workload}: the list of pods has no times"
        raise SystemExit(message)
    out.mkdir(parents=True, exist_ok=True)
    _write_asked(out / ASKED, pods)
    orders = orders_of(openb, workload)
    units = UNITS * sum(node.cards for node in nodes)
    for order in orders:
        (out / f"nodes-{order.seed}.yaml").write_text(cluster_file(nodes, order.ranks), encoding="utf-8")
        timed = (
            _at_their_times(pods, longest_s)
            if load is None
            else drawn(pods, load * units, draws, longest_s=longest_s, seed=order.seed)
        )
        write_arrivals(out / f"arrivals-{order.seed}.csv.gz", timed)
    return [order.seed for order in orders]


def cluster_file(nodes: Sequence[Node], ranks: Sequence[int]) -> str:
    """The nodes, named so that the one of the lower rank wins ties, as names decide them."""
    lines = ["nodes:"]
    for node, rank in sorted(zip(nodes, ranks, strict=True), key=lambda both: both[1]):
        offered = f"{{cpu: {node.cpu_milli}m, memory: {node.memory_mib}Mi, pods: {_MOST_PODS}}}"
        cards = f"[{{model: {node.model}, memoryMiB: {_CARD_MIB}, count: {node.cards}}}]"
        lines.append(f"- {{name: {rank:04d}-{node.name}, allocatable: {offered}, cards: {cards}}}")
    return "\n".join(lines) + "\n"


def drawn(pods: Sequence[Pod], units: float, draws: int, *, longest_s: float | None, seed: int) -> Iterator[Arrival]:
    """Pods drawn with replacement, at times between which nothing is certain but their mean.

    units: that the pods which run would hold on average, if every one found a place.
    """
    chance = random.Random(seed)  # noqa: S311 - the same draws for the same seed
    unit_seconds = sum(pod.ask.units_per_card * pod.ask.cards * _runs_s(pod, longest_s) for pod in pods) / len(pods)
    at_s = 0.0
    for number in range(draws):
        at_s += chance.expovariate(units / unit_seconds)
        pod = chance.choice(pods)
        yield Arrival(f"{pod.name}-{number}", round(at_s, 3), _runs_s(pod, longest_s), pod.ask)


def _in_turn(pods: Iterable[Pod]) -> Iterator[Arrival]:
    """One a second, for ever. A pod that is drawn again gets another name."""
    for number, pod in enumerate(pods):
        yield Arrival(f"{pod.name}-{number}", float(number), None, pod.ask)


def _at_their_times(pods: Iterable[Pod], longest_s: float | None) -> Iterator[Arrival]:
    for pod in sorted(pods, key=lambda pod: pod.created_s or 0.0):
        yield Arrival(pod.name, pod.created_s or 0.0, _runs_s(pod, longest_s), pod.ask)


def _runs_s(pod: Pod, longest_s: float | None) -> float:
    runs_s = max(1.0, (pod.deleted_s or 0.0) - (pod.created_s or 0.0))
    return runs_s if longest_s is None else min(runs_s, longest_s)


def _write_asked(file: Path, pods: Sequence[Pod]) -> None:
    with file.open("w", encoding="utf-8", newline="") as text:
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(("cpu_milli", "units_per_card", "cards", "models", "pods"))
        for ask, count in asked_by(pods):
            lines.writerow((ask.cpu_milli, ask.units_per_card, ask.cards, "|".join(ask.models), count))


if __name__ == "__main__":
    main()
