"""One version: that of the package is that of the image, wherever the image is named."""

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT

VERSION: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
IMAGE: Final = re.compile(r"gpushare-scheduler:(\d[\w.]*\w)")
NAMED_IN: Final = ("deploy", "docs", "e2e/kind", "README.md")


def naming_files() -> list[Path]:
    found = (
        path for name in NAMED_IN for path in ((ROOT / name).rglob("*") if (ROOT / name).is_dir() else [ROOT / name])
    )
    return sorted(path for path in found if path.is_file() and IMAGE.search(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", naming_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_image_has_the_version_of_the_package(path: Path) -> None:
    assert set(IMAGE.findall(path.read_text(encoding="utf-8"))) == {VERSION}


def test_the_image_is_named_in_manifests() -> None:
    assert ROOT / "deploy/manifests/deployment.yaml" in naming_files()
