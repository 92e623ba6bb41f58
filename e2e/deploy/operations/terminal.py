"""The commands of a document, typed as they stand, by a shell, on a cluster without kubelets."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from e2e.control_plane import binaries
from e2e.control_plane.cluster import ControlPlane
from tests.support.documents import document_commands
from tests.support.repository import ROOT

MIGRATE: Final = ROOT / "docs" / "migrate.md"
WAY_BACK: Final = ROOT / "docs" / "migrate-back.md"
# No kubelet is there that could make a pod ready.
_NEEDS_KUBELETS: Final = "rollout status"


class CommandFailed(Exception):
    """A command of the document ended with an error; the message has it and what it said."""


def blocks(heading: str, document: Path = MIGRATE) -> list[str]:
    """What the section under this heading, up to the next one, has to be typed."""
    _, found, after = document.read_text(encoding="utf-8").partition(f"\n{heading}\n")
    if not found:
        message = f"{document.name} has no {heading!r}"
        raise LookupError(message)
    section = re.split(r"^##", after, maxsplit=1, flags=re.MULTILINE)[0]
    return document_commands.fenced(section, "sh")


class Terminal:
    """Where the operator of a cluster types: kubectl, helm and jq are there, and the chart as the document has it."""

    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        programs = folder / "bin"
        programs.mkdir()
        for name, path in binaries.ensure(["kubectl", "helm"]).items():
            (programs / name).symlink_to(path)
        ours = programs / "kubectl-gpushare"
        ours.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m scheduler.tools.kubectl.main "$@"\n', encoding="utf-8")
        ours.chmod(0o755)
        (folder / "deploy").symlink_to(ROOT / "deploy")
        self._folder = folder
        self._inherits = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(cluster.kubeconfig_path()),
            "PYTHONPATH": str(ROOT),
        }

    def types(self, block: str, **words: str) -> str:
        """Run it as it stands, but for these words. What it wrote. Raises CommandFailed."""
        for word, meaning in words.items():
            block = re.sub(rf"\b{word}\b", meaning, block)
        lines = [line for line in block.splitlines() if _NEEDS_KUBELETS not in line]
        text = "set -e -o pipefail\n" + "\n".join(lines)
        ran = subprocess.run(
            ["bash", "-c", text], cwd=self._folder, env=self._inherits, capture_output=True, text=True, check=False
        )
        if ran.returncode != 0:
            message = f"{text}\n{ran.stdout}\n{ran.stderr}"
            raise CommandFailed(message)
        return ran.stdout
