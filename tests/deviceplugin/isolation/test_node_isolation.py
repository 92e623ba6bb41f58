"""Containers that isolation refuses, and what it waits for; cards with a daemon of MPS, pods that are told of it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from config.protocol import names
from config.settings.deviceplugin import DevicePluginConfiguration, HamiCore, Mps
from config.settings.isolation import NONE, IsolationMechanism, hami_core, mps
from deviceplugin.allocation.container_share import ContainerShare, DriverLimit
from deviceplugin.allocation.start_errors import WatchedPod
from deviceplugin.cdi.edits import Additions
from deviceplugin.cdi.nvidia_edits import SimulatedEdits
from deviceplugin.cdi.spec import CdiError
from deviceplugin.driver.cards import EXCLUSIVE_PROCESS, DriverCard, DriverCards
from deviceplugin.health.states import CardStates
from deviceplugin.isolation.driver_limits import LimitSupport
from deviceplugin.isolation.kind import KindFile
from deviceplugin.isolation.make import IsolationParts, cards_for_daemons, isolation_for, pods_with, shared_in
from deviceplugin.isolation.node_isolation import NodeIsolation
from deviceplugin.report.status import AllocationStatus
from scheduler.kube.port import Changed, Deleted, ListEnds, PodKey
from tests.support.node.container_shares import share_of
from tests.support.node.isolating import WITH_LIMITS, NoDriver, isolating, kind_of, limited_card
from tests.support.node.node_pods import CARDS, node_pod, on, wire_pod
from tests.support.node.ports import FixedInjection, Recorded
from tests.support.node.reconcile_site import rig


def isolation(state: Path, kind: str, mechanism: IsolationMechanism = NONE) -> NodeIsolation:
    return isolating(state, kind_of(state, kind, {kind: mechanism}))


async def test_without_isolation_nobody_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = isolation(state, "none")
    assert (made.objection(share_of(cards=2)), await made.prepare(share_of())) == ("", "")
    assert (made.additions(share_of()), made.directories.present()) == (Additions(), [])
    assert (Additions().edits().wire(), made.directories.remove(["uid-p"])) == ({}, [])
    assert (made.mps.problems(), (state / "isolation").exists()) == ((), False)


async def test_a_client_of_mps_needs_the_nodes_shared_memory(tmp_path: Path) -> None:
    made = isolation(tmp_path, "mps", mps(Mps()))
    assert "add hostIPC: true to the pod" in made.objection(share_of())
    assert made.objection(share_of(host_ipc=True)) == ""


async def test_a_client_of_mps_has_one_card(tmp_path: Path) -> None:
    told = isolation(tmp_path, "mps", mps(Mps())).objection(share_of(cards=2, host_ipc=True))
    assert told.startswith("container c0 has 2 cards; MPS supports only one")


async def test_a_client_of_mps_waits_for_its_daemon(tmp_path: Path) -> None:
    told = await isolation(tmp_path, "mps", mps(Mps())).prepare(share_of(host_ipc=True))
    assert told == "card GPU-0000: it has no MPS daemon"


async def test_the_directories_of_a_container_are_there_before_it_starts(tmp_path: Path) -> None:
    made = isolation(tmp_path, "hami-core", hami_core(HamiCore(library="/opt/libvgpu.so")))
    assert (made.objection(share_of(cards=2)), await made.prepare(share_of())) == ("", "")
    assert made.directories.present() == ["uid-p"]
    kept = [mount.host_path.startswith(f"{tmp_path}/isolation/") for mount in made.additions(share_of()).mounts]
    assert kept == [False, True, True, True]


def driver_card(index: int, *, mig: bool = False) -> DriverCard:
    return DriverCard(index=index, uuid=f"GPU-{index}", model="M", memory_mib=1024, mig=mig)


def test_each_card_has_a_daemon_but_for_those_that_are_split_or_released() -> None:
    states = CardStates(None)
    assert cards_for_daemons(states) == []
    states.found(DriverCards("1", (driver_card(0), driver_card(1, mig=True), driver_card(2))), forget=False)
    assert cards_for_daemons(states) == ["GPU-0", "GPU-2"]
    states.release(["GPU-0"], 100.0)
    assert cards_for_daemons(states) == ["GPU-2"]


async def test_the_pods_of_a_card_are_those_that_it_was_decided_for(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 4, card=CARDS[1])
        node.runs("q", 4, card=CARDS[0])
        assert pods_with(loop.view, "GPU-b") == [PodKey("ns", "p", uid)]
        assert pods_with(loop.view, "GPU-c") == []


@pytest.mark.parametrize(
    ("mechanism", "metrics", "mode"),
    [pytest.param(NONE, 0, "", id="none"), pytest.param(mps(Mps()), 2, EXCLUSIVE_PROCESS, id="mps")],
)
async def test_there_are_metrics_of_daemons_where_there_are_daemons(
    folder: Path, mechanism: IsolationMechanism, metrics: int, mode: str
) -> None:
    registry = CollectorRegistry()
    configuration = DevicePluginConfiguration(node_name="n", state_dir=str(folder))
    async with rig(folder) as (_, loop):
        parts = IsolationParts(
            kind=kind_of(folder, "mine", {"mine": mechanism}),
            driver=NoDriver(),
            states=CardStates(None),
            view=loop.view,
            edits=SimulatedEdits(folder, loop.view),
            injection=FixedInjection(),
            recorder=Recorded(),
            registry=registry,
            backoff_s=float,
        )
        isolation_for(configuration, parts)
    assert (len(list(registry.collect())), shared_in(mechanism)) == (metrics, mode)


LIMITED = (limited_card(0), limited_card(1), limited_card(2, limits=False))


def enforcing(folder: Path, *, required: bool = False, hookless: tuple[str, ...] = ()) -> NodeIsolation:
    support = replace(WITH_LIMITS, hookless=hookless)
    return isolating(folder, kind_of(folder, "driver"), cards=LIMITED, support=lambda: support, required=required)


def with_limits_required() -> ContainerShare:
    share = share_of(3)
    return replace(share, pod=replace(share.pod, annotations={"gpushare/isolation": "required"}))


async def test_the_driver_limits_a_container_on_cards_that_it_can_limit(folder: Path) -> None:
    made = enforcing(folder, hookless=("GPU-0001",))
    assert made.of_cards() == {"GPU-0000": "driver", "GPU-0001": "", "GPU-0002": ""}
    assert made.additions(share_of(3)).env == DriverLimit(0, 3072).variables()
    assert made.additions(share_of(3, cards=2)).env == {}


async def test_a_container_that_cannot_be_limited_starts_unless_limits_are_required(folder: Path) -> None:
    lacking = "card GPU-0000: its CDI spec has no hook apply-cuda-memory-limits"
    assert await enforcing(folder, hookless=("GPU-0000",)).prepare(share_of(3)) == ""
    told = await enforcing(folder, hookless=("GPU-0000",)).prepare(with_limits_required())
    assert told.startswith(f"container c0 needs memory isolation (gpushare/isolation: required): {lacking}")
    told = await enforcing(folder, hookless=("GPU-0000",), required=True).prepare(share_of(3))
    assert told.startswith(f"container c0 needs memory isolation (enforcement: required): {lacking}")
    assert await enforcing(folder, required=True).prepare(with_limits_required()) == ""


async def test_a_required_limit_that_is_lost_while_the_container_starts_keeps_it_from_starting(folder: Path) -> None:
    """Specs of NVIDIA may be rewritten at any time, also between `prepare` and the writing of the container's."""
    support = [WITH_LIMITS]
    made = isolating(folder, kind_of(folder, "driver"), cards=LIMITED, support=lambda: support[0])
    required = with_limits_required()
    assert await made.prepare(required) == ""
    support[0] = replace(WITH_LIMITS, hookless=("GPU-0000",))
    with pytest.raises(
        CdiError, match=r"container c0 needs memory isolation \(gpushare/isolation: required\): its cards"
    ):
        made.additions(required)
    alone = replace(required, pod=replace(required.pod, exclusive=True))
    assert (made.additions(share_of(3)).env, made.additions(alone).env) == ({}, {})
    # Allocate in environment mode never fails the pod for that; `prepare` refuses its start.
    support[0] = LimitSupport(cdi=False)
    assert made.additions(required).env == {}


