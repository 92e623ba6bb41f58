"""`kubectl gpushare` as its users run it: a process with a kubeconfig."""

import subprocess
import sys
from pathlib import Path

from e2e.control_plane import provider
from e2e.programs.scheduler_process import environment


def kubectl_gpushare(cluster: provider.Target, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    command = [sys.executable, "-m", "scheduler.cli.kubectl.main", *arguments]
    line = [*command, "--kubeconfig", str(cluster.kubeconfig_path())]
    return subprocess.run(line, env=environment(folder), capture_output=True, text=True, timeout=60, check=False)
