"""Answers of `make` where something that it needs is missing, in a directory that looks like a clone; lists of tests.

The lists name tests by hand: those that another Kubernetes has to pass, the lanes of e2e, the mutation run.
"""

import os
import re
import shutil
import subprocess
import time
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT

REQUIREMENTS: Final = ("runtime.in", "runtime.txt", "build.txt", "dev.txt", "docs.txt")
A_PYTHON_THAT_RECORDS: Final = '#!/bin/sh\n[ "$1" = -m ] && echo "python $*"\n[ "$1" = -m ] || exec python3 "$@"\n'


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The Makefile and what its set-up looks at, in a path with a space; nothing set up."""
    clone = tmp_path / "a clone"
    (clone / "requirements").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", clone)
    for name in ("pyproject.toml", *(f"requirements/{one}" for one in REQUIREMENTS)):
        (clone / name).touch()
    return clone


@pytest.fixture
def ready_clone(clone: Path) -> Path:
    """The same, as set-up leaves it, with a Python that prints which modules it was asked to run."""
    program(clone / ".venv/bin/python", A_PYTHON_THAT_RECORDS)
    (clone / ".venv/.runtime").touch()
    (clone / ".venv/.project").write_text(f"{clone.resolve()}\n", encoding="utf-8")
    (clone / ".venv/.dev").touch()
    (clone / ".venv/.docs").touch()
    return clone


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    return path


def make(clone: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run make in `clone`, with the tests' environment less CI, plus `environment`."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTHON", "MAKEFLAGS"}}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=clone,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def go(directory: Path, version: str) -> str:
    """A PATH on which `go` is first, and says that it is `version`."""
    program(directory / "go", f'#!/bin/sh\n[ "$*" = "env GOVERSION" ] && echo {version}\n')
    return f"{directory}:{os.environ['PATH']}"


def test_recipes_do_not_see_the_kubeconfig_of_their_user(clone: Path) -> None:
    show = ("--eval", 'show: ; @echo "KUBECONFIG=$${KUBECONFIG-unset}"', "show")
    assert make(clone, *show, KUBECONFIG="/anything").stdout == "KUBECONFIG=unset\n"
    (clone / "Makefile").write_text("", encoding="utf-8")
    assert make(clone, *show, KUBECONFIG="/anything").stdout == "KUBECONFIG=/anything\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param(
            "#!/bin/sh\nexit 1\n",
            "Python >= 3.11 is needed and {} is not one: install it, or name it with PYTHON=/path/to/python3",
            id="Python is too old",
        ),
        pytest.param(
            '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\n',
            "the venv module of {} is missing: install it (Debian, Ubuntu: apt install python3-venv)",
            id="no venv module",
        ),
    ],
)
def test_one_line_says_what_set_up_lacks(clone: Path, script: str, message: str) -> None:
    python = program(clone / "other python", script)
    run = make(clone, "setup", f"PYTHON={python}")
    assert run.returncode != 0
    assert run.stderr.splitlines()[0] == f"set-up: {message.format(python)}"


def is_set_up(clone: Path, target: str) -> bool:
    """Whether make has nothing left to do for a target that only installs."""
    return make(clone, "--question", target).returncode == 0


def is_newer(file: Path) -> None:
    """Give the file a time after that of everything else."""
    os.utime(file, (time.time() + 60, time.time() + 60))


def test_a_clone_that_was_moved_is_set_up_again(ready_clone: Path) -> None:
    assert is_set_up(ready_clone, "setup")
    moved = ready_clone.rename(ready_clone.with_name("moved"))
    assert not is_set_up(moved, "setup")


@pytest.mark.parametrize(
    ("target", "runs"),
    [("demo", ".venv/bin/gpushare-scheduler demo"), ("cluster", ".venv/bin/python -m e2e.local_cluster up")],
)
def test_demo_and_cluster_install_what_running_needs_and_no_more(clone: Path, target: str, runs: str) -> None:
    planned = make(clone, "--dry-run", target).stdout
    assert "requirements/runtime.txt -r requirements/build.txt" in planned
    assert "dev.txt" not in planned
    assert planned.splitlines()[-1] == runs


@pytest.mark.parametrize("name", ["runtime.txt", "build.txt", "dev.txt"])
def test_other_requirements_are_installed_from_nothing(ready_clone: Path, name: str) -> None:
    is_newer(ready_clone / "requirements" / name)
    assert "-m venv --clear .venv" in make(ready_clone, "--dry-run", "setup").stdout


def test_what_makes_the_site_is_installed_for_those_who_need_it(ready_clone: Path) -> None:
    is_newer(ready_clone / "requirements/docs.txt")
    assert is_set_up(ready_clone, "setup")
    for target in ("docs-site", "test-deploy"):
        planned = make(ready_clone, "--dry-run", target).stdout
        assert "--require-hashes -r requirements/docs.txt" in planned
        assert "-m venv" not in planned


def test_a_release_needs_go_and_is_told_where_archives_will_lie(ready_clone: Path, tmp_path: Path) -> None:
    made = make(ready_clone, "release", "URL=https://example.com/v1", PATH=go(tmp_path / "bin", "go1.26.0"))
    assert made.stdout == "python -m e2e.release --url https://example.com/v1\n"
    old = make(ready_clone, "release", PATH=go(tmp_path / "bin", "go1.25.9"))
    assert old.returncode != 0
    assert old.stdout == "make release needs Go >= 1.26, and go on PATH is go1.25.9\n"


@pytest.mark.parametrize("failing", ["", "tests/", "e2e/"])
def test_unit_tests_and_those_on_servers_both_run_and_either_can_fail(
    ready_clone: Path, tmp_path: Path, failing: str
) -> None:
    for name in ("ruff", "mypy", "lint-imports"):
        program(ready_clone / ".venv/bin" / name, "#!/bin/sh\n")
    fails = f'case "$*" in *" {failing or "nothing"}") exit 1;; esac\n'
    program(ready_clone / ".venv/bin/python", A_PYTHON_THAT_RECORDS + fails)
    run = make(ready_clone, "test", PATH=go(tmp_path / "bin", "go1.26.0"), CI="true")
    ran = [line for line in run.stdout.splitlines() if line.startswith("python -m pytest")]
    assert {line.rpartition(" ")[2] for line in ran} == {"tests/", "e2e/"}
    assert (run.returncode == 0, "make test: passed" in run.stdout) == (not failing, not failing)


def test_on_another_cluster_nothing_is_built_and_no_go_is_needed(ready_clone: Path, tmp_path: Path) -> None:
    run = make(ready_clone, "e2e", PATH=go(tmp_path / "bin", "go1.25.9"), E2E_PROVIDER="existing", CI="true")
    assert run.returncode == 0, run.stderr
    assert "python -m pytest -q e2e/\n" in run.stdout
    assert "binaries" not in run.stdout


def test_without_go_one_line_says_what_was_skipped_and_why(ready_clone: Path, tmp_path: Path) -> None:
    run = make(ready_clone, "e2e", PATH=go(tmp_path / "bin", "go1.25.9"))
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[1:] == [
        "skipped: e2e/, the tests on a real kube-apiserver: they need Go >= 1.26 and go on PATH is go1.25.9"
    ]


@pytest.mark.parametrize("target", ["e2e", "test-deploy"])
def test_in_ci_skipping_is_a_failure(ready_clone: Path, tmp_path: Path, target: str) -> None:
    run = make(ready_clone, target, PATH=go(tmp_path / "bin", "go1.25.9"), CI="true")
    assert run.returncode != 0
    assert run.stdout.splitlines()[-1].endswith("go on PATH is go1.25.9; CI is set, so this is a failure")


def test_the_suites_for_other_kubernetes_versions_are_there() -> None:
    show = ("--eval", "show: ; @echo $(MINOR_TESTS)", "show")
    suites = make(ROOT, *show).stdout.split()
    assert len(suites) > 20
    assert [suite for suite in suites if not (ROOT / suite).is_file()] == []


def test_the_modules_of_the_lanes_are_there() -> None:
    lanes = (ROOT / "e2e/lanes.py").read_text(encoding="utf-8")
    named = set(re.findall(r'"(test_\w+)"', lanes))
    there = [path.stem for path in (ROOT / "e2e").rglob("test_*.py")]
    assert len(named) > 10
    assert named - {*there} == set()
    # A lane is named by the module alone.
    assert [name for name in named if there.count(name) > 1] == []


def test_what_the_mutation_run_names_is_there() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]
    named = [*settings["only_mutate"], *settings["pytest_add_cli_args_test_selection"], *settings["also_copy"]]
    assert [path for path in named if not (ROOT / path).exists()] == []
