"""Replacing a file of ours: whoever reads it, this process or the next, finds the old text or the new, whole."""

from pathlib import Path


def beside(path: Path) -> Path:
    """What `replace_file` writes first; there afterwards only if the process ended meanwhile.

    It is hidden and ends in `.tmp`: container runtimes do not read it, and no card's file is called so.
    """
    return path.with_name(f".{path.name}.tmp")


def replace_file(path: Path, text: bytes) -> None:
    """Write beside `path`, then rename; the directory is there already. Raises OSError.

    Nobody else may replace the same file at the same time. Not synced to disk: a loss of power may bring the old text
    back.
    """
    written = beside(path)
    written.write_bytes(text)
    written.replace(path)
