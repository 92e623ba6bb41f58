"""The tables of docs/metrics.md, from the metrics that both programs declare. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from deviceplugin.report import series as of_the_plugin
from scheduler.metrics import series as of_the_scheduler
from scheduler.process.series import Series, declared

SCHEDULER: Final = declared(of_the_scheduler)
DEVICE_PLUGIN: Final = declared(of_the_plugin)
_CARD: Final = ", ".join(f"`{label.name}`" for label in of_the_plugin.CARD)


def metrics_markdown() -> str:
    """Both tables, and how kube-scheduler's metrics of the same names differ."""
    lines = [
        "## The scheduler",
        "",
        "At `/metrics`, port 10261. Only the active replica exports metrics marked `leader`.",
        "",
        *_table(SCHEDULER, leader=True),
        "",
        "## The device plugin",
        "",
        "At `/metrics`, port 10262, on each node. Names that begin with `DCGM_` are dcgm-exporter's and keep its units",
        "and labels. If dcgm-exporter runs on the same nodes, set `dcgmMetrics: false` to omit them.",
        f"**card** stands for the labels {_CARD}, each with one value per card.",
        "",
        *_table(DEVICE_PLUGIN, leader=False),
        "",
        "## Differences from kube-scheduler",
        "",
        "Other metrics with shared names have the same meaning.",
        "",
        "| metric | in kube-scheduler |",
        "|---|---|",
        *(f"| `{one.name}` | {one.alike} |" for one in SCHEDULER if one.alike not in {"", of_the_scheduler.SAME}),
    ]
    return "\n".join(lines) + "\n"


def _table(series: Iterable[Series], *, leader: bool) -> Iterator[str]:
    yield "| metric | type | labels: number of values | meaning |"
    yield "|---|---|---|---|"
    for one in series:
        kind = ", ".join(filter(None, (one.kind, one.in_unit, "leader" if leader and one.of_leader else "")))
        yield f"| `{one.name}` | {kind} | {_labels(one)} | {_escaped(one.says)} |"


def _labels(one: Series) -> str:
    of_card = one.labels[: len(of_the_plugin.CARD)] == of_the_plugin.CARD
    others = one.labels[len(of_the_plugin.CARD) :] if of_card else one.labels
    return "; ".join((*(["**card**"] if of_card else []), *(f"`{label.name}`: {label.bound}" for label in others)))


def _escaped(text: str) -> str:
    return text.replace("|", r"\|").replace("_", r"\_")
