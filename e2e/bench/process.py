"""What a process has used so far, from /proc (Linux)."""

import os
import re
from pathlib import Path


def cpu_s(pid: int) -> float:
    """Seconds of CPU, user and system, of all its threads. Source: proc_pid_stat(5), fields 14 and 15."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """Largest resident set so far. Source: proc_pid_status(5), VmHWM."""
    return _status_mib(pid, "VmHWM")


def resident_mib(pid: int) -> float:
    """What the process has in memory now. Source: proc_pid_status(5), VmRSS."""
    return _status_mib(pid, "VmRSS")


def _status_mib(pid: int, field: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        message = f"/proc/{pid}/status has no {field}"
        raise ValueError(message)
    return int(found.group(1)) / 1024
