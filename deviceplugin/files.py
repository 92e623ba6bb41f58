"""Replaces a file of ours atomically: a reader finds the old text or the new one, always complete."""

from pathlib import Path


def temporary(path: Path) -> Path:
    """Return the temporary file of `replace_file`; left over only if the process ended while writing.

    It is hidden and ends in `.tmp`: container runtimes do not read it, and no card's file has such a name.
    """
    return path.with_name(f".{path.name}.tmp")


def replace_file(path: Path, text: bytes) -> None:
    """Write next to `path`, then rename; the directory must exist. Raises OSError.

    One writer at a time. Not synced to disk: a power loss may restore the old text.
    """
    written = temporary(path)
    written.write_bytes(text)
    written.replace(path)
