"""Sections of docs/evidence/benchmarks.md, one per benchmark, each with the machine that it was measured on."""

import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from e2e.control_plane import binaries, pinned
from tests.support.repository import ROOT

PATH: Final = ROOT / "docs" / "evidence" / "benchmarks.md"


def with_section(document: str, key: str, body: str) -> str:
    """The document with the section of that key replaced, or added at the end.

    key: letters, digits and dashes. Around each section stands a pair of HTML comments.
    """
    begin, end = f"<!-- begin {key} -->", f"<!-- end {key} -->"
    section = f"{begin}\n{body.strip()}\n{end}"
    found = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if found.search(document):
        return found.sub(lambda _: section, document)
    return f"{document.rstrip()}\n\n{section}\n".lstrip()


def write(key: str, section: str, runs: str = "") -> None:
    """Put a section into docs/evidence/benchmarks.md, with what it was measured on. runs: such as "3 runs each, "."""
    text = PATH.read_text() if PATH.exists() else ""
    PATH.write_text(with_section(text, key, f"{section}\n\n{runs}{today()}. {description()}. {versions()}."))


def tell(line: str) -> None:
    """Progress, on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def description() -> str:
    """Processor, cores this process may use, memory and kernel (Linux)."""
    processor = _field("/proc/cpuinfo", r"^model name\s*: (.+)$")
    memory_gib = int(_field("/proc/meminfo", r"^MemTotal:\s+(\d+) kB$")) / 2**20
    cores = len(os.sched_getaffinity(0))
    kernel = ".".join(platform.release().split(".")[:2])
    return f"{processor}, {cores} cores, {memory_gib:.0f} GiB, Linux {kernel}"


def versions() -> str:
    """Of everything that took part."""
    go = binaries.go_version(pinned.MODULES / "kubernetes").removeprefix("go")
    parts = [
        f"Kubernetes {pinned.kubernetes_version()}",
        f"etcd {pinned.etcd_version()}",
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
