"""The wall clock of one program, put forward and back while it runs; its monotonic clock goes on, as in life.

By libfaketime, preloaded: it stands between the program and the C library, so that it also holds for what OpenSSL and
uvloop ask. The clock of the machine stays as it is. Under it `time.sleep` of Python fails, which the scheduler calls in
the thread that renders /metrics, and nowhere else: nobody may ask for that page meanwhile.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from e2e.control_plane import cache

_PACKAGE: Final = "libfaketime"


class SteppedClock:
    """offset file of one program."""

    def __init__(self, folder: Path) -> None:
        """folder: of the file. Raises cache.PackageUnavailable."""
        self._file = folder / "clock"
        (self._library,) = cache.debian_package(_PACKAGE, cache.to_stderr).rglob("libfaketime.so.1")
        self.step(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the program has to inherit."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def forget(self, pid: int) -> None:
        """Remove what the library leaves of a program that has ended."""
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            (Path("/dev/shm") / name).unlink(missing_ok=True)  # noqa: S108 - its place

    def step(self, offset_s: int) -> None:
        """From now on it is so many seconds later, or earlier, than it is."""
        self._file.write_text(f"{offset_s:+d}\n", encoding="utf-8")
