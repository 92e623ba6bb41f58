"""The directory of CDI documents: ours written and removed, NVIDIA's read, and written where only nvidia-ctk is there.

Every call blocks for as long as the disk takes, `generate_nvidia` for as long as nvidia-ctk does.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from deviceplugin.cdi.edits import Json
from deviceplugin.cdi.spec import CdiError, NvidiaSpec, nvidia_spec

_OURS: Final = re.compile(r"gpushare-([0-9a-f]{16})\.json", re.ASCII)
_HANDLE: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_DOCUMENTS: Final = frozenset({".json", ".yaml"})  # what container runtimes read; source: pkg/cdi/spec-dirs.go
_LARGEST: Final = 4_194_304
_LONGEST_WORDS: Final = 500
NVIDIA_CTK: Final = "nvidia-ctk"


class HandleFiles:
    """One file per handle, `gpushare-<handle>.json`; every other file of the directory is somebody else's."""

    def __init__(self, directory: Path) -> None:
        """directory: one that the container runtime reads; made when it is not there."""
        self._directory = directory

    def write(self, handle: str, document: Json) -> Path:
        """Write or replace the handle's file; a reader sees the old one or the new one, whole. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._path(handle)
        # Runtimes read by suffix, so this one they do not see. One container starts once at a time: no one else has it.
        beside = path.with_suffix(".tmp")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))
        beside.replace(path)
        return path

    def present(self) -> dict[str, int]:
        """Handle -> number of the file that it has now. Raises OSError."""
        if not self._directory.is_dir():
            return {}
        named = ((_OURS.fullmatch(path.name), path) for path in self._directory.iterdir())
        return {match.group(1): path.stat().st_ino for match, path in named if match}

    def remove(self, unused: Mapping[str, int]) -> list[str]:
        """Remove the files of handles that nobody uses; returns those removed. Raises OSError.

        unused: taken from `present` **before** it was asked which handles are in use. A file that was written since is
        another one, and stays.
        """
        now = self.present()
        gone = [handle for handle, number in sorted(unused.items()) if now.get(handle) == number]
        for handle in gone:
            self._path(handle).unlink(missing_ok=True)
        return gone

    def _path(self, handle: str) -> Path:
        if not _HANDLE.fullmatch(handle):
            message = f"{handle[:64]!r} is no handle; expected 16 hexadecimal digits"
            raise ValueError(message)
        return self._directory / f"gpushare-{handle}.json"


@dataclass(frozen=True, slots=True)
class NvidiaSpecs:
    """specs: by priority, the highest last. problems: the files that could not be read, and why."""

    specs: tuple[NvidiaSpec, ...]
    problems: tuple[str, ...] = ()


def read_nvidia(directories: Sequence[Path]) -> NvidiaSpecs:
    """NVIDIA's documents in these directories, by priority, the highest last; one that is not there is empty."""
    specs, problems = [], []
    for path in (path for directory in directories for path in _documents(directory)):
        try:
            spec = nvidia_spec(str(path), _text(path))
        except (CdiError, OSError, UnicodeError) as error:
            problems.append(f"{path}: {error}" if isinstance(error, UnicodeError) else str(error))
            continue
        specs += [spec] if spec else []
    return NvidiaSpecs(tuple(specs), tuple(problems))


def generate_nvidia(output: Path, *, timeout_s: float, ctk: str = NVIDIA_CTK) -> str:
    """Let nvidia-ctk write its document of all cards, by UUID; returns why it could not, "" when it did.

    Call where `read_nvidia` finds none. output: the file, with a suffix `.yaml` or `.json`.
    """
    program = shutil.which(ctk)
    if program is None:
        return f"{ctk} is not installed here"
    kind = f"--format={output.suffix.removeprefix('.')}"
    argv = [program, "cdi", "generate", f"--output={output}", kind, "--device-name-strategy=uuid"]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=timeout_s, check=False)  # noqa: S603  (no shell, no word from outside)
    except subprocess.TimeoutExpired:
        return f"{ctk} cdi generate took longer than {timeout_s:g} s"
    except OSError as error:
        return f"{ctk} cannot be run: {error}"
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()[-_LONGEST_WORDS:]
        return f"{ctk} cdi generate ended with {done.returncode}: {words}"
    return ""


def _documents(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(p for p in directory.iterdir() if p.suffix in _DOCUMENTS and not _OURS.fullmatch(p.name))


def _text(path: Path) -> str:
    size = path.stat().st_size
    if size > _LARGEST:
        message = f"{path}: has {size} bytes; expected at most {_LARGEST}"
        raise CdiError(message)
    return path.read_text(encoding="utf-8")
