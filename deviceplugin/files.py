"""Replacing a file of ours: whoever reads it, this process or the next, finds the old text or the new, whole."""

from pathlib import Path


def replace_file(path: Path, text: bytes) -> None:
    """Write beside `path`, then rename; the directory is there already. Raises OSError.

    The file beside is hidden and ends in `.tmp`: container runtimes do not read it, and no card's file is called so.
    Nobody else may replace the same file at the same time. Not synced to disk: a loss of power may bring the old text
    back.
    """
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_bytes(text)
    beside.replace(path)
