"""Write down what the image is made of, as CycloneDX JSON: Python packages, CPython, packages of Debian.

    python sbom.py ENVIRONMENT ROOT           as `root.py`, which runs before
    python sbom.py ENVIRONMENT FILE.json      of the Python packages alone: what the wheel is installed with

The same bytes for the same packages: no time, no random serial number.
"""

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

OURS: Final = "gpushare-scheduler"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
PLACE: Final = "usr/share/sbom/gpushare-scheduler.cdx.json"


def main(environment: Path, target: Path) -> None:
    """Write the document: into the root of an image, or as that file."""
    if target.suffix == ".json":
        write(environment, (), target)
    else:
        write(environment, (interpreter(), *of_debian(target)), target / PLACE)


def write(environment: Path, beside: Iterable[Component], target: Path) -> None:
    """beside: what there is beside Python packages."""
    (packages,) = (environment / "lib").glob("python*/site-packages")
    python = list(of_python(packages))
    bom = Bom(components=[*python, *beside])
    bom.metadata.component = next(one for one in python if one.name == OURS)
    bom.components.remove(bom.metadata.component)
    for one, others in needs(packages, python):
        bom.register_dependency(one, others)
    bom.metadata.timestamp = None
    bom.serial_number = None
    target.parent.mkdir(parents=True, exist_ok=True)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    target.write_text(f"{text}\n", encoding="utf-8")


def of_python(packages: Path) -> Iterator[Component]:
    """What is installed in that folder."""
    for found in importlib.metadata.distributions(path=[str(packages)]):
        kind = ComponentType.APPLICATION if found.name == OURS else ComponentType.LIBRARY
        yield component(normal(found.name), found.version, "pypi", kind=kind)


def needs(packages: Path, installed: list[Component]) -> Iterator[tuple[Component, list[Component]]]:
    """Of each Python package, which of the others it names; those of extras that are installed count too."""
    by_name = {one.name: one for one in installed}
    for found in importlib.metadata.distributions(path=[str(packages)]):
        named = {normal(match[0]) for line in found.requires or () if (match := _NAME.match(line))}
        yield by_name[normal(found.name)], [by_name[name] for name in sorted(named & by_name.keys())]


def normal(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def interpreter() -> Component:
    """CPython, of which Debian may know nothing: the public image builds its own."""
    return component("cpython", platform.python_version(), "generic", kind=ComponentType.PLATFORM)


def of_debian(root: Path) -> Iterator[Component]:
    """What `root.py` has recorded."""
    for path in sorted((root / "var/lib/dpkg/status.d").iterdir()):
        lines = path.read_text(encoding="utf-8").splitlines()
        told = dict(line.split(": ", 1) for line in lines if ": " in line and not line.startswith(" "))
        yield component(told["Package"], told["Version"], "deb", "debian")


def component(
    name: str,
    version: str,
    kind_of_package: str,
    namespace: str | None = None,
    *,
    kind: ComponentType = ComponentType.LIBRARY,
) -> Component:
    """Named by its package URL, by which scanners find what is known of it."""
    url = PackageURL(kind_of_package, namespace, name, version)
    return Component(type=kind, name=name, version=version, purl=url, bom_ref=url.to_string())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
