"""The comparison of docs/evidence/packing.md: `make packing OPENB=…`, or `python -m e2e.packing --help`.

Each workload is converted and simulated with each configuration for each seed; tables, JSON and plots are in OUT.
"""

import argparse
import io
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from config.settings.mistakes import ConfigurationError
from e2e.packing.convert import convert, convert_with_durations
from e2e.packing.openb import WORKLOADS, published
from scheduler.core.build import ENTRY_POINTS
from scheduler.tools.simulate.comparison import Outcome, as_json, print_comparison, progress
from scheduler.tools.simulate.plot import NoPlot, check_plot, plot
from scheduler.tools.simulate.simulate import Config, Job, Run, outcomes

_RULES: Final = ("PackingBestFit", "PackingFgd")


def offer_rules(folder: Path) -> None:
    """Make the rules known to this process and to those that it starts. folder: for what describes the package."""
    described = folder / "packing_rules-1.dist-info"
    described.mkdir(parents=True, exist_ok=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: packing-rules\nVersion: 1\n", encoding="utf-8")
    points = "".join(f"{name} = e2e.packing.rules:{name}\n" for name in _RULES)
    (described / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{points}", encoding="utf-8")
    sys.path.append(str(folder.resolve()))


_HERE: Final = Path(__file__).parent
_CONFIGS: Final = ("default=", *(f"{name}={_HERE / name}.yaml" for name in ("bestfit", "fgd", "fragmentation")))
# Published policies, by the names of our configurations.
_PUBLISHED: Final = {"bestfit": "BestFit", "fgd": "FGD"}
# Percent of the cluster by which a share may miss the published one, which is rounded to two places.
_MAY_MISS: Final = 0.02


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare what the command line says; 1 where a published row is missed."""
    asked = _asked(arguments)
    offer_rules(asked.out / "rules")
    missed = []
    for workload in asked.workloads:
        found = compare(asked, workload)
        told = written(found, workload, asked.out)
        if asked.load is None:
            told += [_against_published(found, published(asked.openb, workload, of), of) for of in _PUBLISHED.values()]
        sys.stdout.write("\n".join([f"== {workload}", *told]) + "\n")
        missed += [line for line in told if line.startswith("MISSED")]
    return 1 if missed else 0


def compare(asked: argparse.Namespace, workload: str) -> list[Outcome]:
    """The outcomes of one workload."""
    folder: Path = asked.out / workload
    runs = [
        Run(
            files=(folder / f"nodes-{seed}.yaml",),
            arrivals=folder / f"arrivals-{seed}.csv.gz",
            rejects=True,
            label=str(seed),
        )
        for seed in _converted(asked, workload, folder)[: asked.seeds]
    ]
    jobs = [Job(config, run) for config in (_config(text, folder) for text in asked.config) for run in runs]
    with progress(len(jobs), sys.stderr) as told:
        return outcomes(jobs, asked.processes, told)


def _converted(asked: argparse.Namespace, workload: str, folder: Path) -> list[int]:
    """The seeds for which there are files now."""
    if asked.load is None:
        return convert(asked.openb, workload, folder)
    return convert_with_durations(
        asked.openb, workload, folder, longest_s=asked.longest, load=asked.load, draws=asked.pods
    )


def written(found: Sequence[Outcome], workload: str, out: Path) -> list[str]:
    """Table, JSON and plots in `out`; returns the lines of the table."""
    text = io.StringIO()
    print_comparison(found, rejects=True, out=text)
    (out / f"{workload}.txt").write_text(text.getvalue(), encoding="utf-8")
    (out / f"{workload}.json").write_text(as_json(found), encoding="utf-8")
    for suffix in (".png", ".svg"):
        plot(found, out / f"{workload}{suffix}", workload)
    return [text.getvalue()]


def _against_published(found: Sequence[Outcome], rows: dict[int, tuple[float, ...]], policy: str) -> str:
    """How far our shares at 100 % arrived are from the published ones."""
    own = {int(each.run): each.at_100 for each in found if _PUBLISHED.get(each.config) == policy}
    if not own:
        return f"{policy}: not among the configurations"
    misses = {seed: (share or 0.0) - rows[seed][100] for seed, share in own.items()}
    mean = abs(statistics.mean(misses.values()))
    worst = max(misses, key=lambda seed: abs(misses[seed]))
    line = (
        f"{policy}, {len(own)} seeds: {mean:.3f} points from the published mean, at most {abs(misses[worst]):.3f} "
        f"from a published share (seed {worst})"
    )
    return line if mean <= _MAY_MISS else f"MISSED {line}; expected a mean within {_MAY_MISS}"


def _config(text: str, folder: Path) -> Config:
    """`NAME=FILE`; a file that names WORKLOAD is written anew for the workload."""
    name, _, file = text.partition("=")
    if not file:
        return Config(name)
    written_for = Path(file).read_text(encoding="utf-8")
    if "WORKLOAD" not in written_for:
        return Config(name, Path(file))
    own = folder / f"{name}.yaml"
    own.write_text(written_for.replace("WORKLOAD", str(folder)), encoding="utf-8")
    return Config(name, own)


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.packing", description=__doc__)
    parser.add_argument("openb", type=Path, help="the folder with the trace (docs/evidence/packing.md)")
    parser.add_argument("--out", type=Path, default=Path("build/packing"), help="default: build/packing")
    parser.add_argument(
        "--config", action="append", metavar="NAME=FILE", help="default: default, bestfit, fgd, fragmentation"
    )
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS, help=f"default: {', '.join(WORKLOADS)}")
    parser.add_argument("--seeds", type=int, default=10, help="how many of the ten runs")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="default: one on each core")
    parser.add_argument("--load", type=float, metavar="F", help="pods that go: as of python -m e2e.packing.convert")
    parser.add_argument("--longest", type=float, metavar="S", help="as there")
    parser.add_argument("--pods", type=int, default=30_000, metavar="N", help="as there; default: 30000")
    asked = parser.parse_args(arguments)
    asked.config = asked.config or list(_CONFIGS)
    asked.out.mkdir(parents=True, exist_ok=True)
    try:
        check_plot(asked.out / "plot.png")
    except NoPlot as error:
        parser.error(str(error))
    return asked


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ConfigurationError as error:
        sys.exit(str(error))
