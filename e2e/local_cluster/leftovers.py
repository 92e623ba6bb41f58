"""Takes away what a cluster has left on this machine: processes, cgroups, mounts, files. A clean end leaves nothing.

A keeper that is killed takes its servers with it, and each node is cleared by a process of its own
(`e2e/node/node_keeper.py`). This is for the case that all of them are killed, and for the next start of the machine.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from e2e.node import node_keeper

_GIVE_UP_AFTER_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.05


def remove(folder: Path) -> None:
    """Of a control plane or a node: end its processes, then remove its cgroups and the folder; mounts go with those.

    Nobody may start anything there meanwhile. What is gone already is no mistake.
    """
    cgroups = [hierarchy / folder.name for hierarchy in node_keeper.hierarchies()]
    give_up_at_s = time.monotonic() + _GIVE_UP_AFTER_S
    while (pids := {*_named(folder), *node_keeper.in_cgroups(cgroups)}) and time.monotonic() < give_up_at_s:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_EVERY_S)
    for cgroup in cgroups:
        node_keeper.remove_cgroup(cgroup)
    shutil.rmtree(folder, ignore_errors=True)


def _named(folder: Path) -> Iterator[int]:
    """Pids of the processes whose command line names something in the folder, as that of each of its programs does."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):
                if os.fsencode(folder) in (process / "cmdline").read_bytes():
                    yield int(process.name)
