"""What goes and what stays, who holds cards, and how it is said."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pytest

from config.protocol import names
from config.settings.deviceplugin import DEFAULT_STATE_DIR
from config.settings.scheduler import Resources
from deviceplugin.allocation.pods import MIRROR, NodePod
from deviceplugin.kubelet.checkpoint import CheckpointEntry, KubeletContainer
from deviceplugin.uninstall.plan import POD_HOLDS, Found, Item, ItemKind, holders, node_items
from scheduler.kube import objects
from tests.support.node.node_pods import node_pod
from tests.support.repository import ROOT

GONE: Final = {names.GPU_MEM: "0", names.GPU_COUNT: "2", "cpu": "8"}
OFFERED: Final = GONE | {names.GPU_MEM: "16"}
BARE: Final = {"cpu": "8"}
GPU_MEM: Final = f"resource {names.GPU_MEM}"
OURS: Final = [f"resource {names.GPU_COUNT}", f"annotation {names.INVENTORY}", f"annotation {names.HELD_UNTIL}"]
FORGETS: Final = "the kubelet drops the plugin's devices 5 minutes after the plugin stops"


def of_node(*, registered: bool = False, **fields: Any) -> tuple[list[str], dict[str, bool]]:  # noqa: ANN401 - of a node
    """(what goes, what stays -> whether it is the plugin's)."""
    annotations = {names.INVENTORY: "{}", names.HELD_UNTIL: "", "example.com/x": ""}
    known = {"annotations": annotations, "labels": {}, "capacity": GONE, "allocatable": GONE} | fields
    status = {name: known.pop(name) for name in ("capacity", "allocatable")}
    node = msgspec.convert({"metadata": {"name": "n1", **known}, "status": status}, objects.Node)
    items = [*node_items(node, Resources(), registered=registered)]
    return [str(one) for one in items if not one.stays], {str(one): not one.theirs for one in items if one.stays}


@pytest.mark.parametrize(
    ("fields", "goes", "stays"),
    [
        pytest.param({}, [*OURS, GPU_MEM], [], id="forgotten, at 0"),
        pytest.param({"registered": True}, OURS, [GPU_MEM], id="the kubelet lists it, at 0"),
        pytest.param({"capacity": OFFERED}, OURS, [GPU_MEM], id="not at 0 yet"),
        pytest.param(
            {"capacity": {}, "allocatable": {names.GPU_MEM: "0"}}, [*OURS[1:], GPU_MEM], [], id="allocatable alone"
        ),
        pytest.param({"capacity": OFFERED, "allocatable": OFFERED}, [], [*OURS, GPU_MEM], id="units are allocatable"),
        pytest.param({"capacity": BARE, "allocatable": BARE, "annotations": {}}, [], [], id="clean"),
        pytest.param(
            {"annotations": {names.CLEAR_HEALTH: "", names.RELEASE: ""}, "capacity": {}, "allocatable": {}},
            [f"annotation {names.CLEAR_HEALTH}", f"annotation {names.RELEASE}"],
            [],
            id="orders to the plugin",
        ),
    ],
)
def test_what_goes_from_the_node_object(fields: dict[str, Any], goes: list[str], stays: list[str]) -> None:
    assert of_node(**fields) == (goes, dict.fromkeys(stays, True))


def test_what_is_an_operators_stays_and_keeps_nothing_waiting() -> None:
    annotations = {names.CORDON: "", names.MAX_SHARERS: ""}
    found = of_node(annotations=annotations, labels={"gpushare": "true"}, capacity=BARE, allocatable=BARE)
    theirs = [f"annotation {names.CORDON}", f"annotation {names.MAX_SHARERS}", "label gpushare"]
    assert found == ([], dict.fromkeys(theirs, False))


def test_a_label_that_keeps_the_plugin_away_is_not_named() -> None:
    """Without it the DaemonSet would come back where it selects nodes by other labels."""
    assert of_node(annotations={}, labels={"gpushare": "false"}, capacity=BARE, allocatable=BARE) == ([], {})


def entry(uid: str, *ids: str) -> CheckpointEntry:
    return CheckpointEntry(uid, "c0", names.GPU_MEM, frozenset(ids))


def listed(pod: str, *ids: str) -> KubeletContainer:
    return KubeletContainer("ns", pod, "c0", frozenset(ids))


LIVE: Final = node_pod("live", [2], phase="Running")
DONE: Final = node_pod("done", [2], phase="Succeeded")
STATIC: Final = node_pod("static", [2], uid="of the API server", annotations={MIRROR: "kubelet"}, phase="Failed")


@pytest.mark.parametrize(
    ("pods", "recorded", "known", "expected"),
    [
        pytest.param([], [], [], (), id="none"),
        pytest.param([LIVE, node_pod("other", [0])], [entry("uid-live", "u0")], [], ("ns/live",), id="it runs"),
        pytest.param([DONE], [entry("uid-done", "u0")], None, (), id="it has finished, and the kubelet is silent"),
        pytest.param([node_pod("ending", [1], terminating=True)], [], [], ("ns/ending",), id="it terminates"),
        pytest.param([STATIC], [entry("kubelet", "u0")], None, (), id="a static pod that has failed"),
        pytest.param([], [entry("dead", "u0")], [], (), id="an entry of a dead pod"),
        pytest.param([], [entry("x", "u0")], [listed("x", "u0")], ("ns/x",), id="unknown to the API server"),
        pytest.param([], [entry("dead or not", "u0")], None, ("UID dead or not",), id="the kubelet is silent"),
        pytest.param(
            [node_pod("gone", [2], uid="before", phase="Failed")],
            [entry("before", "u0"), entry("gone", "u1")],
            [listed("gone", "u1"), listed("cpu-only")],
            ("ns/gone",),
            id="the name of a finished pod, in an old answer",
        ),
        pytest.param(
            [DONE],
            [entry("uid-done", "u0"), entry("dead", "u1")],
            [listed("done", "u0")],
            (),
            id="finished, and listed",
        ),
    ],
)
def test_who_holds_cards(
    pods: Sequence[NodePod],
    recorded: Sequence[CheckpointEntry],
    known: Sequence[KubeletContainer] | None,
    expected: tuple[str, ...],
) -> None:
    assert holders(pods, recorded, known) == expected


WAITS: Final = Item(ItemKind.RESOURCE, names.GPU_MEM, FORGETS)
HOLDING: Final = Found(
    (
        WAITS,
        Item(
            ItemKind.NAMED,
            "label gpushare",
            "set by an operator; to remove it: kubectl label node n1 gpushare-",
            theirs=True,
        ),
        Item(ItemKind.FILE, "/var/run/cdi/gpushare-9b1fd2b3a3e0c7d5.json", POD_HOLDS),
        Item(ItemKind.TREE, DEFAULT_STATE_DIR, POD_HOLDS),
    ),
    pods=("default/small-0",),
)


def test_the_document_shows_what_is_said() -> None:
    removed = [f"removed {one}" for one in OURS]
    said = HOLDING.report(removed, "Node n1: not everything has been removed.")
    assert f"```text\n{said}```" in (ROOT / "docs" / "node-reference.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("found", "failed", "problem"),
    [
        pytest.param(HOLDING, ["/x: Is a directory"], "pods hold cards: default/small-0", id="pods first"),
        pytest.param(Found((WAITS,), pods=("default/p",)), ["/x: no\n"], "/x: no?", id="pods that are not waited for"),
        pytest.param(Found((WAITS,)), [], f"{GPU_MEM} stays: {FORGETS}", id="the kubelet"),
        pytest.param(Found((Item(ItemKind.FILE, "/x", "a link", theirs=True),)), [], "", id="nothing of the plugin's"),
    ],
)
def test_a_probe_is_told_one_thing(found: Found, failed: list[str], problem: str) -> None:
    assert found.problem(failed) == problem
