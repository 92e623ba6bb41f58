"""Files of the page, as sent to browsers."""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final

from scheduler.tools.page import static

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def files() -> Mapping[str, tuple[bytes, str]]:
    """Return (content, type) of each file of the page, by path.

    Files are read once, so a request cannot name any other file of the machine.
    """
    folder = Path(static.__path__[0])
    found = {
        f"/{file.name}": (file.read_bytes(), _TYPES[file.suffix]) for file in folder.iterdir() if file.suffix in _TYPES
    }
    return found | {"/": found["/index.html"]}


def form_of(served: Mapping[str, tuple[bytes, str]]) -> str:
    """Return the version of the answers that a page can read. Replicas with the same files have the same version."""
    digest = blake2b(digest_size=16)
    for path, (content, _) in sorted(served.items()):
        digest.update(f"{path} {len(content)}\n".encode() + content)
    return digest.hexdigest()
