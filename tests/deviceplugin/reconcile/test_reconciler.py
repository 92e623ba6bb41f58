"""The reconcile loop: what its rounds compare, report and show, and what is left out when something cannot be read."""

import asyncio
import contextlib
from pathlib import Path

from config.protocol import names
from config.settings.isolation import NONE
from config.settings.scheduler import Resources
from deviceplugin.allocation.allocators import AssignedCards
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.view import NodeRecords, OwnPods
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.driver.cards import CardReading, Process
from deviceplugin.isolation.directories import ContainerDirectories
from deviceplugin.kubelet.client import PodResources
from deviceplugin.reconcile.reconciler import Reconciler
from deviceplugin.report.metrics import NodeMetrics
from scheduler.kube.port import Deleted, ListEnds, PodKey
from tests.support.clocks import virtual_time
from tests.support.node.drift_policy import drift_policy
from tests.support.node.kubelet_double import KubeletDouble
from tests.support.node.node_pods import CARDS, UNIT_MIB
from tests.support.node.reconcile_site import Node, metric, rig, settings


async def test_without_drift_nothing_is_reported_and_everything_is_shown(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 4, card=CARDS[1])
        node.uses("GPU-b", (11, 700, uid))
        await loop.round()
        await loop.round()
        assert (node.events, node.evicted, loop.result.drift, loop.result.problems) == ([], [], (), ())
        (row,) = loop.result.containers
        assert (row.pod, row.container, row.units, row.used_mib) == ("p", "c0", {"GPU-b": 4}, 700)
        assert loop.result.allocated_units == {"GPU-b": 4}
        assert metric(loop, "drift") == 0
        assert metric(loop, "container_memory_used_bytes", pod="p", UUID="GPU-b") == 700 * 2**20


async def test_an_event_on_the_node_does_not_name_the_pod_that_it_is_about(folder: Path) -> None:
    """It is in namespace default, whose readers may not know the pod; the status names it."""
    async with rig(folder) as (node, loop):
        node.runs("p", 4)
        node.pods.apply([Deleted(wire) for wire in node.pods])
        await loop.round()
        await loop.round()
        (notice,) = [one for one in node.events if one.reason == "GPUWithoutDecision"]
        note = "a pod that the API server does not have holds 4 units; gpushare-device-plugin status names it"
        assert (notice.note, notice.pod) == (note, None)
        assert "pod ns/p: container c0 has 4 units" in " ".join(one.message for one in loop.result.drift)


async def test_drift_seen_by_two_rounds_is_told_once_and_shown_while_it_lasts(
    folder: Path,
) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 4)
        node.assigned.by_container[uid, "c0"] = frozenset({"GPU-b"})
        await loop.round()
        assert (node.events, loop.result.drift) == ([], ())
        await loop.round()
        await loop.round()
        (notice,) = node.events
        assert (notice.reason, notice.pod) == ("GPUOnAnotherCard", PodKey("ns", "p", uid))
        (drift,) = loop.result.drift
        assert (drift.kind, drift.actions) == ("on-another-card", ("event", "metric"))
        assert metric(loop, "drift", kind="on-another-card") == 1
        node.assigned.by_container[uid, "c0"] = frozenset({"GPU-a"})
        await loop.round()
        assert (loop.result.drift, metric(loop, "drift")) == ((), 0)


async def test_outside_use_is_passed_on_whenever_it_changes(folder: Path) -> None:
    async with rig(folder, drift_policy(announce_outside_use=True)) as (node, loop):
        node.uses("GPU-a", (11, 3000, ""))
        await loop.round()
        assert node.outside == []
        await loop.round()
        await loop.round()
        assert node.outside == [{"GPU-a": 3000}]
        node.readings.clear()  # The driver does not answer.
        await loop.round()
        assert loop.outside_mib == {"GPU-a": 3000}
        node.uses("GPU-a")
        await loop.round()
        assert node.outside == [{"GPU-a": 3000}, {}]


async def test_the_use_of_a_pod_that_asks_for_nothing_is_found(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("thief", 0)
        node.uses("GPU-a", (11, 900, uid))
        await loop.round()
        await loop.round()
        assert [(one.reason, one.pod) for one in node.events] == [("GPUUsesUnasked", PodKey("ns", "thief", uid))]


async def test_without_the_kubelet_devices_are_left_out_and_the_rest_is_compared(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 4, ids=0)
        node.assigned.by_container[uid, "c0"] = frozenset({"GPU-b"})
        loop.kubelet = PodResources(folder / "missing.sock", names.GPU_MEM)
        await loop.round()
        await loop.round()
        assert [one.reason for one in node.events] == ["GPUOnAnotherCard"]
        assert "asking the kubelet for all pods" in loop.result.problems[0]


async def test_without_the_hosts_proc_use_is_left_out(folder: Path) -> None:
    async with rig(folder, host_proc="missing") as (node, loop):
        node.runs("p", 4)
        node.readings["GPU-a"] = CardReading(used_mib=9000, processes=(Process(11, 9000),))
        await loop.round()
        await loop.round()
        assert (node.events, [row.used_mib for row in loop.result.containers]) == ([], [None])
        assert "cannot trace processes to their pods" in loop.result.problems[0]


async def test_before_the_pods_or_the_cards_are_known_nothing_is_compared(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 4)
        node.assigned.by_container[uid, "c0"] = frozenset({"GPU-b"})
        node.pods.complete = False
        await loop.round()
        assert loop.result.problems == ("the pods of this node are not known yet",)
        node.pods.complete, node.cards = True, ()
        await loop.round()
        await loop.round()
        assert (node.events, loop.result.problems) == ([], ("no card is announced yet",))


async def test_a_list_waits_until_no_allocate_is_in_flight(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        node.allocates = 2
        started_s = asyncio.get_running_loop().time()
        await loop.round()
        assert node.allocates == -1
        assert asyncio.get_running_loop().time() - started_s >= 0.2


class Counted(Reconciler):
    """Notes when its rounds are, and compares nothing."""

    rounds_s: list[float]

    async def round(self) -> None:
        self.rounds_s.append(asyncio.get_running_loop().time())


async def _rounds(folder: Path, *, known_at_s: float) -> list[float]:
    """When the rounds of 200 s are."""
    kubelet, pods, journal = PodResources(folder / "none.sock", names.GPU_MEM), OwnPods(), Journal(folder)
    loop = Counted(
        settings=settings(folder),
        view=NodeRecords(
            resources=Resources(),
            pods=pods,
            journal=journal,
            kubelet=kubelet,
            checkpoint=folder / "checkpoint",
            changed=lambda *_: None,
            cards=tuple,
            unit_mib=UNIT_MIB,
        ),
        kubelet=kubelet,
        cards=tuple,
        readings=dict,
        assigned=AssignedCards(),
        files=SpecFiles(folder / "cdi"),
        directories=ContainerDirectories(folder / "isolation", NONE),
        record=lambda _: None,
        evictor=Node(folder, KubeletDouble(folder), pods, journal),
        metrics=NodeMetrics("n", 1024, dcgm=False),
        allocating=lambda: False,
        on_outside=lambda _: None,
    )
    loop.rounds_s = []
    clock = asyncio.get_running_loop()
    clock.call_at(known_at_s, pods.apply, [ListEnds("1")])
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(200):
            await loop.run()
    await kubelet.close()
    return loop.rounds_s


def test_rounds_come_at_their_interval_once_the_pods_are_known(tmp_path: Path) -> None:
    assert virtual_time.run(_rounds(tmp_path, known_at_s=5)) == [5, 65, 125, 185]
