"""Protocol 3 of MPS: a namespace for each container, and clients that are terminated before their pod ends."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from config.settings.deviceplugin import Mps
from deviceplugin.isolation.mps_control import ControlFailed, protocol_of
from deviceplugin.isolation.mps_namespaces import MpsNamespace, NamespaceControl, namespace_of
from tests.deviceplugin.isolation.test_mps_cards import CARD, POD, Node, daemons, eventually, node, up
from tests.support.node import mps_double

assert node  # a fixture
NAME = namespace_of(POD.uid, "c0")
FIRST = MpsNamespace(NAME, POD.uid, 25, 4096)
CREATED = ["server create mps", f"namespace create {NAME} --server=mps"]
SET = f"namespace set {NAME} --server=mps --active-thread-percentage=25"


@pytest.fixture
def new(node: Node) -> Node:
    """A node with a driver that has protocol 3."""
    node.driver = "615.71.09"
    return node


@pytest.mark.parametrize(
    ("settings", "driver", "protocol"),
    [
        pytest.param({}, "615.71.09", 3, id="a driver that has it"),
        pytest.param({}, "614.99", 2, id="an older driver"),
        pytest.param({}, "", 2, id="an unknown driver"),
        pytest.param({}, "new", 2, id="a version that is no number"),
        pytest.param({"daemons": "external"}, "620.10", 2, id="daemons of others"),
        pytest.param({"directory": "/" + "d" * 22}, "620.10", 2, id="a directory too long for its sockets"),
        pytest.param({"protocol": 3, "daemons": "external"}, "", 3, id="as configured"),
        pytest.param({"protocol": 2}, "620.10", 2, id="as configured, for a newer driver"),
    ],
)
def test_the_protocol_follows_the_driver(settings: dict[str, object], driver: str, protocol: int) -> None:
    assert protocol_of(Mps.model_validate(settings), driver) == protocol


def test_a_namespace_has_a_name_that_the_program_accepts() -> None:
    assert NAME.isalnum()
    assert (NAME.lower(), len(NAME)) == (NAME, 20)
    assert len({NAME, namespace_of(POD.uid, "c1"), namespace_of("other", "c0")}) == 3


def test_the_longest_socket_fits() -> None:
    control = NamespaceControl(Mps(directory="/" + "d" * 21), "GPU-12345678-1234-1234-1234-123456789012")
    assert len(str(control.pipes / "mps" / NAME / "control_privileged")) == 107
    with pytest.raises(ControlFailed, match="at most 22 characters"):
        NamespaceControl(Mps(directory="/" + "d" * 22), CARD)


async def test_a_container_has_a_namespace_with_its_limits_and_the_card_keeps_its_mode(new: Node) -> None:
    async with daemons(new) as cards:
        assert (await up(cards), cards.has_namespaces(CARD), cards.serving()) == ("", True, {CARD})
        assert await cards.admit(CARD, FIRST) == ""
        assert new.commands() == [*CREATED, f"{SET} --pinned-memory-limit=4096M"]
        assert (new.pipes() / "mps" / NAME / "control").exists()
        assert (new.modes[CARD], new.events) == ("", [])


async def test_where_the_driver_limits_memory_the_namespace_does_not(new: Node) -> None:
    async with daemons(new) as cards:
        await up(cards)
        assert await cards.admit(CARD, MpsNamespace(NAME, POD.uid, 25, None)) == ""
        assert new.commands() == [*CREATED, SET]


async def test_a_container_that_starts_again_keeps_its_namespace_though_it_has_clients(new: Node) -> None:
    async with daemons(new) as cards:
        await up(cards)
        await cards.admit(CARD, FIRST)
        (new.pipes() / "mps" / NAME / mps_double.BUSY).touch()
        assert await cards.admit(CARD, FIRST) == ""


async def test_a_container_that_starts_with_other_limits_waits_for_its_clients_and_gets_them(new: Node) -> None:
    async with daemons(new) as cards:
        await up(cards)
        await cards.admit(CARD, MpsNamespace(NAME, POD.uid, 25, None))
        busy = new.pipes() / "mps" / NAME / mps_double.BUSY
        busy.touch()
        assert "has failed at namespace set" in await cards.admit(CARD, FIRST)
        busy.unlink()
        assert await cards.admit(CARD, FIRST) == ""
        assert new.commands()[-1] == f"{SET} --pinned-memory-limit=4096M"


async def test_a_namespace_of_unknown_limits_and_with_clients_lets_no_container_start(new: Node) -> None:
    async with daemons(new) as cards:
        await up(cards)
        folder = new.pipes() / "mps" / NAME
        folder.mkdir()
        (folder / "control").touch()
        (folder / mps_double.BUSY).touch()
        assert "has failed at namespace set" in await cards.admit(CARD, FIRST)
        (folder / mps_double.BUSY).unlink()
        assert await cards.admit(CARD, FIRST) == ""


async def test_a_namespace_goes_with_its_pod_once_it_has_no_clients(new: Node) -> None:
    async with daemons(new) as cards:
        await up(cards)
        await cards.admit(CARD, FIRST)
        busy = new.pipes() / "mps" / NAME / mps_double.BUSY
        busy.touch()
        new.live = set()
        cards.cards_changed()
        await eventually(lambda: f"refused namespace delete {NAME} --server=mps" in new.commands())
        assert busy.exists()
        busy.unlink()
        cards.cards_changed()
        await eventually(lambda: not (new.pipes() / "mps" / NAME).exists())
        assert await up(cards) == ""


async def test_a_daemon_that_loses_its_server_is_replaced_and_its_namespaces_with_it(new: Node) -> None:
    async with daemons(new) as cards:
        await up(cards)
        await cards.admit(CARD, FIRST)
        (new.pipes() / "mps" / "control").unlink()
        await eventually(lambda: new.metric("ends_total") == 1.0 and new.metric("ready") == 1.0)
        assert "its MPS server has ended" in new.events[0].note
        assert await cards.admit(CARD, FIRST) == ""
        assert (new.pipes() / "mps" / NAME / "control").exists()


async def test_the_mode_that_an_earlier_plugin_set_is_restored(new: Node) -> None:
    new.driver = "580.65.06"
    async with daemons(new) as cards:
        await up(cards)
        left = (new.folder / "state" / "compute-modes.json").read_text()
    (new.folder / "state" / "compute-modes.json").write_text(left)
    new.modes[CARD], new.driver = "EXCLUSIVE_PROCESS", "615.71.09"
    async with daemons(new) as cards:
        assert (await up(cards), new.modes[CARD]) == ("", "")


@pytest.mark.parametrize("driver", ["580.65.06", "615.71.09"])
async def test_only_the_clients_of_the_pod_are_terminated(new: Node, driver: str) -> None:
    async def of_pod(pids: Sequence[int]) -> list[int]:
        return [pid for pid in pids if pid != 12]

    new.driver = driver
    async with daemons(new) as cards:
        await up(cards)
        (new.pipes() / mps_double.CLIENTS).write_text("11\n12\n3165259\n")
        await cards.drain(CARD, of_pod)
        assert new.commands()[-2:] == ["client terminate 11", "client terminate 3165259"]
        assert (new.pipes() / mps_double.CLIENTS).read_text() == "12\n"
        assert new.events == []


async def test_a_client_that_does_not_end_has_the_daemon_replaced(new: Node) -> None:
    async def all_of_them(pids: Sequence[int]) -> Sequence[int]:
        return pids

    async with daemons(new) as cards:
        await up(cards)
        (new.pipes() / mps_double.CLIENTS).write_text("11\n")
        (new.pipes() / mps_double.HANGING).touch()
        await cards.drain(CARD, all_of_them)
        await eventually(lambda: new.metric("ends_total") == 1.0 and new.metric("ready") == 1.0)
        assert [(one.reason, one.pod) for one in new.events] == [("GPUIsolationLost", POD)]
        assert "its MPS client 11 did not end within 1 s" in new.events[0].note


async def test_without_a_daemon_there_is_nothing_to_drain_and_no_namespace(new: Node) -> None:
    async def nobody(pids: Sequence[int]) -> Sequence[int]:
        raise AssertionError(pids)

    new.wanted = set()
    async with daemons(new) as cards:
        await cards.drain(CARD, nobody)
        assert await cards.admit(CARD, FIRST) == f"card {CARD}: its MPS daemon has no namespaces"


async def test_processes_that_cannot_be_traced_are_left_alone(new: Node, tmp_path: Path) -> None:
    async def unreadable(_: Sequence[int]) -> list[int]:
        raise NotADirectoryError(tmp_path)

    async with daemons(new) as cards:
        await up(cards)
        (new.pipes() / mps_double.CLIENTS).write_text("11\n")
        await cards.drain(CARD, unreadable)
        assert (new.commands(), new.events) == (["server create mps"], [])
