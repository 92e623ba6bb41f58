"""Isolation by MPS of protocol 3: containers with a namespace, and what enforces their shares of memory."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from prometheus_client import CollectorRegistry

from config.settings.deviceplugin import DevicePluginConfiguration, Mps
from config.settings.isolation import mps
from deviceplugin.allocation.container_share import DriverLimit
from deviceplugin.cdi.nvidia_edits import SimulatedEdits
from deviceplugin.driver.cards import DriverCards
from deviceplugin.health.states import CardStates
from deviceplugin.isolation.make import IsolationParts, isolation_for
from deviceplugin.isolation.mps_namespaces import namespace_of
from deviceplugin.isolation.node_isolation import NodeIsolation
from tests.deviceplugin.isolation.test_mps_cards import Node, daemons, node, up
from tests.support.node.container_shares import share_of
from tests.support.node.isolating import WITH_LIMITS, NoDriver, isolating, kind_of, limited_card, records
from tests.support.node.ports import FixedInjection, Recorded

assert node  # a fixture
LIMITED = (limited_card(0), limited_card(1), limited_card(2, limits=False))


def sharing_by_mps(folder: Path, *, hookless: tuple[str, ...] = (), protocol: Literal[2, 3] = 3) -> NodeIsolation:
    support = replace(WITH_LIMITS, hookless=hookless)
    kind = kind_of(folder, "mps", {"mps": mps(Mps())})
    return isolating(folder, kind, cards=LIMITED, support=lambda: support, protocol=protocol)


PIPES = f"/run/gpushare/mps/GPU-0000/mps/{namespace_of('uid-p', 'c0')}"


async def test_a_client_with_a_namespace_has_its_directory_alone_and_the_driver_limits_its_memory(folder: Path) -> None:
    made = sharing_by_mps(folder, hookless=("GPU-0001",))
    assert (made.objection(share_of(3)), "only one" in made.objection(share_of(3, cards=2))) == ("", True)
    added = made.additions(share_of(3))
    assert added.env == {"CUDA_MPS_PIPE_DIRECTORY": PIPES, **DriverLimit(0, 3072).variables()}
    assert [(mount.host_path, mount.container_path) for mount in added.mounts] == [(PIPES, PIPES)]
    assert made.of_cards() == {"GPU-0000": "driver", "GPU-0001": "mps", "GPU-0002": "mps"}


async def test_by_protocol_2_mps_limits_its_memory_whatever_the_driver_can_do(folder: Path) -> None:
    made = sharing_by_mps(folder, protocol=2)
    assert made.additions(share_of(3)).env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3072M"
    assert set(made.of_cards().values()) == {"mps"}


@pytest.mark.parametrize(
    ("hookless", "exclusive", "memory"),
    [
        pytest.param((), False, "", id="by the driver"),
        pytest.param(("GPU-0000",), False, " --pinned-memory-limit=3072M", id="by MPS where the driver cannot"),
        pytest.param(("GPU-0000",), True, "", id="not at all on a card of its own"),
    ],
)
async def test_a_container_starts_with_a_namespace(
    node: Node,
    hookless: tuple[str, ...],
    exclusive: bool,  # noqa: FBT001 - a case of the table
    memory: str,
) -> None:
    node.wanted, node.modes, node.driver, node.live = {"GPU-0000"}, {"GPU-0000": ""}, "615.71.09", {"uid-p"}
    made, share = sharing_by_mps(node.folder, hookless=hookless), share_of(3, percent=30)
    async with daemons(node) as made.mps:
        await up(made.mps, "GPU-0000")
        assert made.compute_of_cards() == {"GPU-0000": "mps", "GPU-0001": "", "GPU-0002": ""}
        assert await made.prepare(replace(share, pod=replace(share.pod, exclusive=exclusive))) == ""
        limits = f"--active-thread-percentage=30{memory}"
        name = namespace_of("uid-p", "c0")
        assert node.commands("GPU-0000")[-1] == f"namespace set {name} --server=mps {limits}"


@pytest.mark.parametrize(
    ("kind", "driver", "serving", "namespaces"),
    [
        pytest.param("mps", "615.71.09", {"GPU-0000"}, True, id="a driver that has protocol 3"),
        pytest.param("mps", "580.65.06", {"GPU-0000"}, False, id="an older driver"),
        pytest.param("mps", "", set(), False, id="no daemon while the version is unknown"),
        pytest.param("/own.yaml", "615.71.09", {"GPU-0000"}, False, id="an own description is for protocol 2"),
    ],
)
async def test_the_protocol_follows_the_driver_of_the_node(
    folder: Path, kind: str, driver: str, serving: set[str], *, namespaces: bool
) -> None:
    states = CardStates(None)
    states.found(DriverCards(driver, (limited_card(),)), forget=False)
    view = records(folder)
    parts = IsolationParts(
        kind=kind_of(folder, kind, {kind: mps(Mps())}),
        driver=NoDriver(),
        states=states,
        view=view,
        edits=SimulatedEdits(folder, view),
        injection=FixedInjection(),
        recorder=Recorded(),
        registry=CollectorRegistry(),
        backoff_s=float,
    )
    made = isolation_for(DevicePluginConfiguration(node_name="n", state_dir=str(folder)), parts).mps
    assert (made.serving(), made.has_namespaces("GPU-0000")) == (serving, namespaces)
