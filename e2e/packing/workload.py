"""What the pods of a workload ask, and how many ask it: what FGD measures fragmentation against."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Of the pods: rarer asks are left out.
_KEPT: Final = 0.95


@dataclass(frozen=True, slots=True)
class Workload:
    """The most frequent asks, in order. Columns of shape [asks, 1]: to be laid against [nodes].

    share: of the pods, all together 1. models: of each ask; () for any.
    """

    share: NDArray[np.float64]
    cpu_milli: NDArray[np.int64]
    units: NDArray[np.int64]
    cards: NDArray[np.int64]
    models: Sequence[tuple[str, ...]]


def read(file: Path) -> Workload:
    """A CSV file with the columns cpu_milli, units_per_card, cards, models and pods, the most frequent ask first."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    wanted, kept, pods = _KEPT * sum(int(row["pods"]) for row in rows), [], 0
    for row in rows:
        kept.append(row)
        pods += int(row["pods"])
        if pods >= wanted:
            break

    def column(name: str) -> NDArray[np.int64]:
        return np.array([[int(row[name])] for row in kept], dtype=np.int64).reshape(-1, 1)

    models = [tuple(model for model in row["models"].split("|") if model) for row in kept]
    share = column("pods") / max(pods, 1)
    return Workload(share, column("cpu_milli"), column("units_per_card"), column("cards"), models)
