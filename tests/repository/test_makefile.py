"""What `make` says and does where something that it needs is missing, tried in a directory that looks like a clone."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT

A_PYTHON_THAT_RECORDS: Final = '#!/bin/sh\n[ "$1" = -m ] && echo "python $*"\n[ "$1" = -m ] || exec python3 "$@"\n'


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The Makefile and what its set-up looks at, in a path with a space; nothing set up."""
    clone = tmp_path / "a clone"
    (clone / "requirements").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", clone)
    for name in ("pyproject.toml", "requirements/dev.txt", "requirements/runtime.in"):
        (clone / name).touch()
    return clone


@pytest.fixture
def ready_clone(clone: Path) -> Path:
    """The same, as set-up leaves it, with a Python that prints which modules it was asked to run."""
    program(clone / ".venv/bin/python", A_PYTHON_THAT_RECORDS)
    (clone / ".venv/.packages").touch()
    (clone / ".venv/.project").write_text(f"{clone.resolve()}\n", encoding="utf-8")
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


def test_one_line_says_that_python_is_missing_or_too_old(clone: Path) -> None:
    old = program(clone / "old python", "#!/bin/sh\nexit 1\n")
    run = make(clone, "setup", f"PYTHON={old}")
    assert run.returncode != 0
    assert run.stderr.splitlines()[0] == (
        f"set-up: Python >= 3.11 is needed and {old} is not one: install it, or name it with PYTHON=/path/to/python3"
    )


def test_one_line_says_that_the_venv_module_is_missing(clone: Path) -> None:
    without_venv = program(clone / "python", '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\n')
    run = make(clone, "setup", PYTHON=str(without_venv))
    assert run.returncode != 0
    assert run.stderr.splitlines()[0] == (
        f"set-up: the venv module of {without_venv} is missing: install it (Debian, Ubuntu: apt install python3-venv)"
    )


def test_a_clone_that_was_moved_is_set_up_again(ready_clone: Path) -> None:
    assert make(ready_clone, "--question", "setup").returncode == 0
    moved = ready_clone.rename(ready_clone.with_name("moved"))
    assert make(moved, "--question", "setup").returncode == 1


def test_with_go_the_servers_are_built_and_the_tests_run(ready_clone: Path, tmp_path: Path) -> None:
    run = make(ready_clone, "e2e", PATH=go(tmp_path / "bin", "go1.26.0"), CI="true")
    assert run.returncode == 0, run.stderr
    assert "python -m e2e.control_plane.binaries\npython -m pytest -q e2e/\n" in run.stdout


def test_without_go_one_line_says_what_was_skipped_and_why(ready_clone: Path, tmp_path: Path) -> None:
    run = make(ready_clone, "e2e", PATH=go(tmp_path / "bin", "go1.25.9"))
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[1:] == [
        "skipped: e2e/, the tests on a real kube-apiserver: they need Go >= 1.26 and go on PATH is go1.25.9"
    ]


def test_in_ci_skipping_is_a_failure(ready_clone: Path, tmp_path: Path) -> None:
    run = make(ready_clone, "e2e", PATH=go(tmp_path / "bin", "go1.25.9"), CI="true")
    assert run.returncode != 0
    assert run.stdout.splitlines()[-1].endswith("go on PATH is go1.25.9; CI is set, so this is a failure")
