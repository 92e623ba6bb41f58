"""The reconcile loop: what its rounds compare, report, evict and remove, and what is left out if it cannot be read."""

import asyncio
import contextlib
from pathlib import Path

from config.protocol import names
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.view import OwnPods
from deviceplugin.driver.cards import CardReading, Process
from deviceplugin.kubelet.client import PodResources
from deviceplugin.reconcile.reconciler import Reconciler, evict
from scheduler.kube.port import ApiNotFound, ApiThrottled, Changed, Deleted, ListEnds, PodKey
from tests.support.clocks import virtual_time
from tests.support.node.drift_policy import drift_policy
from tests.support.node.kubelet_double import KubeletDouble
from tests.support.node.node_pods import CARDS, wire_pod
from tests.support.node.reconcile_site import Node, metric, reconciler_of, rig, settings

USED, UNUSED = "1" * 16, "0" * 16


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
        note = "a pod unknown to the API server holds 4 units; gpushare-device-plugin status names it"
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
        node.pods.complete, loop.view.cards = True, ()
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
    kubelet = PodResources(folder / "none.sock", names.GPU_MEM)
    node = Node(folder, KubeletDouble(folder), OwnPods(), Journal(folder), cards=())
    loop = reconciler_of(node, kubelet, settings(folder), Counted)
    loop.rounds_s = []
    clock = asyncio.get_running_loop()
    clock.call_at(known_at_s, node.pods.apply, [ListEnds("1")])
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(200):
            await loop.run()
    await kubelet.close()
    return loop.rounds_s


def test_rounds_come_at_their_interval_once_the_pods_are_known(tmp_path: Path) -> None:
    assert virtual_time.run(_rounds(tmp_path, known_at_s=5)) == [5, 65, 125, 185]


async def test_a_pod_that_uses_more_than_it_asked_is_evicted_where_that_is_configured(folder: Path) -> None:
    async with rig(folder, drift_policy("evict"), allowance_mib=100) as (node, loop):
        greedy, fair = node.runs("greedy", 2), node.runs("fair", 2)
        node.uses("GPU-a", (11, 2149, greedy), (12, 2147, fair))
        await loop.round()
        await loop.round()
        assert node.evicted == [PodKey("ns", "greedy", greedy)]
        (notice,) = node.events
        assert notice.reason == "GPUUsesMore"
        assert notice.note.endswith("it requested 2048 MiB there; evicting it")


async def test_an_eviction_that_is_refused_is_reported_and_tried_again_next_round(folder: Path) -> None:
    async with rig(folder, drift_policy(evict_unregistered=True)) as (node, loop):
        uid = node.runs("waits", 4, ids=0)
        node.refusals = [ApiThrottled("a disruption budget forbids it")]
        await loop.round()
        await loop.round()
        assert node.evicted == []
        assert loop.result.problems == ("pod ns/waits is not evicted yet: a disruption budget forbids it",)
        await loop.round()
        assert (node.evicted, len(node.events)) == ([PodKey("ns", "waits", uid)], 1)
        assert not loop.result.problems


async def test_a_pod_that_has_gone_before_its_eviction_is_no_problem(folder: Path) -> None:
    async with rig(folder, drift_policy(evict_unregistered=True)) as (node, loop):
        node.runs("waits", 4, ids=0)
        node.refusals = [ApiNotFound("no such pod", 404)]
        await loop.round()
        await loop.round()
        assert (node.refusals, node.evicted, loop.result.problems) == ([], [], ())


async def test_a_pod_that_came_past_the_scheduler_is_reported_and_evicted_where_that_is_configured(
    folder: Path,
) -> None:
    async with rig(folder, drift_policy(evict_unscheduled=True)) as (node, loop):
        node.pods.apply([Changed(wire_pod("by-hand", [4], scheduler="default-scheduler"))])
        held = [f"u{number}" for number in range(4)]
        node.double.pods["ns", "by-hand"] = {"c0": {names.GPU_MEM: held}}
        node.record("uid-by-hand", held)
        node.runs("ours", 2)
        await loop.round()
        await loop.round()
        (notice,) = node.events
        assert (notice.reason, notice.pod) == ("GPUUnscheduled", PodKey("ns", "by-hand", "uid-by-hand"))
        assert "no card was chosen for its 4 units, which count against every card of this node" in notice.note
        assert (
            "(schedulerName default-scheduler); create it again with schedulerName: gpushare-scheduler" in notice.note
        )
        assert (node.evicted, metric(loop, "drift", kind="unscheduled")) == ([notice.pod], 1)


