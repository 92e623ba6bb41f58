"""What goes and what stays, by what is there."""

from dataclasses import replace
from typing import Any, Final

import pytest

from config.protocol import names
from config.settings.scheduler import Resources
from deviceplugin.uninstall.facts import Holders, HoldingPod, Installed, NodeObject, StateDirectory
from deviceplugin.uninstall.look import OURS
from deviceplugin.uninstall.plan import Plan, RemovalKind, Until, plan

STATE: Final = "/state"
ENTRIES: Final = {"lock": False, "journal.json": False, "isolation": True}
GONE: Final = {names.GPU_MEM: 0, names.GPU_COUNT: 2, "cpu": 8}
HELD: Final = Holders(pods=(HoldingPod("ns/p", "2 units of card 0"),), devices=frozenset({"used"}))


def state(**entries: bool) -> StateDirectory:
    named = {name.replace("_", "."): is_directory for name, is_directory in entries.items()}
    return StateDirectory(path=STATE, lock="lock", ours=OURS, there=True, entries=named or ENTRIES)


def node(**fields: Any) -> NodeObject:  # noqa: ANN401 - as NodeObject
    ours = frozenset({names.INVENTORY, names.HELD_UNTIL, "example.com/x"})
    return NodeObject(**{"annotations": ours, "capacity": GONE, "allocatable": GONE} | fields)


def facts(**fields: Any) -> Installed:  # noqa: ANN401 - as Installed
    specs = {"/cdi/gpushare-used.json": "used", "/cdi/gpushare-unused.json": "unused"}
    known: dict[str, Any] = {"node_name": "n", "resources": Resources(), "node": node(), "state": state()}
    known |= {"specs": specs, "sockets": ("/plugins/gpushare.sock",)}
    return Installed(**(known | fields))


def removed(found: Plan) -> list[str]:
    return [str(one) for one in (*found.remove, *found.last)]


def waiting(found: Plan) -> dict[str, Until]:
    return {one.what: one.until for one in found.waits}


ON_THE_NODE: Final = [
    f"resource {names.GPU_COUNT}",
    f"annotation {names.INVENTORY}",
    f"annotation {names.HELD_UNTIL}",
    f"resource {names.GPU_MEM}",
]


def test_without_pods_all_of_it_goes_and_the_lock_last() -> None:
    assert removed(plan(facts(), force=False)) == [
        *ON_THE_NODE,
        "/plugins/gpushare.sock",
        "/cdi/gpushare-unused.json",
        "/cdi/gpushare-used.json",
        "/state/isolation",
        "/state/journal.json",
        "/state/lock",
        "/state",
    ]


def test_what_a_live_pod_needs_stays_and_the_rest_goes() -> None:
    found = plan(facts(holders=HELD, mps=("/mps/GPU-a",)), force=False)

    assert removed(found) == [*ON_THE_NODE, "/plugins/gpushare.sock", "/cdi/gpushare-unused.json"]
    assert waiting(found) == dict.fromkeys(["/cdi/gpushare-used.json", "/mps/GPU-a", STATE], Until.PODS)
    assert {one.why for one in found.waits} == {"pods hold cards: ns/p"}


def test_force_takes_what_pods_need_too() -> None:
    assert removed(plan(facts(holders=HELD), force=True)) == removed(plan(facts(), force=False))


def test_every_spec_stays_where_the_checkpoint_cannot_be_read() -> None:
    found = plan(facts(holders=replace(HELD, devices=None)), force=False)
    assert {"/cdi/gpushare-unused.json", "/cdi/gpushare-used.json"} <= waiting(found).keys()


def test_files_stay_while_nobody_knows_which_pods_there_are() -> None:
    found = plan(facts(node=None, unknown="no answer"), force=False)

    assert removed(found) == ["/plugins/gpushare.sock"]
    assert set(waiting(found).values()) == {Until.ANSWER}
    forced = plan(facts(node=None, unknown="no answer"), force=True)
    assert waiting(forced) == {"node n": Until.ANSWER}
    assert "/state/journal.json" in removed(forced)


@pytest.mark.parametrize(
    ("fields", "goes"),
    [
        pytest.param({}, True, id="forgotten, at 0"),
        pytest.param({"listed": True}, False, id="the kubelet lists it, at 0"),
        pytest.param({"node": node(capacity=GONE | {names.GPU_MEM: 16})}, False, id="not at 0 yet"),
        pytest.param({"node": node(capacity={}, allocatable={names.GPU_MEM: 0})}, True, id="allocatable alone"),
    ],
)
def test_the_kubelets_resource_goes_when_the_kubelet_has_forgotten_it(fields: dict[str, Any], *, goes: bool) -> None:
    found = plan(facts(**fields), force=False)
    assert (ON_THE_NODE[-1] in removed(found), ON_THE_NODE[-1] in waiting(found)) == (goes, not goes)
    # Until then the lock keeps a new plugin away.
    assert ("/state/lock" in removed(found)) is goes


def test_while_units_are_allocatable_the_node_object_stays_as_it_is() -> None:
    offered = node(capacity=GONE | {names.GPU_MEM: 16}, allocatable=GONE | {names.GPU_MEM: 16})
    found = plan(facts(node=offered, listed=True), force=False)
    assert waiting(found) == dict.fromkeys(ON_THE_NODE, Until.KUBELET)


def test_what_is_somebody_elses_stays_and_keeps_nothing_waiting() -> None:
    annotations = frozenset({names.CORDON, names.MAX_SHARERS, names.CLEAR_HEALTH, names.RELEASE})
    ours = node(annotations=annotations, labels={"gpushare": "true"}, capacity={"cpu": 8}, allocatable={"cpu": 8})
    found = plan(facts(node=ours, state=state(lock=False, notes_txt=False), specs={}, sockets=()), force=False)

    assert removed(found) == [f"annotation {names.CLEAR_HEALTH}", f"annotation {names.RELEASE}", "/state/lock"]
    assert [one.what for one in found.stays] == [
        f"annotation {names.CORDON}",
        f"annotation {names.MAX_SHARERS}",
        "label gpushare",
        "/state/notes.txt",
    ]
    assert not found.waits


def test_a_label_that_keeps_the_plugin_away_is_not_among_what_is_left_of_it() -> None:
    """Without it the DaemonSet would come back where it selects nodes by other labels."""
    kept_out = node(annotations=frozenset(), labels={"gpushare": "false"}, capacity={"cpu": 8}, allocatable={"cpu": 8})
    assert plan(facts(node=kept_out, specs={}, sockets=()), force=False).stays == ()


def test_a_state_directory_that_is_mounted_stays_empty() -> None:
    found = plan(facts(state=replace(state(), mounted=True)), force=False)
    assert removed(found)[-1] == "/state/lock"
    assert (found.stays[-1].what, found.waits) == (STATE, ())


def test_compute_modes_are_given_back_before_their_file_goes() -> None:
    changed = replace(state(), entries={"compute-modes.json": False})
    for modes, kind in (("", RemovalKind.FILE), ("/state/compute-modes.json", RemovalKind.MODES)):
        (found,) = (one for one in plan(facts(state=changed, modes=modes), force=False).remove if "modes" in one.name)
        assert found.kind is kind


def test_a_clean_node_has_nothing_to_remove() -> None:
    bare = NodeObject(labels={"gpushare": "true"}, capacity={"cpu": 8}, allocatable={"cpu": 8})
    nothing = StateDirectory(path=STATE, lock="lock", ours=OURS)
    found = plan(facts(node=bare, state=nothing, specs={}, sockets=()), force=False)
    assert (found.remove, found.last, found.waits) == ((), (), ())
