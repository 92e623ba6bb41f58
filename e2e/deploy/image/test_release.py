"""What `make release` makes, but for the image (test_images.py): made of the last commit, and tried.

The archive for krew is made for this machine's Python alone; the packages of the others are installed the same way.
"""

import json
import os
import platform
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import grimp
import pytest
import yaml
from packaging.version import Version

from e2e.deploy.chart.helm import CHART, NEWEST_RUN, SET_IMAGE, Helm
from e2e.release import krew_archive, steps, version
from e2e.release.steps import Commit
from tests.support.documents.krew import Archive, archive_name, krew_manifest
from tests.support.repository import ROOT

COMMIT: Final = Commit("0123456789ab", 1_700_000_000)
VERSION: Final = version.current()
NORMAL: Final = str(Version(VERSION))  # as Python's packages have it
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
MACHINE: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine()]
HERE: Final = (sys.platform, MACHINE)
NOBODY_LISTENS: Final = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}


@dataclass(frozen=True, slots=True)
class Made:
    """Everything that is published. sources: the files of the commit that it is made of."""

    sources: Path
    folder: Path
    wheel: Path
    chart: Path
    plugin: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, helm: Helm) -> Made:
    scratch, folder = tmp_path_factory.mktemp("scratch"), tmp_path_factory.mktemp("made")
    sources = steps.sources(scratch / "sources")
    wheel = steps.packages(sources, folder, COMMIT)
    chart = steps.chart(sources, folder, helm)
    return Made(sources, folder, wheel, chart, krew(wheel, folder / archive_name(*HERE), scratch / "krew"))


def krew(wheel: Path, target: Path, scratch: Path) -> Path:
    return krew_archive.build(wheel, target, scratch, COMMIT, on=krew_archive.PLATFORMS[HERE], pythons=[PYTHON])


