"""Which pods the processes belong to that the driver names, by the host's `/proc`."""

from collections.abc import Iterable
from pathlib import Path

from deviceplugin.reconcile.cgroups import Owner, owner_of


def owners(host_proc: Path, pids: Iterable[int]) -> dict[int, Owner | None]:
    """PID -> whose process it is, None for one that is in no pod; one that has ended is left out.

    host_proc: of the host's PID namespace, which is the driver's. Blocks while files are read. Raises OSError when it
    is not there or may not be read.
    """
    if not host_proc.is_dir():
        raise NotADirectoryError(f"{host_proc} is not a directory; expected the host's /proc")
    found: dict[int, Owner | None] = {}
    for pid in set(pids):
        try:
            text = (host_proc / str(pid) / "cgroup").read_bytes()
        # The second: it ended between opening and reading.
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[pid] = owner_of(text.decode(errors="replace"))
    return found
