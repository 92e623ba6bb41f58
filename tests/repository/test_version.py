"""One version: pyproject.toml has it, and whatever else names it says the same."""

import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from e2e.release import version
from tests.support.repository import ROOT

OTHER: Final = "7.8.9-rc.1"
NAMING: Final = ("pyproject.toml", "README.md", "deploy", "docs", "e2e/kind")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The files that name the version."""
    for name in NAMING:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_every_place_has_the_version_of_the_package() -> None:
    assert version.differing(ROOT, version.current()) == []


def test_chart_image_and_krew_are_among_the_places() -> None:
    named = {path.relative_to(ROOT).as_posix() for path, _ in version.found(ROOT)}
    assert {
        "deploy/chart/gpushare-scheduler/Chart.yaml",
        "deploy/images/Dockerfile",
        "deploy/krew/gpushare.yaml",
        "deploy/manifests/deployment.yaml",
        "deploy/manifests/device-plugin-daemonset.yaml",
        "e2e/kind/up.sh",
        "pyproject.toml",
    } <= named


def test_a_place_that_is_forgotten_is_found(copied: Path) -> None:
    dockerfile = copied / "deploy/images/Dockerfile"
    text = dockerfile.read_text(encoding="utf-8")
    current = version.current(copied)
    dockerfile.write_text(text.replace(f"ARG VERSION={current}", "ARG VERSION=0.0.1"), encoding="utf-8")
    assert version.differing(copied, current) == [f"deploy/images/Dockerfile: 0.0.1, not {current}"]


def test_another_version_is_written_everywhere(copied: Path) -> None:
    before = version.current(copied)
    version.write(copied, OTHER)
    assert version.current(copied) == OTHER
    assert version.differing(copied, OTHER) == []
    chart = (copied / "deploy/chart/gpushare-scheduler/Chart.yaml").read_text(encoding="utf-8")
    assert f"version: {OTHER}\n" in chart
    assert f'appVersion: "{OTHER}"\n' in chart
    krew = (copied / "deploy/krew/gpushare.yaml").read_text(encoding="utf-8")
    assert krew.count(f"v{OTHER}") == 5
    assert f"image: gpushare-scheduler:{OTHER}" in (copied / "deploy/manifests/deployment.yaml").read_text("utf-8")
    version.write(copied, before)
    same = [path for name in NAMING for path in [ROOT / name, *(ROOT / name).rglob("*")] if path.is_file()]
    assert [path for path in same if path.read_bytes() != (copied / path.relative_to(ROOT)).read_bytes()] == []


@pytest.mark.parametrize("wrong", ["1.2", "1.2.3rc1"])
def test_an_invalid_version_is_written_nowhere(copied: Path, wrong: str) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(wrong)}: not a version"):
        version.write(copied, wrong)
    assert version.current(copied) == version.current()
