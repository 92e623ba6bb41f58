"""Which build the programs say that they are."""

import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from deviceplugin import cli as of_the_device_plugin
from scheduler import program as of_the_scheduler
from scheduler.process import build_info
from scheduler.process.build_info import BuildInfo
from scheduler.tools.kubectl import inspect
from tests.support.repository import ROOT

VERSION: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    build_info.build_info.cache_clear()
    yield
    build_info.build_info.cache_clear()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of one commit, of which the code that runs is said to be."""
    monkeypatch.setattr(build_info, "_CLONE", tmp_path)
    monkeypatch.setattr(build_info, "_COMMIT", tmp_path / "commit.txt")
    (tmp_path / "file").write_text("a\n", encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "file")
    git(tmp_path, "-c", "user.name=n", "-c", "user.email=e@example.com", "commit", "--quiet", "--message=m")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_the_version_is_that_of_the_project_and_the_commit_that_of_the_clone(clone: Path) -> None:
    commit = git(clone, "rev-parse", "HEAD")[:12]
    assert build_info.build_info() == BuildInfo(VERSION, commit)
    assert str(build_info.build_info()) == f"{VERSION} (commit {commit})"


def test_a_clone_with_changes_is_told_from_its_commit(clone: Path) -> None:
    (clone / "file").write_text("b\n", encoding="utf-8")
    assert build_info.build_info().commit == f"{git(clone, 'rev-parse', 'HEAD')[:12]}-dirty"


def test_what_the_build_has_written_down_counts_before_a_clone(clone: Path) -> None:
    (clone / "commit.txt").write_text("abc\n", encoding="utf-8")
    assert build_info.build_info().commit == "abc"


def test_without_a_clone_or_without_git_there_is_no_commit(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert build_info.build_info() == BuildInfo(VERSION, "")
    assert str(build_info.build_info()) == VERSION
    monkeypatch.undo()
    monkeypatch.setattr(build_info, "_CLONE", clone / "elsewhere")
    build_info.build_info.cache_clear()
    assert build_info.build_info().commit == ""


def test_the_metric_has_it_in_its_labels(clone: Path) -> None:
    registry = CollectorRegistry()
    build_info.show(registry)
    (sample,) = (sample for family in registry.collect() for sample in family.samples)
    assert (sample.name, sample.value) == ("gpushare_build_info", 1.0)
    assert sample.labels["version"] == VERSION
    assert sample.labels["commit"] == git(clone, "rev-parse", "HEAD")[:12]
    assert sample.labels["python"].startswith("3.")


def test_every_program_says_it(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = f"{VERSION} (commit {git(clone, 'rev-parse', 'HEAD')[:12]})"
    scheduler = CliRunner().invoke(of_the_scheduler.cli, ["--version"])
    assert (scheduler.exit_code, scheduler.stdout) == (0, f"gpushare-scheduler {told}\n")
    with pytest.raises(SystemExit) as ended:
        of_the_device_plugin.main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"gpushare-device-plugin {told}\n")
    with pytest.raises(SystemExit) as ended:
        inspect.main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"kubectl-inspect-gpushare {told}\n")
