"""A trace in the form of OpenB, made up: small enough to be worked out by hand."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

# Each node is (CPU, cards, model), each pod (CPU, cards, units of each, models).
TWO_NODES: Final = ((2000, 1, "A"), (5000, 2, "B"))
HALF: Final = (1500, 1, 500, "")
WHOLE: Final = (2000, 1, 1000, "")


def write_trace(
    folder: Path,
    nodes: Sequence[tuple[int, int, str]],
    pods: Sequence[tuple[int, int, int, str]],
    orders: Mapping[int, tuple[str, str]],
    published: Mapping[str, float] | None = None,
) -> Path:
    """The workload `default`. orders: seed -> (numbers of pods, ranks of nodes). published: policy -> each share."""
    lines = [f"node-{number},{cpu},1024,{cards},{model}" for number, (cpu, cards, model) in enumerate(nodes)]
    _write(folder / "openb_node_list_gpu_node.csv", "sn,cpu_milli,memory_mib,gpu,model", lines)
    lines = [
        f"pod-{number:04d},{cpu},16,{cards},{units},{models},{100 * number},{100 * number + 50}"
        for number, (cpu, cards, units, models) in enumerate(pods)
    ]
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time"
    _write(folder / "openb_pod_list_default.csv", head, lines)
    lines = [f"{seed},pods,{numbers}\n{seed},noderank,{ranks}" for seed, (numbers, ranks) in orders.items()]
    text = "\n".join(["seed,kind,sequence", *lines]) + "\n"
    (folder / "arrivals_default.csv.gz").write_bytes(gzip.compress(text.encode()))
    percents = ",".join(map(str, range(131)))
    lines = [
        f"openb_pod_list_default,01-{policy},1.3,{seed},3,{','.join([str(share)] * 131)}"
        for policy, share in (published or {}).items()
        for seed in orders
    ]
    _write(folder / "published_allo.csv", f"workload,sc_policy,tune,seed,total_gpus,{percents}", lines)
    return folder


def _write(file: Path, head: str, lines: Sequence[str]) -> None:
    file.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
