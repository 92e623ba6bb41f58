"""The definitions of the Prometheus Operator's kinds, out of the module that `servers/prometheus-operator` pins."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.control_plane import pinned
from e2e.control_plane.admin import Admin, Json, seen

_MODULE: Final = "github.com/prometheus-operator/prometheus-operator"
_FOLDER: Final = "example/prometheus-operator-crd"
_PLURALS: Final = ("podmonitors", "servicemonitors", "prometheusrules")
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WITHIN_S: Final = 30.0


class NotDownloaded(Exception):
    """`go mod download` failed; the message is what it said."""


def definitions() -> list[Json]:
    """One for each kind that the chart renders. Raises NotDownloaded."""
    answer = subprocess.run(
        ["go", "mod", "download", "-json", _MODULE],
        cwd=pinned.MODULES / "prometheus-operator",
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, Any] = json.loads(answer.stdout or "{}")
    if answer.returncode != 0 or "Dir" not in found:
        raise NotDownloaded(found.get("Error") or answer.stderr)
    folder = Path(found["Dir"]) / _FOLDER
    return [
        yaml.safe_load((folder / f"monitoring.coreos.com_{plural}.yaml").read_text(encoding="utf-8"))
        for plural in _PLURALS
    ]


def _is_served(definition: Json) -> bool:
    # Null before the API server has looked at it.
    conditions = definition.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


async def install(admin: Admin) -> None:
    """Create them and wait until the API server serves the kinds. Raises UnexpectedAnswer, NotSeen, NotDownloaded."""
    for definition in definitions():
        await admin.create(_DEFINITIONS, definition)
        name = {"fieldSelector": f"metadata.name={definition['metadata']['name']}"}
        await seen(admin, _DEFINITIONS, _is_served, name, within_s=_WITHIN_S)
