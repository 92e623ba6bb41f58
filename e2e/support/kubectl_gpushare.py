"""`kubectl gpushare` as its users run it: a process with a kubeconfig."""

import subprocess
import sys
from pathlib import Path

from e2e.control_plane import provider
from e2e.programs.scheduler_process import environment


def kubectl_gpushare(
    cluster: provider.Target, folder: Path, *arguments: str, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end. kubeconfig: None for that of the user who runs the tests."""
    command = [sys.executable, "-m", "scheduler.tools.kubectl.main", *arguments]
    line = [*command, "--kubeconfig", str(kubeconfig or cluster.kubeconfig_path())]
    return subprocess.run(line, env=environment(folder), capture_output=True, text=True, timeout=60, check=False)
