"""Our scheduler as a process of its own, from this checkout, started as its users start it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from e2e.control_plane import commands
from e2e.control_plane.processes import Child, free_ports, start
from e2e.programs.server_process import ServerProcess
from tests.support.repository import ROOT

# On a fresh server no predecessor's bind request can be on its way, and nobody else schedules.
NO_PREDECESSOR: Final[Mapping[str, Any]] = {"bindTimeout": "0s", "leaderElection": {"leaderElect": False}}
_HEAD: Final = {"apiVersion": "gpushare/v1alpha1", "kind": "SchedulerConfiguration"}


class SchedulerProcess(ServerProcess):
    """One `gpushare-scheduler run`; enter it to start it."""

    def __init__(self, kubeconfig: Path, folder: Path, configuration: Mapping[str, Any] = NO_PREDECESSOR) -> None:
        """folder: of its configuration file and its log. configuration: fields beside apiVersion and kind."""
        (port,) = free_ports(1)
        line = [*command(kubeconfig, folder, configuration), "--listen", f"127.0.0.1:{port}"]
        log = folder / "scheduler.log"
        # Beside what every start inherits; may be changed between two of them.
        self.also_inherits: dict[str, str] = {}

        def launch() -> Child:
            return start("gpushare-scheduler", line, log, environment(folder) | self.also_inherits)

        super().__init__(launch, log, port)


def command(kubeconfig: Path, folder: Path, configuration: Mapping[str, Any]) -> list[str]:
    """Write the configuration file into `folder`; the command line that runs the scheduler with it."""
    path = folder / "scheduler.yaml"
    path.write_text(commands.as_yaml({**_HEAD, **configuration}), encoding="utf-8")
    run = [sys.executable, "-m", "scheduler.main", "run"]
    return [*run, "--kubeconfig", str(kubeconfig), "--config", str(path)]


def environment(home: Path) -> dict[str, str]:
    """All that the scheduler inherits: no KUBECONFIG, no proxy, no setting of somebody else."""
    return {"PATH": os.defpath, "HOME": str(home), "PYTHONPATH": str(ROOT)}
