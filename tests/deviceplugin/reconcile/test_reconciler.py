"""The reconcile loop against a kubelet double, files on disk, and an API server that takes or refuses evictions."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from config.protocol import names
from config.protocol.inventory import Card
from config.settings.scheduler import Resources
from deviceplugin.allocation.allocated import GivenCards
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.own_pods import OwnPods
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.cdi import spec
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.driver.cards import Process, Reading
from deviceplugin.kubelet.client import PodResources
from deviceplugin.node.events import Notice
from deviceplugin.reconcile.drift import DriftPolicy
from deviceplugin.reconcile.reconciler import Reconciler, ReconcileSettings
from deviceplugin.report.metrics import NodeMetrics
from scheduler.kube.port import ApiError, ApiNotFound, ApiThrottled, Changed, Deleted, ListEnds, PodKey
from tests.support import virtual_time
from tests.support.drift_policy import drift_policy
from tests.support.kubelet_double import KubeletDouble
from tests.support.node_pods import CARDS, node_pod, on, wire_pod

UID = "0a1b2c3d-0000-4000-8000-00000000000"
REPORTED = [{"name": "c0"}]
WARNING = drift_policy()


@dataclass
class Node:
    """Everything around the loop, to be changed between two rounds."""

    folder: Path
    double: KubeletDouble
    pods: OwnPods
    journal: Journal
    given: GivenCards = field(default_factory=GivenCards)
    cards: tuple[Card, ...] = CARDS
    readings: dict[str, Reading] = field(default_factory=dict)
    told: list[Notice] = field(default_factory=list)
    evicted: list[PodKey] = field(default_factory=list)
    refusals: list[ApiError] = field(default_factory=list)
    outside: list[Mapping[str, int]] = field(default_factory=list)
    allocates: int = 0
    records: list[dict[str, object]] = field(default_factory=list)

    async def evict(self, pod: PodKey) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.evicted.append(pod)

    def allocating(self) -> bool:
        """In flight for as many looks as `allocates` says."""
        self.allocates -= 1
        return self.allocates >= 0

    def runs(self, name: str, units: int, *, card: Card = CARDS[0], ids: int | None = None) -> str:
        """A pod bound to `card`, which the kubelet has given as many ids as it asks, or as said; returns its UID."""
        uid = f"{UID}{len(self.pods)}"
        annotations = on(node_pod(name, [units], uid=uid), card).annotations if units else {}
        wire = wire_pod(name, [units], uid=uid, annotations=annotations, containerStatuses=REPORTED)
        self.pods.apply([Changed(wire)])
        held = [f"{name}-{number}" for number in range(units if ids is None else ids)]
        self.double.pods["ns", name] = {"c0": {names.GPU_MEM: held}}
        self.record(uid, held)
        return uid

    def record(self, uid: str, ids: list[str], resource: str = names.GPU_MEM) -> None:
        self.records.append({"PodUID": uid, "ContainerName": "c0", "ResourceName": resource, "DeviceIDs": {"-1": ids}})
        document = {"Data": {"PodDeviceEntries": self.records, "RegisteredDevices": {}}, "Checksum": 1}
        (self.folder / "checkpoint").write_text(json.dumps(document))

    def ends(self, name: str) -> None:
        """The pod is gone from everywhere but the checkpoint."""
        self.pods.apply([Deleted(wire) for wire in self.pods if wire.metadata.name == name])
        del self.double.pods["ns", name]

    def uses(self, uuid: str, *processes: tuple[int, int, str]) -> None:
        """Processes of the card as (PID, MiB, UID of the pod, "" for none)."""
        for pid, _, uid in processes:
            (self.folder / "proc" / str(pid)).mkdir(parents=True, exist_ok=True)
            path = f"/kubepods/pod{uid}/{'c' * 64}" if uid else "/user.slice"
            (self.folder / "proc" / str(pid) / "cgroup").write_text(f"0::{path}\n")
        listed = tuple(Process(pid, mib) for pid, mib, _ in processes)
        self.readings[uuid] = Reading(used_mib=sum(mib for _, mib, _ in processes), processes=listed)


def _settings(proc: Path, policy: DriftPolicy = WARNING, allowance_mib: int = 512) -> ReconcileSettings:
    return ReconcileSettings(policy=policy, interval_s=60, unit_mib=1024, allowance_mib=allowance_mib, host_proc=proc)


@asynccontextmanager
async def rig(
    folder: Path, policy: DriftPolicy = WARNING, *, allowance_mib: int = 512, host_proc: str = "proc"
) -> AsyncIterator[tuple[Node, Reconciler]]:
    (folder / "proc").mkdir()
    async with KubeletDouble(folder).running() as double:
        kubelet, journal = PodResources(folder / "pod-resources.sock", names.GPU_MEM), Journal(folder / "state")
        node = Node(folder, double, OwnPods(), journal)
        node.pods.apply([ListEnds("1")])
        loop = Reconciler(
            settings=_settings(folder / host_proc, policy, allowance_mib),
            view=NodeRecords(
                resources=Resources(),
                pods=node.pods,
                journal=journal,
                kubelet=kubelet,
                checkpoint=folder / "checkpoint",
                changed=lambda *_: None,
            ),
            kubelet=kubelet,
            cards=lambda: node.cards,
            readings=lambda: node.readings,
            given=node.given,
            files=SpecFiles(folder / "cdi"),
            tell=node.told.append,
            evictor=node,
            metrics=NodeMetrics("n", 1024, dcgm=False),
            allocating=node.allocating,
            on_outside=node.outside.append,
        )
        yield node, loop
        await kubelet.close()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A unix socket's path has at most 107 characters.
    return tmp_path_factory.mktemp("r")


def metric(loop: Reconciler, name: str, **labels: str) -> float | None:
    """The sum over all series with these labels; None where there is none."""
    found = [
        sample.value
        for family in loop.metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"gpushare_device_plugin_{name}" and labels.items() <= sample.labels.items()
    ]
    return sum(found) if found else None


async def test_without_drift_nothing_is_reported_and_everything_is_shown(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 4, card=CARDS[1])
        node.uses("GPU-b", (11, 700, uid))
        await loop.round()
        await loop.round()
        assert (node.told, node.evicted, loop.result.drift, loop.result.problems) == ([], [], (), ())
        (row,) = loop.result.containers
        assert (row.pod, row.container, row.units, row.used_mib) == ("p", "c0", {"GPU-b": 4}, 700)
        assert loop.result.allocated_units == {"GPU-b": 4}
        assert metric(loop, "drift") == 0
        assert metric(loop, "container_memory_used_bytes", pod="p", UUID="GPU-b") == 700 * 2**20


async def test_drift_seen_by_two_rounds_is_told_once_and_shown_while_it_lasts(
    folder: Path,
) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 4)
        node.given.by_container[uid, "c0"] = frozenset({"GPU-b"})
        await loop.round()
        assert (node.told, loop.result.drift) == ([], ())
        await loop.round()
        await loop.round()
        (notice,) = node.told
        assert (notice.reason, notice.pod) == ("GPUOnAnotherCard", PodKey("ns", "p", uid))
        (drift,) = loop.result.drift
        assert (drift.kind, drift.actions) == ("on-another-card", ("event", "metric"))
        assert metric(loop, "drift", kind="on-another-card") == 1
        node.given.by_container[uid, "c0"] = frozenset({"GPU-a"})
        await loop.round()
        assert (loop.result.drift, metric(loop, "drift")) == ((), 0)


async def test_a_pod_that_uses_more_than_it_asked_is_evicted_where_that_is_configured(folder: Path) -> None:
    async with rig(folder, drift_policy("evict"), allowance_mib=100) as (node, loop):
        greedy, fair = node.runs("greedy", 2), node.runs("fair", 2)
        node.uses("GPU-a", (11, 2149, greedy), (12, 2147, fair))
        await loop.round()
        await loop.round()
        assert node.evicted == [PodKey("ns", "greedy", greedy)]
        (notice,) = node.told
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
        assert (node.evicted, len(node.told)) == ([PodKey("ns", "waits", uid)], 1)
        assert not loop.result.problems


async def test_a_pod_that_has_gone_before_its_eviction_is_no_problem(folder: Path) -> None:
    async with rig(folder, drift_policy(evict_unregistered=True)) as (node, loop):
        node.runs("waits", 4, ids=0)
        node.refusals = [ApiNotFound("no such pod", 404)]
        await loop.round()
        await loop.round()
        assert (node.refusals, node.evicted, loop.result.problems) == ([], [], ())


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
        assert [(one.reason, one.pod) for one in node.told] == [("GPUUsesUnasked", PodKey("ns", "thief", uid))]


async def test_a_later_change_of_an_allocation_is_ignored(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 4)
        await loop.round()
        moved = on(node_pod("p", [4], uid=uid), CARDS[1]).annotations
        node.pods.apply([Changed(wire_pod("p", [4], uid=uid, annotations=moved))])
        await loop.round()
        assert loop.result.allocated_units == {"GPU-a": 4}


async def test_specs_that_no_container_uses_are_removed_and_others_stay(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        node.runs("p", 2)
        node.record("uid-x", ["of-another-resource"], resource="x.com/gpu")
        assert loop.files is not None
        for ids in (["p-0", "p-1"], ["gone-0"], ["of-another-resource"]):
            loop.files.write(spec.device_name(ids), {})
        await loop.round()
        assert set(loop.files.present()) == {spec.device_name(["p-0", "p-1"])}


async def test_a_dead_pod_is_forgotten_when_the_kubelet_has_forgotten_it(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 2)
        node.given.by_container[uid, "c0"] = frozenset({"GPU-a"})
        await loop.round()
        node.ends("p")
        await loop.round()
        assert node.journal.first(uid, {}).changed
        assert node.given.by_container
        node.records.clear()
        node.record("uid-other", [])
        await loop.round()
        assert not node.journal.first(uid, {}).changed
        assert not node.given.by_container


async def test_without_the_checkpoint_nothing_is_removed_and_the_rest_is_compared(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 2, ids=1)
        await loop.round()
        node.ends("p")
        node.runs("q", 2, ids=1)
        (folder / "checkpoint").write_text("{")
        assert loop.files is not None
        loop.files.write(spec.device_name(["gone-0"]), {})
        await loop.round()
        await loop.round()
        assert node.journal.first(uid, {}).changed
        assert set(loop.files.present()) == {spec.device_name(["gone-0"])}
        assert [one.reason for one in node.told] == ["GPUOtherUnits"]
        assert "checkpoint cannot be read" in loop.result.problems[0]


async def test_without_the_kubelet_devices_are_left_out_and_the_rest_is_compared(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 4, ids=0)
        node.given.by_container[uid, "c0"] = frozenset({"GPU-b"})
        loop.kubelet = PodResources(folder / "missing.sock", names.GPU_MEM)
        await loop.round()
        await loop.round()
        assert [one.reason for one in node.told] == ["GPUOnAnotherCard"]
        assert "asking the kubelet for all pods" in loop.result.problems[0]


async def test_without_the_hosts_proc_use_is_left_out(folder: Path) -> None:
    async with rig(folder, host_proc="missing") as (node, loop):
        node.runs("p", 4)
        node.readings["GPU-a"] = Reading(used_mib=9000, processes=(Process(11, 9000),))
        await loop.round()
        await loop.round()
        assert (node.told, [row.used_mib for row in loop.result.containers]) == ([], [None])
        assert "cannot trace processes to their pods" in loop.result.problems[0]


async def test_specs_that_cannot_be_removed_are_reported_and_the_round_goes_on(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        node.runs("p", 2)
        stubborn = folder / "cdi" / f"gpushare-{spec.device_name(['gone'])}.json"
        stubborn.mkdir(parents=True)
        await loop.round()
        assert "cannot remove CDI specs" in loop.result.problems[0]
        assert len(loop.result.containers) == 1


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


async def test_before_the_pods_or_the_cards_are_known_nothing_is_compared(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 4)
        node.given.by_container[uid, "c0"] = frozenset({"GPU-b"})
        node.pods.complete = False
        await loop.round()
        assert loop.result.problems == ("the pods of this node are not known yet",)
        node.pods.complete, node.cards = True, ()
        await loop.round()
        await loop.round()
        assert (node.told, loop.result.problems) == ([], ("no card is announced yet",))


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
        settings=_settings(folder),
        view=NodeRecords(
            resources=Resources(),
            pods=pods,
            journal=journal,
            kubelet=kubelet,
            checkpoint=folder / "checkpoint",
            changed=lambda *_: None,
        ),
        kubelet=kubelet,
        cards=tuple,
        readings=dict,
        given=GivenCards(),
        files=None,
        tell=lambda _: None,
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
