"""Archives that are the same bytes for the same files, whoever makes them and when; and their checksums."""

import gzip
import hashlib
import io
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Final

SUMS: Final = "SHA256SUMS"
_BLOCK: Final = 2**20
_LEVEL: Final = 6  # 9 takes four times as long, for a hundredth less


def pack(folder: Path, target: Path, epoch_s: int) -> Path:
    """Write all files of the folder as `target`, a .tar.gz: by name, of nobody, each of that time."""
    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=epoch_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size, entry.mtime = len(content), epoch_s
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return target


def repack(made: Path, target: Path, epoch_s: int) -> Path:
    """Write what `made`, a .tar.gz, holds as `pack` does."""
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(made) as archive:
            archive.extractall(scratch, filter="data")
        return pack(Path(scratch), target, epoch_s)


def compress(file: Path, target: Path, epoch_s: int) -> Path:
    """Write the file as `target`, a .gz."""
    with (
        file.open("rb") as whole,
        target.open("wb") as out,
        gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=_LEVEL, mtime=epoch_s) as packed,
    ):
        shutil.copyfileobj(whole, packed, _BLOCK)
    return target


def sha256(path: Path) -> str:
    """Of the file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def write_sums(folder: Path) -> Path:
    """Write `SHA256SUMS` of all other files in the folder, as `sha256sum --check` reads it."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    target = folder / SUMS
    target.write_text("".join(f"{sha256(path)}  {path.name}\n" for path in files), encoding="utf-8")
    return target
