"""What a process of the scheduler takes at a moment: memory, threads, descriptors, connections, tasks."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

from e2e.bench.process import cpu_s, resident_mib
from e2e.programs.scheduler_process import SchedulerProcess

_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
_ESTABLISHED: Final = "01"
# Gauges that are 0 when no pod is there.
_OF_PODS: Final = (
    "scheduler_pending_pods",
    "gpushare_scheduler_binds_in_flight",
    "gpushare_scheduler_pods_being_bound",
)
_TASKS: Final = ("gpushare_scheduler_asyncio_tasks", "")


@dataclass(frozen=True, slots=True)
class Sample:
    """at_s: seconds since the load began. connections: to the API server. unfinished: pods that wait or are bound."""

    at_s: float
    resident_mib: float
    tasks: int
    connections: int
    descriptors: int
    threads: int
    cpu_s: float
    unfinished: int

    def __str__(self) -> str:
        return (
            f"{self.resident_mib:.1f} MiB, {self.tasks} tasks, {self.connections} connections, "
            f"{self.descriptors} descriptors, {self.threads} threads, {self.unfinished} pods under way"
        )


async def sample(of: SchedulerProcess, at_s: float, server_port: int) -> Sample:
    """Of this moment. Raises ConnectionError, OSError when it does not run."""
    metrics = await of.metrics()
    pid = of.child.pid
    names = list(_descriptors(pid))
    return Sample(
        at_s=round(at_s, 1),
        resident_mib=resident_mib(pid),
        tasks=int(metrics[_TASKS]),
        connections=_connections(pid, names, server_port),
        descriptors=len(names),
        threads=_threads(pid),
        cpu_s=cpu_s(pid),
        unfinished=int(sum(value for (name, _), value in metrics.items() if name in _OF_PODS)),
    )


def written(name: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Lines of comma-separated values, with their head. name: of the process."""
    yield ",".join(["process", *(field.name for field in fields(Sample))])
    yield from (",".join([name, *map(str, astuple(one))]) for one in samples)


def _descriptors(pid: int) -> Iterator[str]:
    """What each open one stands for."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        # It may have been closed since.
        with suppress(FileNotFoundError):
            yield str(entry.readlink())


def _threads(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def _connections(pid: int, names: Iterable[str], port: int) -> int:
    """Established ones to that port. Source: proc_pid_net(5), tcp: local, remote address, state, …, inode."""
    own = {found[1] for name in names if (found := _SOCKET.fullmatch(name))}
    count = 0
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            _, _, remote, state, *rest = line.split()
            count += state == _ESTABLISHED and int(remote.rpartition(":")[2], 16) == port and rest[5] in own
    return count
