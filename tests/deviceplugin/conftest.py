"""What the tests of the device plugin share."""

import time
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for unix sockets, whose paths have at most 107 characters."""
    return tmp_path_factory.mktemp("f")


@pytest.fixture
def slow_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file takes so long to write that two threads which write it at once do meet."""
    write = Path.write_bytes

    def slowly(path: Path, text: bytes) -> int:
        written = write(path, text)
        time.sleep(0.1)
        return written

    monkeypatch.setattr(Path, "write_bytes", slowly)
