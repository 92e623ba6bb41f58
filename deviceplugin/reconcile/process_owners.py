"""The pods that processes of the node belong to, by their cgroups."""

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path

from deviceplugin.reconcile.usage import Owner, owner_of, uids_by_cgroup
from scheduler.kube.objects import PodObject


def owners(host_proc: Path, pids: Iterable[int]) -> dict[int, Owner | None]:
    """Return PID -> owner of the process, None if it is in no pod; a process that has ended is left out.

    host_proc: /proc of the host's PID namespace, which is the driver's. Blocks while files are read. Raises OSError if
    it is missing or may not be read.
    """
    if not host_proc.is_dir():
        raise NotADirectoryError(f"{host_proc} is not a directory; expected the host's /proc")
    found: dict[int, Owner | None] = {}
    for pid in set(pids):
        try:
            text = (host_proc / str(pid) / "cgroup").read_bytes()
        # ProcessLookupError: it ended between opening and reading.
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[pid] = owner_of(text.decode(errors="replace"))
    return found


async def pods_of(host_proc: Path, pods: Iterable[PodObject], pids: Collection[int]) -> dict[int, str]:
    """Return PID -> UID of the process's pod, for those in pods. host_proc: as in `owners`. Raises OSError."""
    found = await asyncio.to_thread(owners, host_proc, pids)
    uids = uids_by_cgroup(pods)
    return {pid: uids.get(owner.pod_uid, owner.pod_uid) for pid, owner in found.items() if owner}