async def test_a_node_that_enforces_nothing_says_so_to_a_pod_that_requires_it(folder: Path) -> None:
    told = await isolation(folder, "none").prepare(with_limits_required())
    assert told.endswith("nothing enforces it on this node (isolation: none)")


async def test_a_card_that_is_split_is_isolated_by_nothing(folder: Path) -> None:
    made = isolating(folder, kind_of(folder, "mps", {"mps": NONE}), cards=[limited_card(0), limited_card(1, mig=True)])
    assert made.of_cards() == {"GPU-0000": "mps", "GPU-0001": ""}


async def test_the_kind_is_decided_once_the_pods_are_known(folder: Path) -> None:
    made = isolating(folder, kind_of(folder, "auto"), cards=LIMITED)
    deciding = asyncio.create_task(made.decided())
    await asyncio.sleep(0)
    assert made.kind.now == ""
    made.view.pods.apply([ListEnds("1")])
    await deciding
    assert made.kind.now == "driver"


class NoCalls:
    allocating = 0


async def test_an_idle_node_changes_its_kind_and_announces_it(folder: Path) -> None:
    KindFile(folder).save("none")
    known, moved = asyncio.Event(), asyncio.Event()

    def support() -> LimitSupport:
        return replace(WITH_LIMITS, known=known.is_set())

    made = isolating(folder, kind_of(folder, "auto"), cards=LIMITED, support=support)
    card = made.view.cards[0]
    wire = wire_pod("p", [3], annotations=on(node_pod("p", [3]), card).annotations)
    made.view.pods.apply([Changed(wire), ListEnds("1")])
    following = asyncio.create_task(made.follow(NoCalls(), moved.set))
    await asyncio.sleep(0.01)
    assert (made.kind.now, made.kind.problem) == ("none", "")
    known.set()
    async with asyncio.timeout(5):
        while not made.kind.problem:  # noqa: ASYNC110 - nothing tells of a look
            await asyncio.sleep(0.001)
    assert (made.kind.now, moved.is_set()) == ("none", False)
    made.view.pods.apply([Deleted(wire)])
    async with asyncio.timeout(5):
        await moved.wait()
    assert (made.kind.now, made.of_cards()["GPU-0000"]) == ("driver", "driver")
    following.cancel()


