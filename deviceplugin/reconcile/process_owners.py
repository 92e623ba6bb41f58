"""The pods that processes of the node belong to, by their cgroups."""

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path

from deviceplugin.reconcile.cgroup_files import owners
from deviceplugin.reconcile.usage import uids_by_cgroup
from scheduler.kube.objects import PodObject


async def pods_of(host_proc: Path, pods: Iterable[PodObject], pids: Collection[int]) -> dict[int, str]:
    """Return PID -> UID of the process's pod, for those in pods. host_proc: as in `owners`. Raises OSError."""
    found = await asyncio.to_thread(owners, host_proc, pids)
    uids = uids_by_cgroup(pods)
    return {pid: uids.get(owner.pod_uid, owner.pod_uid) for pid, owner in found.items() if owner}
