"""The device plugin: how fast it answers the kubelet, and what it needs.

    python -m e2e.bench.plugin              the standard sizes, into docs/evidence/benchmarks.md (3 minutes)
    python -m e2e.bench.plugin --quick      20 pods, printed only

Exit codes: 0 measured, whatever the figures; 1 it could not be, or a container has not got its card.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deviceplugin.cdi.mode import Mode
from e2e.bench import document
from e2e.bench.plugin import report
from e2e.bench.plugin.pods import CARDS
from e2e.bench.plugin.site import BenchNode, PluginRun, measure, node_with_pods
from e2e.control_plane import binaries
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Died
from e2e.control_plane.readiness import NotReady

_SIZES: Final = (500, 110)
_WAITING: Final = 15
_MODES: Final[tuple[tuple[Mode, int], ...]] = (("cdi", 1), ("environment", 1), ("environment", _WAITING))
_IDLE_S: Final = 60.0
_QUICK_SIZES: Final = (20,)
_QUICK_IDLE_S: Final = 5.0

_RULES: Final = """\
## The device plugin

`gpushare-device-plugin run` with simulated cards ({cards}), on a real kube-apiserver that has so many pods bound to its
node: 500, and 110, the most that a kubelet runs by default. A double stands for the kubelet, with PodResources and with
a checkpoint of all pods as the kubelet writes it. Each pod in turn is made one that has just been admitted: its record
is taken away, Allocate and PreStartContainer are called over the plugin's socket, one at a time as the kubelet calls
them, and the record is written in between. Timed at the caller, the double's own answers to the plugin included. What
each container got, by its CDI spec or by the answer of Allocate, is compared with the decision. With {waiting} pods
waiting, so many are bound and not yet admitted, or have no devices yet. Memory and CPU are those of the process with
500 pods, after {idle_s:.0f} s in which nothing changed and nobody asked."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the tables, write them where asked."""
    chosen = _parser().parse_args(arguments)
    sizes, idle_s = (_QUICK_SIZES, _QUICK_IDLE_S) if chosen.quick else (_SIZES, _IDLE_S)
    output: Path | None = chosen.output or (None if chosen.quick else document.PATH)
    try:
        runs = _measured(sizes, idle_s)
    except (Died, NotReady) as failure:
        document.tell(str(failure))
        return 1
    parts = [report.calls_table(runs), report.wrong_line(runs), report.process_table(runs)]
    body = "\n\n".join(parts)
    sys.stdout.write(f"{body}\n\n")
    if output is not None:
        rules = _RULES.format(cards=CARDS, waiting=_WAITING, idle_s=idle_s)
        made_on = f"One run, {document.today()}. {document.description()}. {document.versions()}."
        text = output.read_text(encoding="utf-8") if output.exists() else ""
        section = f"{rules}\n\n{body}\n\n{made_on}"
        output.write_text(document.with_section(text, "device-plugin", section), encoding="utf-8")
    return _judged(runs)


def _measured(sizes: Sequence[int], idle_s: float) -> list[PluginRun]:
    binaries.ensure(["etcd", "kube-apiserver"])
    with ControlPlane(load_tuned=True) as cluster, asyncio.Runner() as runner:
        return runner.run(_each(cluster, sizes, idle_s))


async def _each(cluster: ControlPlane, sizes: Sequence[int], idle_s: float) -> list[PluginRun]:
    async with Admin(cluster.access()) as admin:
        nodes = [await _node(admin, count) for count in sizes]
    runs = []
    for node in nodes:
        for mode, waiting in _MODES:
            folder = cluster.folder / f"{node.name}-{mode}-{waiting}"
            folder.mkdir()
            idle = idle_s if node is nodes[0] and waiting == 1 else None
            runs.append(await measure(cluster.kubeconfig_path(), folder, node, mode, waiting=waiting, idle_s=idle))
            document.tell(report.line(runs[-1]))
    return runs


async def _node(admin: Admin, count: int) -> BenchNode:
    namespace = f"on-node-{count}"
    await admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    return await node_with_pods(admin, count, namespace)


def _judged(runs: list[PluginRun]) -> int:
    wrong = [mismatch for run in runs for mismatch in run.calls.wrong]
    for mismatch in wrong:
        document.tell(f"WRONG: {mismatch}")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.plugin", description="Measure the device plugin.")
    parser.add_argument("--quick", action="store_true", help="20 pods, printed only")
    parser.add_argument(
        "--output", type=Path, help="Markdown file to write into (default: docs/evidence/benchmarks.md)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
