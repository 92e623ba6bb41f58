"""What `make release` makes, but for the image, which test_images.py is about: twice, and tried.

The archive for krew is made for this machine's Python alone; the wheels of the others come by the same way.
"""

import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from e2e.deploy.chart import CHART, SET_IMAGE, Helm, built
from e2e.release import archives, clone, packages, plugin_archive, plugin_wheels, trial, version
from e2e.release.clone import Commit
from tests.support.krew import Archive, archive_name, krew_manifest
from tests.support.repository import ROOT

COMMIT: Final = Commit("0123456789ab", 1_700_000_000)
VERSION: Final = version.current()
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
MACHINE: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine()]
HERE: Final = next(one for one in plugin_wheels.PLATFORMS if (one.system, one.architecture) == (sys.platform, MACHINE))
NOBODY_LISTENS: Final = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}


@dataclass(frozen=True, slots=True)
class Made:
    """One build of everything."""

    sdist: Path
    wheel: Path
    chart: Path
    plugin: Path

    @property
    def sums(self) -> dict[str, str]:
        files = (self.sdist, self.wheel, self.chart, self.plugin)
        return {path.name: archives.sha256(path) for path in files}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """What the plugin needs on this machine."""
    requirements = (ROOT / "requirements/runtime.txt").read_text(encoding="utf-8")
    return plugin_wheels.fetch(requirements, HERE, [PYTHON], tmp_path_factory.mktemp("wheels") / "fetched")


def make(folder: Path, helm: Helm, wheels: dict[str, list[Path]]) -> Made:
    for name in ("made", "sdist", "wheel"):
        (folder / name).mkdir(parents=True)
    sources = clone.copy(ROOT, folder / "sources", COMMIT.epoch_s)
    sdist = packages.sdist(sources, folder / "made", folder / "sdist", COMMIT)
    wheel = packages.wheel(sdist, folder / "made", folder / "wheel", COMMIT)
    chart = packages.chart(sources, folder / "made", helm)
    name = archive_name(HERE.system, HERE.architecture)
    plugin = plugin_archive.build(
        wheel, wheels, folder / "made" / name, folder / "plugin", COMMIT, licence=sources / "LICENSE"
    )
    return Made(sdist, wheel, chart, plugin)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, helm: Helm, wheels: dict[str, list[Path]]) -> Made:
    return make(tmp_path_factory.mktemp("first"), helm, wheels)


