"""Which cards get a daemon of MPS, which pods are told of it, and that nothing of it is there without MPS."""

import pytest
from prometheus_client import CollectorRegistry

from config.settings.deviceplugin import DevicePluginConfiguration, Mps
from config.settings.isolation import NONE, IsolationMechanism, mps
from deviceplugin.driver.cards import EXCLUSIVE_PROCESS, DriverCard, DriverCards
from deviceplugin.health.states import CardStates
from deviceplugin.isolation.make import cards_for_daemons, isolation_for, pods_with, shared_in
from scheduler.kube.port import PodKey
from tests.support.node.node_pods import CARDS
from tests.support.node.reconcile_site import rig


def driver_card(index: int, *, mig: bool = False) -> DriverCard:
    return DriverCard(index=index, uuid=f"GPU-{index}", model="M", memory_mib=1024, mig=mig)


def test_each_card_has_a_daemon_but_for_those_that_are_split_or_released() -> None:
    states = CardStates(None)
    assert cards_for_daemons(states) == []
    states.found(DriverCards("1", (driver_card(0), driver_card(1, mig=True), driver_card(2))), forget=False)
    assert cards_for_daemons(states) == ["GPU-0", "GPU-2"]
    states.release(["GPU-0"], 100.0)
    assert cards_for_daemons(states) == ["GPU-2"]


async def test_the_pods_of_a_card_are_those_that_it_was_decided_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with rig(tmp_path_factory.mktemp("r")) as (node, loop):
        uid = node.runs("p", 4, card=CARDS[1])
        node.runs("q", 4, card=CARDS[0])
        assert pods_with(loop.view, "GPU-b") == [PodKey("ns", "p", uid)]
        assert pods_with(loop.view, "GPU-c") == []


class NoDriver:
    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        raise AssertionError(uuid, mode)


@pytest.mark.parametrize(
    ("mechanism", "metrics", "mode"),
    [pytest.param(NONE, 0, "", id="none"), pytest.param(mps(Mps()), 2, EXCLUSIVE_PROCESS, id="mps")],
)
async def test_there_are_metrics_of_daemons_where_there_are_daemons(
    tmp_path_factory: pytest.TempPathFactory, mechanism: IsolationMechanism, metrics: int, mode: str
) -> None:
    folder = tmp_path_factory.mktemp("r")
    registry = CollectorRegistry()
    configuration = DevicePluginConfiguration(node_name="n", state_dir=str(folder))
    async with rig(folder) as (_, loop):
        isolation_for(
            configuration, mechanism, NoDriver(), CardStates(None), loop.view, lambda _: None, registry, float
        )
    assert (len(list(registry.collect())), shared_in(mechanism)) == (metrics, mode)
