"""The custom resource definitions of other projects, out of the modules that `servers/` pins.

They lie in Go's cache of modules: none is part of this repository.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.control_plane import pinned
from e2e.control_plane.admin import Admin, Json, seen

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WITHIN_S: Final = 30.0


class NotDownloaded(Exception):
    """`go mod download` failed; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """Some definitions of one project.

    pinned_by: the folder under `servers/` whose go.mod names `module`. folder: where the module has them; files:
    which, each with one.
    """

    pinned_by: str
    module: str
    folder: str
    files: tuple[str, ...]

    def read(self) -> list[Json]:
        """All of them, as `without_words` leaves them. Raises NotDownloaded."""
        folder = source(self.pinned_by, self.module) / self.folder
        return [without_words(_parsed(folder / file)) for file in self.files]


PROMETHEUS_OPERATOR: Final = Definitions(
    "prometheus-operator",
    "github.com/prometheus-operator/prometheus-operator",
    "example/prometheus-operator-crd",
    tuple(f"monitoring.coreos.com_{plural}.yaml" for plural in ("podmonitors", "servicemonitors", "prometheusrules")),
)


def source(pinned_by: str, module: str) -> Path:
    """The folder of a module's files, which are fetched where Go's cache lacks them. Raises NotDownloaded."""
    answer = subprocess.run(
        ["go", "mod", "download", "-json", module],
        cwd=pinned.MODULES / pinned_by,
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, Any] = json.loads(answer.stdout or "{}")
    if answer.returncode != 0 or "Dir" not in found:
        raise NotDownloaded(found.get("Error") or answer.stderr)
    return Path(found["Dir"])


async def install(admin: Admin, *of: Definitions) -> None:
    """Create them and wait until the API server serves the kinds. Raises UnexpectedAnswer, NotSeen, NotDownloaded."""
    await create(admin, [definition for each in of for definition in each.read()])


async def create(admin: Admin, definitions: Sequence[Json]) -> None:
    """The same with definitions that have been read. Raises UnexpectedAnswer, NotSeen."""
    for definition in definitions:
        await admin.create(_DEFINITIONS, definition)
    for definition in definitions:
        name = {"fieldSelector": f"metadata.name={definition['metadata']['name']}"}
        await seen(admin, _DEFINITIONS, _is_served, name, within_s=_WITHIN_S)


def without_words(definition: Json) -> Json:
    """The definition without what it says about each field, which makes some too large for etcd."""
    for version in definition["spec"]["versions"]:
        for schema in _schemas(version["schema"]["openAPIV3Schema"]):
            schema.pop("description", None)
    return definition


def _is_served(definition: Json) -> bool:
    # Null before the API server has looked at it.
    conditions = definition.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _parsed(file: Path) -> Json:
    """The one document of a file. The loader in C: some files have 30,000 lines."""
    with file.open(encoding="utf-8") as text:
        read: Json = yaml.load(text, yaml.CSafeLoader)
    return read


def _schemas(schema: Json) -> Iterator[Json]:
    """The schema and all within it. A property may be called `description`, so that only schemas are asked."""
    yield schema
    within = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for one in within:
        if isinstance(one, dict):
            yield from _schemas(one)
