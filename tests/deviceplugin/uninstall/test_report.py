"""What is said, and what docs/node.md shows of it."""

from typing import Final

from config.protocol import names
from config.settings.deviceplugin import DEFAULT_STATE_DIR
from config.settings.scheduler import Resources
from deviceplugin.uninstall import report
from deviceplugin.uninstall.facts import Holders, HoldingPod, Installed, NodeObject, StateDirectory
from deviceplugin.uninstall.look import OURS
from deviceplugin.uninstall.plan import Plan, Removal, RemovalKind, plan
from deviceplugin.uninstall.report import Remaining
from tests.support.repository import ROOT

SPEC: Final = "/var/run/cdi/gpushare-{}.json"
HELD: Final = "3 units of card 0 (GPU-8ef24466-da8d-5c70-aee2-d8f9f45d12f9)"
BEFORE: Final = Installed(
    node_name="n1",
    resources=Resources(),
    node=NodeObject(
        labels={"gpushare": "true"},
        annotations=frozenset({names.INVENTORY, names.HELD_UNTIL}),
        capacity={names.GPU_MEM: 15, names.GPU_COUNT: 1},
    ),
    state=StateDirectory(path=DEFAULT_STATE_DIR, lock="lock", ours=OURS, there=True, entries={"lock": False}),
    holders=Holders(pods=(HoldingPod("default/small-0", HELD),), devices=frozenset({"9b1fd2b3a3e0c7d5"})),
    listed=True,
    specs={SPEC.format(device): device for device in ("4d7a2146ae5f1a3c", "9b1fd2b3a3e0c7d5")},
)


def test_the_document_shows_what_is_said() -> None:
    found = plan(BEFORE, force=False)
    said = report.removed(found.remove) + report.left(Remaining(BEFORE, Plan(stays=found.stays)))
    assert f"```text\n{said}```" in (ROOT / "docs" / "node.md").read_text(encoding="utf-8")


def test_a_probe_is_told_one_thing_and_pods_first() -> None:
    kept = plan(BEFORE, force=False)
    assert Remaining(BEFORE, kept, {"/x": "Is a directory"}).problem == "pods hold cards: default/small-0"
    forced = plan(BEFORE, force=True)
    assert Remaining(BEFORE, forced, {"/x": "Is a directory"}).problem == "/x is not removed: Is a directory"
    gpu_mem = f"resource {names.GPU_MEM} stays: the kubelet forgets the plugin's devices 5 minutes after its end"
    assert Remaining(BEFORE, forced).problem == gpu_mem


def test_what_can_go_only_now_is_named_and_worth_another_try() -> None:
    gone = Remaining(BEFORE, Plan(remove=(Removal(RemovalKind.FILE, "/x"),)))
    assert (gone.clean, gone.later, gone.problem) == (False, True, "/x is still there")
    assert report.left(gone).splitlines()[-2:] == ["/x is still there: run it again", "Node n1: not all is gone."]
    failed = Remaining(BEFORE, gone.plan, {"/x": "Is a directory"})
    assert (failed.later, report.left(failed).count("/x")) == (False, 1)
