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
    """Return both tables, and the comparison with kube-scheduler's metrics of the same names."""
    lines = [
        "## The scheduler",
        "",
        "At `/metrics`, port 10261. Metrics with `leader` are shown by the active replica only: all replicas",
        "would say the same of one cluster.",
        "",
        *_table(SCHEDULER, leader=True),
        "",
        "## The device plugin",
        "",
        "At `/metrics`, port 10262, on each node. Names that begin with `DCGM_` are dcgm-exporter's, with its units",
        "and labels; `dcgmMetrics: false` leaves them out, where dcgm-exporter runs on the same nodes.",
        f"**card** stands for {_CARD}: one value each for every card of the node.",
        "",
        *_table(DEVICE_PLUGIN, leader=False),
        "",
        "## Names that kube-scheduler has too",
        "",
        "| metric | means there |",
        "|---|---|",
        *(f"| `{one.name}` | {one.alike} |" for one in SCHEDULER if one.alike),
    ]
    return "\n".join(lines) + "\n"


def _table(series: Iterable[Series], *, leader: bool) -> Iterator[str]:
    yield "| metric | type, unit | labels, and what bounds them | meaning |"
    yield "|---|---|---|---|"
    for one in series:
        kind = f"{one.kind}, {one.unit}" + (", leader" if leader and one.of_leader else "")
        yield f"| `{one.name}` | {kind} | {_labels(one)} | {_escaped(one.says)} |"


def _labels(one: Series) -> str:
    of_card = one.labels[: len(of_the_plugin.CARD)] == of_the_plugin.CARD
    others = one.labels[len(of_the_plugin.CARD) :] if of_card else one.labels
    return "; ".join((*(["**card**"] if of_card else []), *(f"`{label.name}`: {label.bound}" for label in others)))


def _escaped(text: str) -> str:
    return text.replace("|", r"\|").replace("_", r"\_")