def failed_at_its_hook(share: ContainerShare) -> WatchedPod:
    message = "failed to create containerd task: error running createRuntime hook #0: exit status 1, stderr: no NVML"
    status = {"name": "c0", "lastState": {"terminated": {"reason": "StartError", "message": message}}}
    meta = {"name": share.pod.name, "namespace": share.pod.namespace, "uid": share.pod.uid}
    return msgspec.convert({"metadata": meta, "status": {"containerStatuses": [status]}}, WatchedPod)


@pytest.mark.parametrize(("soft_limits", "limit"), [(False, DriverLimit(0, 8192)), (True, DriverLimit(3072, 8192))])
async def test_the_driver_guarantees_requests_only_where_configured(
    folder: Path,
    soft_limits: bool,  # noqa: FBT001 - a parameter of the test
    limit: DriverLimit,
) -> None:
    """Each start adds to what every cgroup above has guaranteed, and a pod's author chooses how often it starts."""
    made = isolating(folder, kind_of(folder, "driver"), cards=LIMITED, soft_limits=soft_limits)
    share = share_of(3)
    annotations = {**share.pod.annotations, names.GPU_MEM_LIMIT: "8"}
    assert made.limit(replace(share, pod=replace(share.pod, annotations=annotations))) == limit


async def test_a_container_whose_hook_failed_starts_without_limits_and_its_pod_is_told(folder: Path) -> None:
    events = Recorded()
    made, share = isolating(folder, kind_of(folder, "driver"), cards=LIMITED, recorder=events), share_of(3)
    made.view.pods.apply([Changed(failed_at_its_hook(share))])
    assert [await made.prepare(share), await made.prepare(share)] == ["", ""]
    assert made.additions(share).env == {}
    assert [(event.reason, event.pod) for event in events] == [("GPUNotEnforced", share.pod.key)]
    assert events[0].note.startswith("container c0 starts without a memory limit: NVIDIA's hook could not set it: ")
    others = [AllocationStatus("ns", "p", "c1", {"GPU-0000": 3}), AllocationStatus("ns", "q", "c0", {"GPU-0002": 3})]
    shown = made.shown([AllocationStatus("ns", "p", "c0", {"GPU-0000": 3}), *others])
    assert [one.isolation for one in shown] == ["", "driver", ""]


async def test_a_pod_with_its_cards_to_itself_starts_where_limits_are_required_and_cannot_be_set(folder: Path) -> None:
    share = with_limits_required()
    alone = replace(share, pod=replace(share.pod, exclusive=True))
    made = enforcing(folder, hookless=("GPU-0000",), required=True)
    assert "needs memory isolation" in await made.prepare(share)
    assert await made.prepare(alone) == ""
    assert made.additions(alone) == Additions()


async def test_where_limits_are_required_a_failed_hook_is_tried_again(folder: Path) -> None:
    made, share = enforcing(folder, required=True), share_of(3)
    made.view.pods.apply([Changed(failed_at_its_hook(share))])
    assert await made.prepare(share) == ""
    assert made.additions(share).env == DriverLimit(0, 3072).variables()


async def test_a_mig_instance_is_not_isolated_and_needs_nothing(folder: Path) -> None:
    instance = replace(limited_card(0), parent="GPU-parent", limits=False)
    made = isolating(folder, kind_of(folder, "mps", {"mps": mps(Mps())}), cards=[instance])
    assert (made.objection(share_of()), await made.prepare(share_of())) == ("", "")
    assert (made.additions(share_of()), made.of_cards()) == (Additions(), {"GPU-0000": ""})
    assert "a MIG instance is not divided further" in await made.prepare(with_limits_required())


async def test_the_inventory_says_why_nothing_enforces_the_shares_of_a_card(tmp_path: Path) -> None:
    old = kind_of(tmp_path, "none", {"none": NONE})
    told = isolating(tmp_path, old, cards=[limited_card(limits=False), limited_card(1)]).for_inventory()
    assert [one.unenforced for one in told.values()] == [
        "the driver cannot limit memory on the card; that needs driver 615 or later",
        "isolation: none",
    ]
