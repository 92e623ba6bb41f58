"""Which containers isolation refuses, and what it waits for."""

from collections.abc import Mapping
from pathlib import Path

from config.settings.deviceplugin import HamiCore, Mps
from config.settings.isolation import NONE, IsolationMechanism, hami_core, mps
from deviceplugin.cdi.edits import Additions
from deviceplugin.driver.cards import CardReading
from deviceplugin.isolation.make import NodeIsolation
from deviceplugin.isolation.mps_cards import ComputeModes, MpsCards
from tests.support.node.container_shares import share_of


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
    made = isolation(tmp_path, NONE)
    assert (made.objection(share_of(cards=2)), await made.prepare(share_of())) == ("", "")
    assert (made.additions(share_of()), made.directories.present()) == (Additions(), [])
    assert not made.mps.problems()


async def test_a_client_of_mps_needs_the_nodes_shared_memory(tmp_path: Path) -> None:
    made = isolation(tmp_path, mps(Mps()))
    assert "add hostIPC: true to the pod" in made.objection(share_of())
    assert made.objection(share_of(host_ipc=True)) == ""


async def test_a_client_of_mps_has_one_card(tmp_path: Path) -> None:
    told = isolation(tmp_path, mps(Mps())).objection(share_of(cards=2, host_ipc=True))
    assert told.startswith("container c0 has 2 cards; with MPS a container has one")


async def test_a_client_of_mps_waits_for_its_daemon(tmp_path: Path) -> None:
    told = await isolation(tmp_path, mps(Mps())).prepare(share_of(host_ipc=True))
    assert told == "card GPU-0000: it has no MPS daemon now"


async def test_the_directories_of_a_container_are_there_before_it_starts(tmp_path: Path) -> None:
    made = isolation(tmp_path, hami_core(HamiCore(library="/opt/libvgpu.so")))
    assert (made.objection(share_of(cards=2)), await made.prepare(share_of())) == ("", "")
    assert made.directories.present() == ["uid-p"]
    kept = [mount.host_path.startswith(f"{tmp_path}/isolation/") for mount in made.additions(share_of()).mounts]
    assert kept == [False, True, True, True]
