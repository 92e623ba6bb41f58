"""What the tests of the device plugin share."""

import time
from pathlib import Path

import pytest


@pytest.fixture
def slow_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file takes so long to write that two threads which write it at once do meet."""
    write = Path.write_bytes

    def slowly(path: Path, text: bytes) -> int:
        written = write(path, text)
        time.sleep(0.1)
        return written

    monkeypatch.setattr(Path, "write_bytes", slowly)
