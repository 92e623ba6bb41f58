"""The schedulers that race, and how each is started."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from config.protocol import names
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child, free_ports, start
from e2e.programs.scheduler_process import NO_PREDECESSOR, command, environment

OURS: Final = "gpushare-scheduler"
YARDSTICK: Final = "kube-scheduler"

Start: TypeAlias = Callable[[ControlPlane], Child]


def start_ours(cluster: ControlPlane, port: int | None = None, holds: Path | None = None) -> Child:
    """Start `gpushare-scheduler run` from this checkout, with its shipped defaults.

    port: of its metrics; None: any. holds: where it writes at its end how long its event loop was held.
    """
    port = port or free_ports(1)[0]
    line = [*command(cluster.kubeconfig_path(), cluster.folder, NO_PREDECESSOR), "--listen", f"127.0.0.1:{port}"]
    if holds is not None:
        # In place of `python -m scheduler.main`.
        line = [sys.executable, "-m", "e2e.bench.probed", str(holds), *line[3:]]
    return start(OURS, line, cluster.folder / f"{OURS}.log", environment(cluster.folder))


def start_kube_scheduler(cluster: ControlPlane) -> Child:
    """Start kube-scheduler under our scheduler name, its client limit lifted."""
    return cluster.start_scheduler(
        {
            "clientConnection": {"qps": 5000, "burst": 5000},
            "profiles": [{"schedulerName": names.SCHEDULER_NAME}],
        }
    )


CONTENDERS: Final[dict[str, Start]] = {OURS: start_ours, YARDSTICK: start_kube_scheduler}