@pytest.fixture(scope="module")
def installed(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and the pinned packages in an environment without a checkout: its programs."""
    return steps.environment(made.wheel, made.sources, tmp_path_factory.mktemp("installed") / "environment") / "bin"


def digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()


def run(*command: str | Path, path: str = os.defpath) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env={"PATH": path}, cwd="/", capture_output=True, text=True, check=False)


def test_a_second_build_makes_the_same_bytes(made: Made, tmp_path: Path) -> None:
    """The source distribution aside: setuptools gives its files the time of the build."""
    mask = os.umask(0o077)
    try:
        again = steps.packages(steps.sources(tmp_path / "sources"), tmp_path, COMMIT)
        plugin = krew(again, tmp_path / made.plugin.name, tmp_path / "krew")
    finally:
        os.umask(mask)
    assert digest(again) == digest(made.wheel)
    assert digest(plugin) == digest(made.plugin)


def test_everything_is_named_by_the_version(made: Made) -> None:
    names = {path.name for path in made.folder.iterdir()}
    assert f"gpushare_scheduler-{NORMAL}.tar.gz" in names
    assert f"gpushare_scheduler-{NORMAL}-py3-none-any.whl" in names
    assert f"-v{VERSION}-" in made.plugin.name
    with tarfile.open(made.chart) as packed:
        chart = yaml.safe_load(packed.extractfile("gpushare-scheduler/Chart.yaml") or b"")
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert made.chart.name == f"gpushare-scheduler-{VERSION}.tgz"


def test_the_wheel_holds_every_file_of_the_programs(made: Made) -> None:
    """It is made of the source distribution: what that lacks, the wheel lacks."""
    packed = set(zipfile.ZipFile(made.wheel).namelist())
    programs = ("config", "scheduler", "deviceplugin")
    paths = [path for name in programs for path in (made.sources / name).rglob("*.py")]
    assert {path.relative_to(made.sources).as_posix() for path in paths} <= packed
    assert {"scheduler/tools/page/static/index.html", "LICENSE"} <= {
        name.removeprefix(f"gpushare_scheduler-{NORMAL}.dist-info/licenses/") for name in packed
    }


@pytest.mark.parametrize("program", ["gpushare-scheduler", "gpushare-device-plugin"])
def test_the_installed_programs_say_version_and_commit(installed: Path, program: str) -> None:
    assert run(installed / program, "--version").stdout == f"{program} {NORMAL} (commit {COMMIT.name})\n"


def test_the_demo_runs_from_the_wheel(installed: Path) -> None:
    assert "no card was ever over-committed" in run(installed / "gpushare-scheduler", "demo", "--speed", "1000").stdout


def test_the_bill_of_materials_names_what_is_installed(made: Made, installed: Path, tmp_path: Path) -> None:
    steps.bill(made.sources, installed.parent, tmp_path / "bill.json")
    document = json.loads((tmp_path / "bill.json").read_text(encoding="utf-8"))
    assert document["metadata"]["component"]["purl"] == f"pkg:pypi/gpushare-scheduler@{NORMAL}"
    assert {"grpcio", "numpy"} <= {part["name"] for part in document["components"]}


def test_the_chart_of_the_package_renders_as_that_of_the_clone(made: Made, helm: Helm) -> None:
    rendered = helm("template", "gpushare-scheduler", str(made.chart), *SET_IMAGE, "--kube-version", NEWEST_RUN)
    assert f"image: gpushare-scheduler:{VERSION}" in rendered
    assert rendered == helm("template", "gpushare-scheduler", str(CHART), *SET_IMAGE, "--kube-version", NEWEST_RUN)


@pytest.fixture(scope="module")
def plugin(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As krew installs it: unpacked in one folder, a link to the program in another."""
    folder = tmp_path_factory.mktemp("krew")
    with tarfile.open(made.plugin) as packed:
        packed.extractall(folder / "store", filter="data")
    (folder / "bin").mkdir()
    (folder / "bin/kubectl-gpushare").symlink_to(folder / "store/kubectl-gpushare")
    return folder / "bin/kubectl-gpushare"


def pythons(folder: Path, *programs: str) -> str:
    """A PATH on which `python3` is the interpreter that ours is made of: none of our packages is installed there."""
    folder.mkdir()
    base = Path(sys.base_prefix) / "bin" / f"python{PYTHON}"
    for program in programs:
        (folder / program).symlink_to(base)
    return f"{folder}:{os.defpath}"


@pytest.mark.parametrize("name", ["python3", f"python{PYTHON}"])
def test_the_plugin_runs_with_a_python_that_has_none_of_its_packages(plugin: Path, tmp_path: Path, name: str) -> None:
    path = pythons(tmp_path / "bin", name)
    assert run(name, "-c", "import typer", path=path).returncode != 0
    assert "cordon" in run(plugin, "--help", path=path).stdout
    # As far as the network: everything that reading a cluster takes is imported.
    (tmp_path / "kubeconfig").write_text(json.dumps(NOBODY_LISTENS), encoding="utf-8")
    asked = run(plugin, "explain", "a-pod", "--kubeconfig", tmp_path / "kubeconfig", path=path)
    assert asked.returncode == 3
    assert "127.0.0.1:1" in asked.stderr
    assert "Traceback" not in asked.stderr


def test_the_demo_runs_from_the_plugin(plugin: Path, tmp_path: Path) -> None:
    shown = run(plugin, "demo", "--speed", "1000", path=pythons(tmp_path / "bin", "python3"))
    assert "no card was ever over-committed" in shown.stdout, shown.stderr


def test_the_plugin_says_which_pythons_it_needs(plugin: Path, tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (tmp_path / "python3").chmod(0o755)
    for name in ("dirname", "readlink"):
        (tmp_path / name).symlink_to(Path("/usr/bin") / name)
    done = run(plugin, "top", path=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"kubectl-gpushare: none of these is on PATH: Python {PYTHON} (as python3, or by these names)\n"
    )


def test_the_plugin_has_every_package_that_it_may_import() -> None:
    """Without those that only the device plugin imports, and without markers that would leave out another one."""
    graph = grimp.build_graph("scheduler", "config", include_external_packages=True, cache_dir=None)
    imported = graph.find_upstream_modules("scheduler.tools.kubectl.main")
    of_the_plugin = {"grpc", "pynvml", "google"}
    assert not {module.partition(".")[0] for module in imported} & of_the_plugin
    pins = (ROOT / "requirements/runtime.txt").read_text(encoding="utf-8")
    names = [
        {line.partition("==")[0] for line in text.splitlines() if "==" in line}
        for text in (pins, krew_archive.needed(pins))
    ]
    assert names[0] - names[1] == set(krew_archive.LEFT_OUT)


def test_the_manifest_for_krew_lists_what_was_made(made: Made) -> None:
    archive = Archive(f"https://example.com/{made.plugin.name}", digest(made.plugin))
    document = yaml.safe_load(krew_manifest({HERE: archive}))
    (platform_of,) = document["spec"]["platforms"]
    assert (platform_of["uri"], platform_of["sha256"]) == archive
    with tarfile.open(made.plugin) as packed:
        names = {name.removeprefix("./") for name in packed.getnames()}
    assert {platform_of["bin"], "LICENSE"} <= names


def test_the_checksums_are_those_that_sha256sum_finds(made: Made) -> None:
    sums = steps.checksums(made.folder)
    check = ["sha256sum", "--check", "--strict", sums.name]
    assert subprocess.run(check, cwd=sums.parent, check=False, stdout=subprocess.DEVNULL).returncode == 0
    assert {line.split("  ")[1] for line in sums.read_text().splitlines()} == {
        path.name for path in made.folder.iterdir() if path != sums
    }