async def test_what_a_pods_author_writes_later_switches_no_eviction_off(folder: Path) -> None:
    async with rig(folder, drift_policy("evict"), allowance_mib=100) as (node, loop):
        uid = node.runs("greedy", 2)
        node.uses("GPU-a", (11, 9000, uid))
        await loop.round()
        (wire,) = node.pods
        later = (wire.metadata.annotations or {}) | {names.EXCLUSIVE: "true", names.GPU_COUNT: "2"}
        node.pods.apply([Changed(wire_pod("greedy", [2], uid=uid, annotations=later))])
        await loop.round()
        assert node.evicted == [PodKey("ns", "greedy", uid)]
        assert metric(loop, "drift", kind="allocation-changed") == 0
        await loop.round()
        assert metric(loop, "drift", kind="allocation-changed") == 1
        assert [notice.reason for notice in node.events] == ["GPUUsesMore"]


async def test_no_more_than_a_few_evictions_are_on_their_way_at_once() -> None:
    class Counting:
        now = most = 0

        async def evict(self, pod: PodKey) -> None:
            del pod
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1

    counting = Counting()
    assert await evict(counting, {PodKey("ns", f"p{number}", f"{number}"): "" for number in range(100)}) == []
    assert counting.most == 8


async def test_a_static_pod_is_reported_with_what_it_is_and_left_alone(folder: Path) -> None:
    async with rig(folder, drift_policy(evict_unscheduled=True)) as (node, loop):
        mirror = {"kubernetes.io/config.mirror": "f" * 32}
        node.pods.apply([Changed(wire_pod("static", [4], annotations=mirror))])
        await loop.round()
        await loop.round()
        (notice,) = node.events
        assert "it is a static pod, which bypasses every scheduler; remove its file from the node" in notice.note
        assert (notice.reason, node.evicted) == ("GPUUnscheduled", [])


async def test_specs_that_no_container_uses_are_removed_and_others_stay(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        node.runs("p", 2)
        node.record("uid-p", ["u1"], device=USED)
        node.record("uid-x", ["u2"], resource="x.com/gpu", device="2" * 16)
        node.record("uid-y", ["u3"], device="3" * 16)
        node.records[-1]["AllocResp"] = "damaged"
        node.record("uid-p", ["u4"])
        assert loop.files is not None
        for device in (USED, UNUSED, "2" * 16, "3" * 16):
            loop.files.write(device, {})
        await loop.round()
        assert set(loop.files.present()) == {USED}


async def test_a_dead_pod_is_forgotten_when_the_kubelet_has_forgotten_it(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 2)
        node.assigned.by_container[uid, "c0"] = frozenset({"GPU-a"})
        await loop.round()
        node.ends("p")
        await loop.round()
        assert node.journal.first(uid, {}).changed
        assert node.assigned.by_container
        node.records.clear()
        node.record("uid-other", [])
        await loop.round()
        assert not node.journal.first(uid, {}).changed
        assert not node.assigned.by_container


async def test_without_the_checkpoint_nothing_is_removed_and_the_rest_is_compared(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 2, ids=1)
        await loop.round()
        node.ends("p")
        node.runs("q", 2, ids=1)
        (folder / "checkpoint").write_text("{")
        assert loop.files is not None
        loop.files.write(UNUSED, {})
        await loop.round()
        await loop.round()
        assert node.journal.first(uid, {}).changed
        assert set(loop.files.present()) == {UNUSED}
        assert [one.reason for one in node.events] == ["GPUOtherUnits"]
        assert "checkpoint cannot be read" in loop.result.problems[0]


async def test_specs_that_cannot_be_removed_are_reported_and_the_round_goes_on(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        node.runs("p", 2)
        stubborn = folder / "cdi" / f"gpushare-{UNUSED}.json"
        stubborn.mkdir(parents=True)
        await loop.round()
        assert "cannot remove CDI specs" in loop.result.problems[0]
        assert len(loop.result.containers) == 1


async def test_directories_that_cannot_be_removed_are_reported_and_specs_go(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        node.runs("p", 2)
        stubborn = folder / "isolation" / "pods"
        stubborn.mkdir(parents=True)
        (stubborn / "gone").symlink_to(folder)
        assert loop.files is not None
        loop.files.write(UNUSED, {})
        await loop.round()
        assert "cannot remove isolation directories" in loop.result.problems[0]
        assert loop.files.present() == {}


async def test_a_journal_that_cannot_be_written_is_reported_and_the_round_goes_on(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        node.runs("p", 2)
        await loop.round()
        node.ends("p")
        node.records.clear()
        node.record("uid-other", [])
        (folder / "state" / ".journal.json.tmp").mkdir()
        await loop.round()
        assert "cannot write the journal" in loop.result.problems[0]


async def test_directories_of_isolation_are_removed_when_the_kubelet_has_forgotten_the_pod(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 2)
        kept = folder / "isolation" / "pods" / uid
        (kept / "c0").mkdir(parents=True)
        await loop.round()
        node.ends("p")
        await loop.round()
        assert loop.directories.present() == [uid]
        node.records.clear()
        node.record("uid-other", [])
        await loop.round()
        assert loop.directories.present() == []
