"""Copy what the programs need of this file system to the root of their image: CPython, its libraries, the programs.

    python3 root.py ENVIRONMENT ROOT

ENVIRONMENT: the virtual environment with the programs; it has the same path in the image. No shell, no package
manager, no pip, no compiler goes along. Debian's packages of which a file is copied are recorded in
/var/lib/dpkg/status.d, where scanners look. Takes Linux with glibc.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

# Left out of the environment, and of the standard library.
OF_THE_ENVIRONMENT: Final = ("activate*", "Activate*", "tests")
OF_THE_LIBRARY: Final = (
    "__pycache__",
    "config-*",
    "ensurepip",
    "idlelib",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
    "venv",
    "_tkinter*",
)
# How Debian looks from outside: scanners, and the NVIDIA runtime that brings libraries in, ask these. ldconfig finds
# what is brought in.
OF_THE_SYSTEM: Final = (
    "/etc/debian_version",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/sbin/ldconfig",
    "/sbin/ldconfig",
)
# NVIDIA's libraries come from the node and load these, which the interpreter may not need. Source: ldd of
# libnvidia-ml.so.1 and libcuda.so.1.
OF_NVIDIAS_LIBRARIES: Final = ("libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1")
MERGED: Final = ("/bin", "/lib", "/lib64", "/sbin")  # links into /usr, where Debian has merged them
FOLDERS: Final = ("/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/usr/bin", "/usr/sbin", "/usr/lib64")
PEOPLE: Final = {
    "/etc/passwd": "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n",
    "/etc/group": "root:x:0:\nnonroot:x:65532:\n",
}
_LIBRARY: Final = re.compile(r"^\s+(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
_LISTED: Final = re.compile(r"^\t(\S+) \(.*\) => (/\S+)$", re.MULTILINE)
_PACKAGE: Final = re.compile(r"^(?!diversion by )([^:\s]+)(?::\S+)?: /", re.MULTILINE)


def main(environment: Path, root: Path) -> None:
    """Make the root; it must not be there yet."""
    for folder in FOLDERS:
        inside(root, Path(folder)).mkdir(parents=True, exist_ok=True)
    inside(root, Path("/tmp")).chmod(0o1777)
    for link in (path for path in map(Path, MERGED) if path.is_symlink()):
        copy(link, root)
    for place, text in PEOPLE.items():
        inside(root, Path(place)).write_text(text, encoding="utf-8")
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library, inside(root, library), symlinks=True, ignore=shutil.ignore_patterns(*OF_THE_LIBRARY))
    left_out = shutil.ignore_patterns(*OF_THE_ENVIRONMENT)
    shutil.copytree(environment, inside(root, environment), symlinks=True, ignore=left_out)
    for path in (
        Path(sys.executable),
        *map(Path, OF_THE_SYSTEM),
        *libraries_of(root, environment),
        *named(OF_NVIDIAS_LIBRARIES),
    ):
        copy(path, root)
    subprocess.run(["ldconfig", "-r", root], check=True)
    shutil.rmtree(inside(root, Path("/var/cache/ldconfig")), ignore_errors=True)
    record_packages(root)


def inside(root: Path, path: Path) -> Path:
    """Where an absolute path is in the image's root."""
    return root / path.relative_to("/")


def copy(path: Path, root: Path) -> None:
    """Copy a file, a folder, or a link and what it leads to, to where it really is; what is not there is left out."""
    path = path.parent.resolve() / path.name
    target = inside(root, path)
    if target.is_symlink() or target.exists() or not path.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        target.symlink_to(path.readlink())
        if not (led := path.parent / path.readlink()).is_dir():
            copy(led, root)
    elif path.is_dir():
        shutil.copytree(path, target, symlinks=True)
    else:
        shutil.copy2(path, target)


def libraries_of(root: Path, environment: Path) -> list[Path]:
    """Shared libraries outside the environment that the interpreter and all of its modules load, each once."""
    modules = [path for path in root.rglob("*.so*") if path.is_file()]
    programs = [Path(sys.executable).resolve(), *(Path("/") / path.relative_to(root) for path in modules)]
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    if missing := [line.strip() for line in told.splitlines() if line.endswith("not found")]:
        sys.exit(f"libraries that are not here: {', '.join(missing)}")
    found = sorted({Path(name) for name in _LIBRARY.findall(told)})
    return [path for path in found if not path.is_relative_to(environment)]


def named(libraries: Iterable[str]) -> list[Path]:
    """Where the dynamic loader finds these libraries. Ends the program where it lacks one."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    # The first line of a name is of this machine's own architecture.
    places = {name: Path(place) for name, place in reversed(_LISTED.findall(listed))}
    if missing := [name for name in libraries if name not in places]:
        sys.exit(f"libraries that are not here: {', '.join(missing)}")
    return [places[name] for name in libraries]


def record_packages(root: Path) -> None:
    """Write down the Debian packages of the files, one file each, as `dpkg` describes them."""
    folder = inside(root, Path("/var/lib/dpkg/status.d"))
    folder.mkdir(parents=True)
    for name in packages_of(Path("/") / path.relative_to(root) for path in root.rglob("*") if path.is_file()):
        told = subprocess.run(["dpkg-query", "--status", name], capture_output=True, text=True, check=True).stdout
        (folder / name).write_text(told, encoding="utf-8")


def packages_of(paths: Iterable[Path]) -> Iterator[str]:
    """Names of the packages that have these files, in order; a file that no package has belongs to none."""
    listed = sorted(str(path) for path in paths)
    found = set()
    for first in range(0, len(listed), 500):
        command = ["dpkg-query", "--search", *listed[first : first + 500]]
        # Exit code 1 where a file belongs to no package.
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        found.update(_PACKAGE.findall(told))
    yield from sorted(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