@pytest.fixture(scope="module")
def installed(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of the wheel, in an environment that has what it stands on from here, and no checkout."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder)
    packages_of = next((folder / "lib").glob("python*/site-packages"))
    (packages_of / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", f"--python={folder}/bin/python"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(made.wheel)], check=True)
    return folder / "bin"


def run(*command: str | Path, path: str = os.defpath) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env={"PATH": path}, cwd="/", capture_output=True, text=True, check=False)


def test_a_second_build_makes_the_same_bytes(
    made: Made, wheels: dict[str, list[Path]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    helm = built(tmp_path_factory.mktemp("helm-of-somebody-else"))
    mask = os.umask(0o077)
    try:
        again = make(tmp_path_factory.mktemp("second"), helm, wheels)
    finally:
        os.umask(mask)
    assert again.sums == made.sums


def test_another_time_makes_other_bytes(made: Made, tmp_path: Path) -> None:
    assert archives.sha256(archives.repack(made.sdist, tmp_path / "again.tar.gz", COMMIT.epoch_s)) == (
        archives.sha256(made.sdist)
    )
    assert archives.sha256(archives.repack(made.sdist, tmp_path / "later.tar.gz", COMMIT.epoch_s + 1)) != (
        archives.sha256(made.sdist)
    )


def test_everything_is_named_by_the_version(made: Made) -> None:
    assert made.sdist.name == f"gpushare_scheduler-{VERSION}.tar.gz"
    assert made.wheel.name == f"gpushare_scheduler-{VERSION}-py3-none-any.whl"
    assert f"-v{VERSION}-" in made.plugin.name
    with tarfile.open(made.chart) as packed:
        chart = yaml.safe_load(packed.extractfile("gpushare-scheduler/Chart.yaml") or b"")
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert made.chart.name == f"gpushare-scheduler-{chart['version']}.tgz"


def test_the_wheel_holds_every_file_of_the_programs(made: Made) -> None:
    """It is made of the source distribution: what that lacks, the wheel lacks."""
    packed = set(zipfile.ZipFile(made.wheel).namelist())
    programs = ("config", "scheduler", "deviceplugin")
    sources = {path.relative_to(ROOT).as_posix() for name in programs for path in (ROOT / name).rglob("*.py")}
    assert sources <= packed
    assert {"scheduler/tools/demo/demo.yaml", "scheduler/tools/page/static/index.html", "LICENSE"} <= {
        name.removeprefix(f"gpushare_scheduler-{VERSION}.dist-info/licenses/") for name in packed
    }


def test_the_installed_wheel_passes_the_trial_of_a_release(installed: Path) -> None:
    trial.try_programs(installed, VERSION)
    assert run(installed / "gpushare-scheduler", "--version").stdout.endswith(f"{VERSION} (commit {COMMIT.name})\n")


def test_the_trial_finds_another_version(installed: Path) -> None:
    with pytest.raises(trial.TrialFailed, match=re.escape(f"says that it is gpushare-scheduler {VERSION}")):
        trial.try_programs(installed, "9.9.9")


def test_the_chart_of_the_package_renders_as_that_of_the_clone(made: Made, helm: Helm) -> None:
    rendered = helm("template", "gpushare-scheduler", str(made.chart), *SET_IMAGE, "--kube-version", "1.36.0")
    assert f"image: gpushare-scheduler:{VERSION}" in rendered
    assert rendered == helm("template", "gpushare-scheduler", str(CHART), *SET_IMAGE, "--kube-version", "1.36.0")


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


def test_each_python_and_platform_gets_what_is_pinned_for_it() -> None:
    hashed = "--hash=sha256:00"
    heads = (
        "numpy==1 ; python_full_version < '3.12'",
        "numpy==2 ; python_full_version >= '3.12'",
        "rich==3 ; sys_platform == 'linux'",
        "grpcio==4",
    )
    requirements = "".join(f"{head} \\\n    {hashed}\n    # via one\n" for head in heads)
    linux, darwin = plugin_wheels.PLATFORMS[0], plugin_wheels.PLATFORMS[-1]
    names = plugin_wheels.needed()
    found = {
        (target.system, python): [
            line.partition(" ")[0] for line in plugin_wheels.pins(requirements, names, target, python)
        ]
        for target in (linux, darwin)
        for python in ("3.11", "3.12")
    }
    assert found == {
        ("linux", "3.11"): ["numpy==1", "rich==3"],
        ("linux", "3.12"): ["numpy==2", "rich==3"],
        ("darwin", "3.11"): ["numpy==1"],
        ("darwin", "3.12"): ["numpy==2"],
    }


def test_the_manifest_for_krew_lists_what_was_made(made: Made) -> None:
    archive = Archive(f"https://example.com/{made.plugin.name}", archives.sha256(made.plugin))
    document = yaml.safe_load(krew_manifest({(HERE.system, HERE.architecture): archive}))
    (platform_of,) = document["spec"]["platforms"]
    assert (platform_of["uri"], platform_of["sha256"]) == archive
    with tarfile.open(made.plugin) as packed:
        assert {platform_of["bin"], "LICENSE"} <= set(packed.getnames())


def test_the_checksums_are_those_that_sha256sum_finds(made: Made) -> None:
    sums = archives.write_sums(made.wheel.parent)
    check = ["sha256sum", "--check", "--strict", sums.name]
    assert subprocess.run(check, cwd=sums.parent, check=False, stdout=subprocess.DEVNULL).returncode == 0
    assert {line.split("  ")[1] for line in sums.read_text().splitlines()} == set(made.sums)
