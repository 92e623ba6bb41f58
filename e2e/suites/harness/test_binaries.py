"""The builder of the servers, with a `go`, an `apt-get` and a `dpkg` on PATH that the test wrote."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from e2e.control_plane import binaries, cache, pinned
from tests.support.repository import ROOT

BUILDS = """\
case $1 in
env) echo go1.26.0;;
build)
    while [ "$1" != -o ]; do shift; done
    to=$2; shift 2
    if [ -d "$to" ]; then for package in "$@"; do echo "${package##*/}" >"$to/${package##*/}"; done
    else echo made >"$to"; fi;;
esac"""
FAILS = "case $1 in env) echo go1.26.0;; build) echo broken module; exit 1;; esac"
DOWNLOADS = '[ "$3" = download ] && : >"$4_1.0_amd64.deb"'
UNPACKS = '/bin/mkdir -p "$3/bin" && echo made >"$3/bin/program"'


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a program with that body on PATH, beside no other, and an empty cache in place."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def write(name: str, body: str) -> None:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    return write


@pytest.fixture
def go(program: Callable[[str, str], None]) -> Callable[[str], None]:
    return partial(program, "go")


def test_a_server_is_built_once(go: Callable[[str], None]) -> None:
    said: list[str] = []
    go(BUILDS)
    first = binaries.ensure(["etcd"], said.append)["etcd"]
    go(FAILS)

    assert binaries.ensure(["etcd"], said.append)["etcd"] == first
    assert first.read_text() == "made\n"
    assert [line.split()[0] for line in said] == ["building", "built"]


def test_without_go_it_says_which_go_is_needed(go: Callable[[str], None]) -> None:
    del go
    with pytest.raises(binaries.GoUnavailable, match=r"Go is not on PATH.* Go >= 1\.26"):
        binaries.ensure(["etcd"])


def test_two_builders_at_once_build_once(go: Callable[[str], None], tmp_path: Path) -> None:
    log = tmp_path / "builds"
    go(f'[ "$1" = build ] && echo build >>{log}; {BUILDS}')
    build = [sys.executable, "-m", "e2e.control_plane.binaries", "etcd"]
    both = [subprocess.Popen(build, cwd=ROOT, env=os.environ, stderr=subprocess.DEVNULL) for _ in range(2)]

    assert [process.wait() for process in both] == [0, 0]
    assert log.read_text() == "build\n"


@pytest.mark.parametrize("minor", pinned.other_minors())
def test_another_kubernetes_is_of_the_minor_that_its_folder_names_and_lies_elsewhere(
    go: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, minor: str
) -> None:
    go(BUILDS)
    monkeypatch.delenv("E2E_KUBERNETES", raising=False)
    usual = binaries.ensure(["kubelet", "etcd"], lambda _: None)
    monkeypatch.setenv("E2E_KUBERNETES", minor)
    other = binaries.ensure(["kubelet", "etcd"], lambda _: None)

    assert pinned.kubernetes_version().startswith(f"v{minor}.")
    assert f"gitVersion={pinned.kubernetes_version()}" in binaries.linker_flags(pinned.kubernetes_module())
    assert other["kubelet"] != usual["kubelet"]
    assert other["etcd"] == usual["etcd"]


def test_a_kubernetes_that_is_not_there_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2E_KUBERNETES", "1.2")
    with pytest.raises(pinned.NoSuchKubernetes, match=f"E2E_KUBERNETES=1.2: choose one of {pinned.other_minors()[0]}"):
        binaries.ensure(["kubelet"])


def test_a_package_is_fetched_once(program: Callable[[str, str], None]) -> None:
    program("apt-get", DOWNLOADS)
    program("dpkg", UNPACKS)
    first = cache.debian_package("some-package", lambda _: None)
    program("apt-get", "exit 1")

    assert cache.debian_package("some-package", lambda _: None) == first
    assert (first / "bin" / "program").read_text() == "made\n"
