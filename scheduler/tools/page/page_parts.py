"""Parts of a page, built from the parts of a scheduler."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scheduler.core.engine import Engine
from scheduler.pods.gpu_request import unit_name
from scheduler.pods.pod import PodReader
from scheduler.tools.page.access import Guard
from scheduler.tools.page.history import UsageHistory
from scheduler.tools.page.leader import LeaderPage
from scheduler.tools.page.server import PageParts
from scheduler.tools.page.stream import Shown
from scheduler.tools.page.waiting import WaitingPodRows

_LONGEST_NAME: Final = 253


def replica_name(identity: str) -> str:
    """Return the pod's or host's name in an identity `NAME_UUID`. Another program may have written any text."""
    return (identity.rpartition("_")[0] or identity)[:_LONGEST_NAME]


def leader_name(identity: str, holder: str) -> str:
    """Return the leader's name for the page of this replica. Two replicas on one host have the same name.

    identity: this replica's. holder: the Lease's, "" if there is none.
    """
    name = replica_name(holder)
    is_another = holder != identity and name == replica_name(identity)
    return f"another process on {name}" if is_another else name


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerParts:
    """Parts of a scheduler. leads: whether it schedules. problem: why no pods are scheduled, or "".

    replica: its name in Kubernetes. leader: the leader's name. Both are "" with only one replica.
    """

    engine: Engine
    reader: PodReader
    unit_mib: int
    leads: Callable[[], bool]
    problem: Callable[[], str]
    replica: str = ""
    leader: Callable[[], str] = str


def page_parts(of: SchedulerParts, access: Guard, leader: LeaderPage | None = None) -> PageParts:
    """Build the parts. access: decides who may see the page. leader: as in PageSite."""
    queue = of.engine.queue
    shown = Shown(
        engine=of.engine,
        waiting=WaitingPodRows(queue, time.monotonic, of.leads),
        # Versions of another process are meaningless.
        instance=uuid.uuid4().hex,
        replica=of.replica,
        unit=unit_name(of.unit_mib),
        leads=of.leads,
        leader=of.leader,
        problem=of.problem,
        now_s=time.monotonic,
    )
    history = UsageHistory(of.engine.tables, queue.lengths, time.time)
    return PageParts(shown=shown, history=history, reader=of.reader, unit_mib=of.unit_mib, access=access, leader=leader)
