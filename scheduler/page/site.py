"""What a page is made of, from the parts of a scheduler."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.engine import Engine
from scheduler.page.access import Guard
from scheduler.page.history import History
from scheduler.page.leader import LeaderPage
from scheduler.page.server import PageSite
from scheduler.page.stream import Shown
from scheduler.page.waiting import WaitingPods
from scheduler.pods.gpu_request import unit_name
from scheduler.pods.pod import PodReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """The parts. leads: whether it schedules. problem: what keeps pods from being scheduled, or "".

    replica: its name, as Kubernetes has it. leader: that of who schedules. Both "" where there is but one.
    """

    engine: Engine
    reader: PodReader
    unit_mib: int
    leads: Callable[[], bool]
    problem: Callable[[], str]
    replica: str = ""
    leader: Callable[[], str] = str


def page_site(of: Scheduler, access: Guard, leader: LeaderPage | None = None) -> PageSite:
    """access: who may see it. leader: as in PageSite."""
    queue = of.engine.queue
    shown = Shown(
        engine=of.engine,
        waiting=WaitingPods(queue, time.monotonic),
        # Versions of another process say nothing.
        instance=uuid.uuid4().hex,
        replica=of.replica,
        unit=unit_name(of.unit_mib),
        leads=of.leads,
        leader=of.leader,
        problem=of.problem,
        now_s=time.monotonic,
    )
    history = History(of.engine.tables, queue.lengths, time.time)
    return PageSite(shown=shown, history=history, reader=of.reader, unit_mib=of.unit_mib, access=access, leader=leader)
