"""The wheel of the project in an environment of its own: docs/develop/write-a-rule.md, for readers with only that."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.support.documents import guide
from tests.support.repository import ROOT

COMMIT: Final = "0123456789ab"
TYPED: Final = {"config/py.typed", "scheduler/py.typed", "deviceplugin/py.typed"}


class Newcomer:
    """A folder with the files of the guide, and an environment with the two wheels."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "max-pods-per-owner"
        self.bin = folder / "venv/bin"
        self.wheel = wheel_of(ROOT, folder / "dist")
        guide.write(self.folder)
        venv.create(folder / "venv", with_pip=False)
        packages = next((folder / "venv/lib").glob("python*/site-packages"))
        # What ours stands on is installed here already. A .pth of a .pth is not followed, so our checkout stays out.
        (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
        install(self.wheel, packages)
        install(wheel_of(self.folder, folder / "dist-of-the-rule"), packages)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [self.bin / command[0], *command[1:]],
            cwd=self.folder,
            env=environment | {"COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def write_its_test(self, examples: int) -> None:
        (name, text), *others = [(name, text) for name, text in guide.files().items() if "check_rule(" in text]
        assert not others
        called, ends = re.subn(r"(check_rule\(.*)\)\n", rf"\1, examples={examples})\n", text)
        assert ends == 1
        (self.folder / name).write_text(called, encoding="utf-8")

    def simulate(self, *changes: tuple[str, str]) -> subprocess.CompletedProcess[str]:
        configuration = guide.files()["scheduler.yaml"]
        for old, new in changes:
            assert old in configuration
            configuration = configuration.replace(old, new)
        (self.folder / "tried.yaml").write_text(configuration, encoding="utf-8")
        return self.run("gpushare-scheduler", "simulate", "--config", "tried.yaml", "cluster.yaml")


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    environment = os.environ | {"GPUSHARE_COMMIT": COMMIT}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def wheel_of(project: Path, into: Path) -> Path:
    """Built offline, from a copy: setuptools leaves `build` behind, whose old files it would take again."""
    source = into / "source"
    source.mkdir(parents=True)
    for path in project.iterdir():
        if path.name in {"config", "scheduler", "deviceplugin", "requirements", "tests"} or path.is_file():
            (source / path.name).symlink_to(path)
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(into), str(source))
    (wheel,) = into.glob("*.whl")
    return wheel


def install(wheel: Path, packages: Path) -> None:
    python = packages.parents[2] / "bin/python"
    pip("--python", str(python), "install", "--quiet", "--no-index", "--no-deps", str(wheel))


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    return Newcomer(tmp_path_factory.mktemp("newcomer"))


def test_the_programs_are_those_of_the_wheel(newcomer: Newcomer) -> None:
    where = newcomer.run("python", "-c", "import scheduler, config; print(scheduler.__file__, config.__file__)")
    assert where.stdout.count(str(newcomer.bin.parent)) == 2, where


def test_the_wheel_says_that_it_is_typed_and_has_the_plugin_reference(newcomer: Newcomer) -> None:
    names = set(zipfile.ZipFile(newcomer.wheel).namelist())
    assert {*TYPED, "scheduler/plugins/README.md", "scheduler/testing/rules/check.py"} <= names
    assert not [name for name in names if name.startswith(("tests/", "e2e/"))]


def test_the_wheel_knows_the_commit_that_it_was_built_from(newcomer: Newcomer) -> None:
    version = newcomer.wheel.name.split("-")[1]
    for program in ("gpushare-scheduler", "gpushare-device-plugin", "kubectl-inspect-gpushare"):
        assert newcomer.run(program, "--version").stdout == f"{program} {version} (commit {COMMIT})\n"


@pytest.mark.parametrize("plugin", ["kubectl-gpushare", "kubectl-inspect-gpushare"])
def test_the_plugins_of_kubectl_are_installed(newcomer: Newcomer, plugin: str) -> None:
    assert newcomer.run(plugin, "--help").returncode == 0
    assert "cordon\t" in newcomer.run("kubectl_complete-gpushare", "cor").stdout


def test_the_rule_of_the_guide_is_enforced(newcomer: Newcomer) -> None:
    done = newcomer.simulate()
    assert done.returncode == 0, done.stderr
    assert "Pods placed: 2, ended since: 0, waiting: 1." in done.stdout
    assert "0/1 nodes are available: 1 node(s) had enough pods of the same owner." in done.stdout
    assert "Pods placed: 3," in newcomer.simulate(("most: 2", "most: 3")).stdout


def test_a_plugin_that_is_not_installed_is_a_mistake_that_lists_what_is(newcomer: Newcomer) -> None:
    done = newcomer.simulate(("- name: MaxPodsPerOwner\n  pluginConfig", "- name: MaxPodsPerOwners\n  pluginConfig"))
    assert done.returncode != 0
    assert "profiles[0].plugins.multiPoint.enabled[0].name: expected" in done.stderr
    assert "'GpuShare'" in done.stderr
    assert "found 'MaxPodsPerOwners'; did you mean MaxPodsPerOwner?" in done.stderr


def test_an_argument_that_the_rule_does_not_have_is_named_by_its_path(newcomer: Newcomer) -> None:
    done = newcomer.simulate(("most: 2", "moist: 2"))
    assert done.returncode != 0
    assert "profiles[0].pluginConfig[0].args.moist: unknown field; did you mean most?" in done.stderr


@pytest.mark.parametrize("examples", [10, pytest.param(300, marks=pytest.mark.nightly)])
def test_the_rule_passes_its_own_test(newcomer: Newcomer, examples: int) -> None:
    """The test of the guide, with so many examples."""
    newcomer.write_its_test(examples)
    done = newcomer.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_without_hypothesis_the_kit_says_what_to_install(newcomer: Newcomer) -> None:
    hidden = "import sys; sys.modules['hypothesis'] = None; import scheduler.testing.rules.check"
    done = newcomer.run("python", "-c", hidden)
    assert (
        "ImportError: scheduler.testing.rules needs hypothesis: pip install 'gpushare-scheduler[testing]'"
        in done.stderr
    )
