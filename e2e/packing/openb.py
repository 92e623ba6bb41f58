"""Reads the OpenB trace: nodes, pods, and the orders of arrival of the published runs.

The trace is not part of this repository: https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023. A card has
1000 units here, as many as the trace divides it into. Formats: docs/evidence/packing.md.
"""

import csv
import gzip
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from config.clusterfile.arrivals import PodAsk

WORKLOADS: Final = ("default", "cpu100", "gpushare40", "gpuspec20", "multigpu20")
UNITS: Final = 1000
# A pod is named by the last digits of its name in the orders of arrival.
_DIGITS: Final = 4


class Node(NamedTuple):
    """A node of the trace, with `cards` of `model`."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    model: str


class Pod(NamedTuple):
    """A pod of the trace. created_s, deleted_s: seconds of the trace; None where the list has no times."""

    name: str
    ask: PodAsk
    created_s: float | None
    deleted_s: float | None

    @property
    def number(self) -> str:
        """As the orders of arrival name it."""
        return self.name[-_DIGITS:]


@dataclass(frozen=True, slots=True)
class Order:
    """One published run. pods: numbers, some more than once. ranks: of each node by name: the lower wins ties."""

    seed: int
    pods: tuple[str, ...]
    ranks: tuple[int, ...]


def nodes_of(folder: Path) -> list[Node]:
    """The nodes with cards, by name."""
    rows = _rows(folder / "openb_node_list_gpu_node.csv")
    nodes = [
        Node(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"]) for row in rows
    ]
    return sorted(nodes)


def pods_of(folder: Path, workload: str) -> list[Pod]:
    """The pods of a workload, in the order of the list."""
    return [_pod(row) for row in _rows(folder / f"openb_pod_list_{workload}.csv")]


def orders_of(folder: Path, workload: str) -> list[Order]:
    """The published runs of a workload, by seed."""
    found: dict[int, dict[str, Sequence[str]]] = {}
    with gzip.open(folder / f"arrivals_{workload}.csv.gz", "rt", encoding="ascii") as text:
        for line in text.readlines()[1:]:
            seed, kind, sequence = line.split(",", 2)
            found.setdefault(int(seed), {})[kind] = sequence.split()
    return [
        Order(seed, tuple(parts["pods"]), tuple(map(int, parts["noderank"]))) for seed, parts in sorted(found.items())
    ]


def published(folder: Path, workload: str, policy: str) -> dict[int, tuple[float, ...]]:
    """Allocated percent at each percent arrived, by seed, as the authors' simulator printed it. policy: `BestFit`."""
    found = {}
    with (folder / "published_allo.csv").open(encoding="ascii", newline="") as text:
        for row in csv.DictReader(text):
            of = row["workload"].removeprefix("openb_pod_list_"), row["sc_policy"].partition("-")[2]
            if of == (workload, policy):
                shares = [row[str(percent)] for percent in range(131)]
                found[int(row["seed"])] = tuple(float(share) if share else float("nan") for share in shares)
    return found


def asked_by(pods: Sequence[Pod]) -> list[tuple[PodAsk, int]]:
    """What the pods ask, whatever memory and priority, and how many ask it; the most frequent first.

    Of the same number, larger asks come first: CPU, units, cards; then by the names of the models.
    """
    counts = Counter(pod.ask._replace(memory_mib=0) for pod in pods)
    return sorted(counts.items(), key=lambda item: (-item[1], *_largest_first(item[0])))


def _largest_first(ask: PodAsk) -> tuple[int, int, int, str]:
    return -ask.cpu_milli, -ask.units_per_card, -ask.cards, "|".join(ask.models)


def _pod(row: dict[str, str]) -> Pod:
    cards = int(row["num_gpu"])
    models = tuple(model for model in row.get("gpu_spec", "").split("|") if model) if cards else ()
    units = int(row["gpu_milli"]) if cards else 0
    ask = PodAsk(int(row["cpu_milli"]), int(row["memory_mib"]), units, cards, models)
    return Pod(row["name"], ask, _time(row.get("creation_time")), _time(row.get("deletion_time")))


def _time(text: str | None) -> float | None:
    return float(text) if text else None


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))
