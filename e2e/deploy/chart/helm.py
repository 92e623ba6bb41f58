"""The chart, and the real `helm`, which renders and installs it."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.control_plane import binaries
from scheduler.kube import versions
from tests.support.repository import ROOT

CHART: Final = ROOT / "deploy" / "chart" / "gpushare-scheduler"
RELEASE: Final = "gpushare-scheduler"
NAMESPACE: Final = "kube-system"
# The one value that the chart requires; with this name the manifests are rendered, for `kustomize edit set image`.
IMAGE: Final[Mapping[str, Any]] = {"image": {"repository": "gpushare-scheduler"}}
SET_IMAGE: Final = ("--set", "image.repository=gpushare-scheduler")
# The version that everything is tested with, as `--kube-version` takes it.
NEWEST_RUN: Final = f"{versions.NEWEST_RUN}.0"
_SOURCE: Final = re.compile(r"^---\n# Source: [^\n]+/templates/([^\n]+)\n", re.MULTILINE)


class HelmRefused(Exception):
    """`helm` ended with an error; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Helm:
    """One `helm`, with a home folder of its own: nothing of its user's is read or written.

    kubeconfig: of the cluster; None: no cluster, for rendering.
    """

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def __call__(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run a command and return what it printed. Raises HelmRefused."""
        command = [str(self.program), *arguments]
        command += ["--values", "-"] if values is not None else []
        command += ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        answer = subprocess.run(
            command,
            input=json.dumps(values) if values is not None else "",
            env={"PATH": os.defpath, "HOME": str(self.home)},
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise HelmRefused(answer.stderr.strip())
        return answer.stdout

    def rendered(
        self, values: Mapping[str, Any], *, kubernetes: str = NEWEST_RUN, namespace: str = NAMESPACE
    ) -> dict[str, str]:
        """Each template that renders something, by its file name: its YAML documents. Raises HelmRefused.

        values: with the image of IMAGE, unless they name another. kubernetes: the version that the chart is told.
        Comments of the templates are in it.
        """
        return dict(_rendered(self, json.dumps({**IMAGE, **values}), kubernetes, namespace))

    def objects(self, values: Mapping[str, Any], *, kubernetes: str = NEWEST_RUN) -> list[dict[str, Any]]:
        """Everything that is rendered. Raises HelmRefused."""
        files = self.rendered(values, kubernetes=kubernetes)
        return [one for text in files.values() for one in yaml.load_all(text, yaml.CSafeLoader) if one]


@cache
def _rendered(helm: Helm, values: str, kubernetes: str, namespace: str) -> dict[str, str]:
    """The templates as `Helm.rendered` returns them; many tests render the same values."""
    where = ("--namespace", namespace, "--kube-version", kubernetes)
    parts = _SOURCE.split(helm("template", RELEASE, str(CHART), *where, values=json.loads(values)))[1:]
    found: dict[str, list[str]] = {}
    for name, document in zip(parts[::2], parts[1::2], strict=True):
        found.setdefault(name, []).append(f"{document.strip()}\n")
    return {name: "---\n".join(documents) for name, documents in found.items()}


def built(home: Path, kubeconfig: Path | None = None) -> Helm:
    """`helm` in the version that `servers/helm` pins. Raises what `binaries.ensure` raises."""
    return Helm(binaries.ensure(["helm"])["helm"], home, kubeconfig)
