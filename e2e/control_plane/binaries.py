"""The programs of a control plane and of a node, built from the Go modules under `servers/`.

    python -m e2e.control_plane.binaries                  build all that can be used here, or report that they exist
    python -m e2e.control_plane.binaries etcd kube-apiserver
    E2E_KUBERNETES=1.34 python -m e2e.control_plane.binaries  the same, with the Kubernetes of `servers/kubernetes-1.34`

They are in the user's cache folder, one folder per hash of their inputs (module files, flags, Go's version), so another
version never overwrites one in use. Only root can use the programs of a node. Exit codes: 0 all built, 1 a build
failed, 3 Go or another build tool is missing or too old.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from e2e.control_plane import cache
from e2e.control_plane.cache import Say, to_stderr
from e2e.control_plane.pinned import (
    MODULES,
    TESTED,
    NoSuchKubernetes,
    kubernetes_module,
    kubernetes_of,
    required_go,
)

PROGRESS_EVERY_S: Final = 15.0
UNAVAILABLE_EXIT: Final = 3

_CONTAINERD: Final = "github.com/containerd/containerd/v2/cmd"
_TOOLKIT: Final = "github.com/NVIDIA/nvidia-container-toolkit/cmd"
_VERSION_PACKAGE: Final = "k8s.io/component-base/version"
# The linker drops the debug information, so the compiler need not write it, which saves a seventh of the time.
_BUILD_FLAGS: Final = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false")
# By module: without tags, runc cannot set up the seccomp filter that the kubelet requests, containerd requires the
# header files of btrfs, and promtool is built with the libraries of every cloud.
_TAGS: Final = {"containerd": "no_btrfs", "runc": "seccomp,netgo,osusergo", "promtool": "remove_all_sd"}
_LIBRARY: Final = "libseccomp-dev"
_IN_C: Final = frozenset({"runc", "toolkit"})


class GoUnavailable(Exception):
    """Go is not on PATH, or is older than the module requires and may not download a newer one."""


class CompilerUnavailable(Exception):
    """A program is partly written in C, and its compiler is not on PATH."""


class BuildFailed(Exception):
    """`go build` failed; the message ends with the end of its output."""


@dataclass(frozen=True, slots=True)
class GoProgram:
    """One program: the folder under `servers/` whose go.mod pins it, and its main package."""

    module: str
    package: str


PROGRAMS: Final[dict[str, GoProgram]] = {
    "etcd": GoProgram("etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": GoProgram("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-scheduler": GoProgram("kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kube-controller-manager": GoProgram("kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kubelet": GoProgram("kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
    "containerd": GoProgram("containerd", f"{_CONTAINERD}/containerd"),
    "containerd-shim-runc-v2": GoProgram("containerd", f"{_CONTAINERD}/containerd-shim-runc-v2"),
    "ctr": GoProgram("containerd", f"{_CONTAINERD}/ctr"),
    "runc": GoProgram("runc", "github.com/opencontainers/runc"),
    "pause": GoProgram("pause", "."),
    "nvidia-ctk": GoProgram("toolkit", f"{_TOOLKIT}/nvidia-ctk"),
    "nvidia-cdi-hook": GoProgram("toolkit", f"{_TOOLKIT}/nvidia-cdi-hook"),
    "nvidia-container-runtime": GoProgram("toolkit", f"{_TOOLKIT}/nvidia-container-runtime"),
    "kube-scheduler-oracle": GoProgram("oracle", "."),
    "kubectl": GoProgram("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    "promtool": GoProgram("promtool", "github.com/prometheus/prometheus/cmd/promtool"),
    "helm": GoProgram("helm", "helm.sh/helm/v4/cmd/helm"),
    "kueue": GoProgram("kueue", "sigs.k8s.io/kueue/cmd/kueue"),
}
OF_A_NODE: Final = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "pause")
# NVIDIA's container toolkit, for nodes with stand-ins for the driver.
OF_NVIDIA: Final = ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime")
# Built on demand: `tests.differential.record`, `e2e.local_cluster`, and the tests of `e2e/deploy`.
ON_DEMAND: Final = ("kube-scheduler-oracle", "kubectl", "promtool", "helm", "kueue")


def ensure(names: Iterable[str], say: Say | None = None) -> dict[str, Path]:
    """Return the paths of the named servers; missing ones are built (minutes when cold).

    names: keys of `PROGRAMS`. say: receives progress, one line at a time; default: standard error.
    Raises GoUnavailable, BuildFailed, NoSuchKubernetes, KeyError for an unknown name; for runc also
    CompilerUnavailable and cache.PackageUnavailable.
    """
    wanted = {name: _of_the_version_asked_for(PROGRAMS[name]) for name in names}
    modules = {program.module for program in wanted.values()}
    folders = {module: folder_of(module, go_version(MODULES / module)) for module in modules}
    targets = {name: folders[program.module] / name for name, program in wanted.items()}
    missing = [name for name, target in targets.items() if not target.exists()]
    turns = list(dict.fromkeys(wanted[name].module for name in missing))
    for number, module in enumerate(turns, 1):
        programs = {name: wanted[name] for name in missing if wanted[name].module == module}
        of_module = {name: targets[name] for name in programs}
        build = _Build(module, programs, of_module, f"{number} of {len(turns)}")
        _ensure_module(build, say or to_stderr)
    return targets


def go_version(module: Path) -> str:
    """Return the version of Go that builds the module, as `go1.26.0`. Raises GoUnavailable."""
    if shutil.which("go") is None:
        wanted = required_go(module)
        message = f"Go is not on PATH; building the Kubernetes servers takes Go >= {wanted}"
        raise GoUnavailable(message)
    answer = subprocess.run(["go", "env", "GOVERSION"], cwd=module, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        last_line = (answer.stderr.strip().splitlines() or ["go env GOVERSION failed"])[-1]
        raise GoUnavailable(last_line)
    return answer.stdout.strip()


def _of_the_version_asked_for(server: GoProgram) -> GoProgram:
    return GoProgram(kubernetes_module(), server.package) if server.module == TESTED else server


def linker_flags(module: str) -> str:
    """Return flags for `go build -ldflags`: small, and for Kubernetes the version that it announces."""
    if module == "runc":
        return "-s -w -extldflags -static"
    # Kubernetes reads its own version if a feature depends on it, in the oracle too; kubectl prints it.
    if not module.startswith((TESTED, "oracle", "kubectl")):
        return "-s -w"
    version = kubernetes_of(module)
    major, minor, _ = version.removeprefix("v").split(".")
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(f"-X {_VERSION_PACKAGE}.{key}={stamps[key]}" for key in stamps)


def folder_of(module: str, version_of_go: str) -> Path:
    """Return the folder of a module's programs: one per content of the build's inputs."""
    digest = hashlib.sha256()
    sources = [path.read_bytes() for path in sorted((MODULES / module).iterdir())]
    flags = " ".join((*_BUILD_FLAGS, *_tags(module), linker_flags(module), version_of_go))
    for part in (*sources, flags.encode()):
        digest.update(hashlib.sha256(part).digest())
    return cache.folder() / "servers" / digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Build:
    """Missing programs of one module, by name, and their paths. turn: such as `2 of 9`."""

    module: str
    programs: dict[str, GoProgram]
    targets: dict[str, Path]
    turn: str


def _ensure_module(build: _Build, say: Say) -> None:
    folder = next(iter(build.targets.values())).parent
    folder.mkdir(parents=True, exist_ok=True)
    with cache.alone(folder / ".lock", f"building {', '.join(build.programs)}", say):
        missing = {name: program for name, program in build.programs.items() if not build.targets[name].exists()}
        if missing:
            _build(replace(build, programs=missing), folder, say)


def _build(of: _Build, folder: Path, say: Say) -> None:
    """Build next to the targets and rename, so that a program is complete or missing."""
    started_s = time.monotonic()
    environment = os.environ | {"GOWORK": "off"} | _c_settings(of.module, say)
    names = f"{', '.join(of.programs)}, {of.turn}"
    say(f"building {names} (once; minutes when Go's cache is cold)")
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch,
        tempfile.TemporaryFile("w+") as log,
    ):
        build = subprocess.Popen(
            [*_low_priority(), *_go_build(of, Path(scratch))],
            cwd=MODULES / of.module,
            env=environment,
            stdout=log,
            stderr=log,
        )
        exit_code = _wait(build, lambda: say(f"  {names}: {_clock(started_s)}"))
        if exit_code != 0:
            log.seek(0)
            message = f"{', '.join(of.programs)}: go build failed\n{log.read()[-4000:]}"
            raise BuildFailed(message)
        for name in of.programs:
            (Path(scratch) / name).rename(of.targets[name])
    say(f"built {', '.join(of.programs)} in {_clock(started_s)}")


def _wait(build: subprocess.Popen[bytes], still_running: Callable[[], None]) -> int:
    try:
        while True:
            try:
                return build.wait(PROGRESS_EVERY_S)
            except subprocess.TimeoutExpired:
                still_running()
    except BaseException:
        build.terminate()
        build.wait()
        raise


def _go_build(of: _Build, scratch: Path) -> list[str]:
    """Return the command that builds all programs at once: packages of the next compile while one is linked."""
    flags = [*_BUILD_FLAGS, *_tags(of.module), "-ldflags", linker_flags(of.module)]
    # If there are several programs, each is named by the last element of its package's path.
    target = scratch / next(iter(of.programs)) if len(of.programs) == 1 else scratch
    return ["go", "build", *flags, "-o", str(target), *(program.package for program in of.programs.values())]


def _tags(module: str) -> list[str]:
    return ["-tags", _TAGS[module]] if module in _TAGS else []


def _c_settings(module: str, say: Say) -> dict[str, str]:
    """Return the environment for `go build`: no C, except for NVIDIA's toolkit and runc.

    runc enters namespaces before Go starts.
    """
    if module not in _IN_C:
        return {"CGO_ENABLED": "0"}
    missing = [program for program in ("gcc", "pkg-config") if shutil.which(program) is None]
    if missing:
        raise CompilerUnavailable(f"{missing[0]} is not on PATH; building {module} takes it")
    if module != "runc":
        return {"CGO_ENABLED": "1"}
    files = cache.debian_package(_LIBRARY, say) / "usr"
    (described,) = files.glob("lib/*/pkgconfig")
    return {
        "CGO_ENABLED": "1",
        "CGO_CFLAGS": f"-I{files / 'include'}",
        "CGO_LDFLAGS": f"-L{described.parent}",
        "PKG_CONFIG_PATH": str(described),
    }


def _low_priority() -> list[str]:
    return ["nice", "-n", "10"] if shutil.which("nice") else []


def _clock(started_s: float) -> str:
    minutes, seconds = divmod(int(time.monotonic() - started_s), 60)
    return f"{minutes}:{seconds:02d}"


def main(arguments: list[str] | None = None) -> int:
    """Build the named programs and print their locations."""
    parser = argparse.ArgumentParser(prog="python -m e2e.control_plane.binaries", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *PROGRAMS], metavar="NAME")
    names = parser.parse_args(arguments).names
    try:
        _print(ensure(names or [name for name in PROGRAMS if name not in (*OF_A_NODE, *OF_NVIDIA, *ON_DEMAND)]))
    except (GoUnavailable, CompilerUnavailable, cache.PackageUnavailable) as error:
        to_stderr(f"{error}")
        return UNAVAILABLE_EXIT
    except (BuildFailed, NoSuchKubernetes) as error:
        to_stderr(f"{error}")
        return 1
    return 0 if names or os.geteuid() != 0 else _of_a_node()


def _of_a_node() -> int:
    """Build the programs of a node; failing is acceptable here: the tests that need them report it."""
    try:
        _print(ensure((*OF_A_NODE, *OF_NVIDIA)))
    except (GoUnavailable, CompilerUnavailable, cache.PackageUnavailable) as error:
        to_stderr(f"not built, the programs of a node: {error}")
    except BuildFailed as error:
        to_stderr(f"{error}")
        return 1
    return 0


def _print(paths: dict[str, Path]) -> None:
    for name, path in paths.items():
        sys.stdout.write(f"{name} {path}\n")


if __name__ == "__main__":
    sys.exit(main())
