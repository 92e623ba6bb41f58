"""deploy/krew/gpushare.yaml, the manifest that `kubectl krew` installs the plugin from, for the project's version.

Source of the format: krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
"""

import tomllib
from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.support.repository import ROOT


class Archive(NamedTuple):
    """Location of a release's archive for one platform, and its SHA-256."""

    uri: str
    sha256: str


PLACE: Final = "https://releases.example"
_PLATFORMS: Final = (("linux", "amd64"), ("linux", "arm64"), ("darwin", "amd64"), ("darwin", "arm64"))
_UNRELEASED: Final = "0" * 64
_NOT_RELEASED: Final = """\
# Written by `make docs` from the version in pyproject.toml. `make release` writes that of a release: where its archives
# are, and their SHA-256.
"""
_HEAD: Final = """\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: gpushare
spec:
  version: v{version}
  shortDescription: Look at GPUs that pods share by memory
  description: |
    Shows what is requested and free of each card, says why a pod waits and how many
    more would fit, takes cards out of use, and looks for what is wrong: for clusters
    with gpushare-scheduler. docs/kubectl.md describes every command.
  caveats: |
    Reads with your own rights: list and watch on nodes and pods. cordon and uncordon
    patch nodes.
  platforms:
"""


def krew_manifest(archives: Mapping[tuple[str, str], Archive] | None = None) -> str:
    """Return the manifest. archives: by operating system and architecture, the existing ones; None before a release."""
    listed = archives or {of: Archive(f"{PLACE}/{archive_name(*of)}", _UNRELEASED) for of in _PLATFORMS}
    entries = [
        f"    - selector:\n        matchLabels:\n          os: {system}\n          arch: {architecture}\n"
        f'      uri: {archive.uri}\n      sha256: "{archive.sha256}"\n      bin: kubectl-gpushare\n'
        for (system, architecture), archive in listed.items()
    ]
    return ("" if archives else _NOT_RELEASED) + _HEAD.format(version=_version()) + "".join(entries)


def archive_name(system: str, architecture: str) -> str:
    """Return the name of this version's archive for a platform."""
    return f"kubectl-gpushare-v{_version()}-{system}-{architecture}.tar.gz"


def _version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version: str = project["project"]["version"]
    return version
