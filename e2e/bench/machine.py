"""What a measurement was made on, in one line each: a figure without it says nothing."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from e2e.control_plane import binaries
from tests.support.repository import ROOT


def description() -> str:
    """Processor, cores this process may use, memory and kernel (Linux)."""
    processor = _field("/proc/cpuinfo", r"^model name\s*: (.+)$")
    memory_gib = int(_field("/proc/meminfo", r"^MemTotal:\s+(\d+) kB$")) / 2**20
    cores = len(os.sched_getaffinity(0))
    kernel = ".".join(platform.release().split(".")[:2])
    return f"{processor}, {cores} cores, {memory_gib:.0f} GiB, Linux {kernel}"


def versions() -> str:
    """Of everything that took part."""
    go = binaries.go_version(binaries.MODULES / "kubernetes").removeprefix("go")
    parts = [
        f"Kubernetes {binaries.kubernetes_version()}",
        f"etcd {binaries.etcd_version()}",
        f"Go {go}",
        f"Python {platform.python_version()}",
        f"gpushare-scheduler {_commit()}",
    ]
    return ", ".join(parts)


def today() -> str:
    """The date in UTC, as 2026-01-31."""
    return datetime.now(tz=UTC).date().isoformat()


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "of no commit"


def _field(path: str, pattern: str) -> str:
    found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    return found.group(1) if found else "unknown"
