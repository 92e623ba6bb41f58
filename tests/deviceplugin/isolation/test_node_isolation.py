"""Containers that isolation refuses, and what it waits for; cards with a daemon of MPS, pods that are told of it."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from config.settings.deviceplugin import DevicePluginConfiguration, HamiCore, Mps
from config.settings.isolation import NONE, IsolationMechanism, hami_core, mps
from deviceplugin.cdi.edits import Additions
from deviceplugin.driver.cards import EXCLUSIVE_PROCESS, CardReading, DriverCard, DriverCards
from deviceplugin.health.states import CardStates
from deviceplugin.isolation.make import NodeIsolation, cards_for_daemons, isolation_for, pods_with, shared_in
from deviceplugin.isolation.mps_cards import ComputeModes, MpsCards
from scheduler.kube.port import PodKey
from tests.support.node.container_shares import share_of
from tests.support.node.node_pods import CARDS
from tests.support.node.reconcile_site import rig


class NoDriver:
    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        raise AssertionError(uuid, mode)


def isolation(state: Path, mechanism: IsolationMechanism) -> NodeIsolation:
    def nothing_read() -> Mapping[str, CardReading]:
        return {}

    cards = MpsCards(
        settings=Mps(),
        modes=ComputeModes(state, NoDriver(), nothing_read),
        wanted=tuple,
        clients=lambda _: (),
        record=lambda _: None,
        backoff_s=float,
    )
    return NodeIsolation(mechanism, state, cards)


async def test_without_isolation_nobody_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = isolation(state, NONE)
    assert (made.objection(share_of(cards=2)), await made.prepare(share_of())) == ("", "")
    assert (made.additions(share_of()), made.directories.present()) == (Additions(), [])
    assert (Additions().edits().wire(), made.directories.remove(["uid-p"])) == ({}, [])
    assert (made.mps.problems(), state.exists()) == ((), False)


async def test_a_client_of_mps_needs_the_nodes_shared_memory(tmp_path: Path) -> None:
    made = isolation(tmp_path, mps(Mps()))
    assert "add hostIPC: true to the pod" in made.objection(share_of())
    assert made.objection(share_of(host_ipc=True)) == ""


async def test_a_client_of_mps_has_one_card(tmp_path: Path) -> None:
    told = isolation(tmp_path, mps(Mps())).objection(share_of(cards=2, host_ipc=True))
    assert told.startswith("container c0 has 2 cards; MPS supports only one")


async def test_a_client_of_mps_waits_for_its_daemon(tmp_path: Path) -> None:
    told = await isolation(tmp_path, mps(Mps())).prepare(share_of(host_ipc=True))
    assert told == "card GPU-0000: it has no MPS daemon"


async def test_the_directories_of_a_container_are_there_before_it_starts(tmp_path: Path) -> None:
    made = isolation(tmp_path, hami_core(HamiCore(library="/opt/libvgpu.so")))
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
        isolation_for(
            configuration, mechanism, NoDriver(), CardStates(None), loop.view, lambda _: None, registry, float
        )
    assert (len(list(registry.collect())), shared_in(mechanism)) == (metrics, mode)
