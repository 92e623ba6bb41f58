"""The schedulers that race, and how each is started."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from config.protocol import names
from e2e.control_plane import commands
from e2e.control_plane.cluster import Cluster
from e2e.control_plane.processes import Child, free_ports, start
from tests.support.repository import ROOT

OURS: Final = "gpushare-scheduler"
YARDSTICK: Final = "kube-scheduler"

# Score plugins that have no counterpart in ours; each would only add work.
_WITHOUT_COUNTERPART: Final = (
    "ImageLocality",
    "InterPodAffinity",
    "NodeResourcesBalancedAllocation",
    "PodTopologySpread",
)

_OURS_CONFIGURATION: Final[Mapping[str, Any]] = {
    "apiVersion": "gpushare/v1alpha1",
    "kind": "SchedulerConfiguration",
    "bindTimeout": "0s",  # the server is fresh: no predecessor's POST can be on its way
}

Start: TypeAlias = Callable[[Cluster], Child]


def start_ours(cluster: Cluster) -> Child:
    """Start `gpushare-scheduler run` from this checkout, with its shipped defaults."""
    configuration = cluster.folder / "gpushare-scheduler.yaml"
    configuration.write_text(commands.as_yaml(_OURS_CONFIGURATION))
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "scheduler.cli.main", "run"]
    command += ["--kubeconfig", str(cluster.kubeconfig_path()), "--config", str(configuration)]
    command += ["--listen", f"127.0.0.1:{port}"]
    environment = {"PATH": os.defpath, "HOME": str(cluster.folder), "PYTHONPATH": str(ROOT)}
    return start(OURS, command, cluster.folder / f"{OURS}.log", environment)


def start_kube_scheduler(cluster: Cluster) -> Child:
    """Start kube-scheduler under our scheduler name, its client limit lifted."""
    return cluster.start_scheduler(
        {
            "clientConnection": {"qps": 5000, "burst": 5000},
            "profiles": [{"schedulerName": names.SCHEDULER_NAME, "plugins": {"score": _OFF, "preScore": _OFF}}],
        }
    )


_OFF: Final = {"disabled": [{"name": name} for name in _WITHOUT_COUNTERPART]}

CONTENDERS: Final[dict[str, Start]] = {OURS: start_ours, YARDSTICK: start_kube_scheduler}
