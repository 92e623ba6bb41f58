"""The directories of CDI specs: writes and removes ours, reads NVIDIA's, or generates one if there is only nvidia-ctk.

Every call blocks on the disk, and `generate_nvidia` blocks until nvidia-ctk ends.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from deviceplugin.cdi.edits import Json
from deviceplugin.cdi.nvidia_spec import MARK, NvidiaSpec, nvidia_spec
from deviceplugin.cdi.spec import CdiError
from deviceplugin.files import replace_file

_OURS: Final = re.compile(r"gpushare-([0-9a-f]{16})\.json", re.ASCII)
# Including the temporary files of `replace_file`.
_LEFT: Final = re.compile(rf"(?:{_OURS.pattern}|\.{_OURS.pattern}\.tmp)", re.ASCII)
_DEVICE_NAME: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_SUFFIXES: Final = frozenset({".json", ".yaml"})  # read by container runtimes; source: pkg/cdi/spec-dirs.go
_LARGEST: Final = 4_194_304
_MOST_FILES: Final = 1024
_LONGEST_STDERR: Final = 500
NVIDIA_CTK: Final = "nvidia-ctk"

_Stamp: TypeAlias = tuple[int, int, int] | None


class SpecFiles:
    """One spec per CDI device, `gpushare-<device name>.json`; other files of the directory belong to other programs."""

    def __init__(self, directory: Path) -> None:
        """directory: one that the container runtime reads; created if it is missing."""
        self._directory = directory

    def write(self, device: str, wire: Json) -> Path:
        """Write or replace the spec of this device name. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._path(device)
        # A container has one start at a time, so this file has one writer.
        replace_file(path, msgspec.json.format(msgspec.json.encode(wire), indent=1))
        return path

    def present(self) -> dict[str, int]:
        """Return device name -> inode of its spec. Raises OSError."""
        if not self._directory.is_dir():
            return {}
        named = ((_OURS.fullmatch(path.name), path) for path in self._directory.iterdir())
        return {match.group(1): path.stat().st_ino for match, path in named if match}

    def written(self) -> dict[Path, str]:
        """Return our files mapped to device names, including unfinished files from an earlier run.

        Raises OSError.
        """
        if not self._directory.is_dir():
            return {}
        named = ((_LEFT.fullmatch(path.name), path) for path in self._directory.iterdir())
        return {path: match.group(1) or match.group(2) for match, path in named if match}

    def remove(self, unused: Mapping[str, int]) -> list[str]:
        """Remove the specs of unused device names. Return the removed names. Raises OSError.

        unused: taken from `present` **before** asking which device names are in use. A spec written since then has
        another inode and is kept.
        """
        now = self.present()
        gone = [device for device, inode in sorted(unused.items()) if now.get(device) == inode]
        for device in gone:
            self._path(device).unlink(missing_ok=True)
        return gone

    def _path(self, device: str) -> Path:
        if not _DEVICE_NAME.fullmatch(device):
            raise ValueError(f"{device[:64]!r} is not a device name of the plugin; expected 16 hexadecimal digits")
        return self._directory / f"gpushare-{device}.json"


@dataclass(frozen=True, slots=True)
class NvidiaSpecs:
    """NVIDIA's specs. specs: by priority, the highest last. problems: the files that could not be read, and why."""

    specs: tuple[NvidiaSpec, ...]
    problems: tuple[str, ...] = ()


class NvidiaSpecTree:
    """NVIDIA's specs in these directories, by priority, the highest last; a missing directory counts as empty.

    A file is read only if it has changed (inode, size, modification time), and parsed only if it names one of NVIDIA's
    kinds: other programs write CDI specs there too. Not thread-safe.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = tuple(directories)
        self._known: dict[Path, tuple[_Stamp, NvidiaSpec | str | None]] = {}

    def read(self) -> NvidiaSpecs:
        """Read the specs from the current files."""
        known, problems = self._known, []
        self._known = {}
        for directory in self._directories:
            try:
                paths = _spec_paths(directory)
            except OSError as error:
                problems.append(f"{directory} cannot be read: {error.strerror}")
                continue
            if len(paths) > _MOST_FILES:
                problems.append(
                    f"{directory} has {len(paths)} CDI specs; only the first {_MOST_FILES} by name are read"
                )
            for path in paths[:_MOST_FILES]:
                stamp = _stamp(path)
                before = known.get(path)
                fresh = before is None or stamp is None or before[0] != stamp
                self._known[path] = (stamp, _read(path)) if fresh or before is None else before
        found = [result for _, result in self._known.values()]
        problems += [one for one in found if isinstance(one, str)]
        return NvidiaSpecs(tuple(one for one in found if isinstance(one, NvidiaSpec)), tuple(problems))


def generate_nvidia(output: Path, *, timeout_s: float, ctk: str = NVIDIA_CTK) -> str:
    """Run nvidia-ctk to generate a spec of all cards, named by UUID. Return why it failed; "" if it succeeded.

    Call it if `NvidiaSpecTree` finds no spec. output: the file, with a suffix `.yaml` or `.json`.
    """
    program = shutil.which(ctk)
    if program is None:
        return f"{ctk} is not installed here"
    kind = f"--format={output.suffix.removeprefix('.')}"
    argv = [program, "cdi", "generate", f"--output={output}", kind, "--device-name-strategy=uuid"]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=timeout_s, check=False)  # noqa: S603  (no shell, nothing from outside)
    except subprocess.TimeoutExpired:
        return f"{ctk} cdi generate took longer than {timeout_s:g} s"
    except OSError as error:
        return f"{ctk} cannot be run: {error}"
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-_LONGEST_STDERR:]
        return f"{ctk} cdi generate exited with code {done.returncode}: {said}"
    return ""


def _spec_paths(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(p for p in directory.iterdir() if p.suffix in _SUFFIXES and not _OURS.fullmatch(p.name))


def _stamp(path: Path) -> _Stamp:
    """Return time, size and inode; None if they cannot be read: reading the file then gives the reason."""
    try:
        now = path.stat()
    except OSError:
        return None
    return now.st_mtime_ns, now.st_size, now.st_ino


def _read(path: Path) -> NvidiaSpec | str | None:
    """Return the spec in the file; a message if it cannot be read; None if it is of another vendor's kind."""
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            return f"{path} has {size} bytes; expected at most {_LARGEST}"
        text = path.read_bytes()
        return nvidia_spec(str(path), text.decode()) if MARK in text else None
    except UnicodeError as error:
        return f"{path}: {error}"
    except (CdiError, OSError) as error:
        return str(error)
