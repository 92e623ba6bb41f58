"""What nobody uses any more goes, and what cannot be looked at stays."""

from pathlib import Path

from deviceplugin.cdi import spec
from tests.support.node.reconcile_site import rig


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
        node.assigned.by_container[uid, "c0"] = frozenset({"GPU-a"})
        await loop.round()
        node.ends("p")
        await loop.round()
        assert node.journal.first(uid, {}).changed
        assert node.assigned.by_container
        node.records.clear()
        node.record("uid-other", [])
        await loop.round()
        assert not node.journal.first(uid, {}).changed
        assert not node.assigned.by_container


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
        assert [one.reason for one in node.events] == ["GPUOtherUnits"]
        assert "checkpoint cannot be read" in loop.result.problems[0]


async def test_specs_that_cannot_be_removed_are_reported_and_the_round_goes_on(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        node.runs("p", 2)
        stubborn = folder / "cdi" / f"gpushare-{spec.device_name(['gone'])}.json"
        stubborn.mkdir(parents=True)
        await loop.round()
        assert "cannot remove CDI specs" in loop.result.problems[0]
        assert len(loop.result.containers) == 1


async def test_directories_that_cannot_be_removed_are_reported_and_specs_go(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        node.runs("p", 2)
        stubborn = folder / "isolation" / "pods"
        stubborn.mkdir(parents=True)
        (stubborn / "gone").symlink_to(folder)
        assert loop.files is not None
        loop.files.write(spec.device_name(["gone-0"]), {})
        await loop.round()
        assert "cannot remove directories of isolation" in loop.result.problems[0]
        assert loop.files.present() == {}


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


async def test_directories_of_isolation_are_removed_when_the_kubelet_has_forgotten_the_pod(folder: Path) -> None:
    async with rig(folder) as (node, loop):
        uid = node.runs("p", 2)
        kept = folder / "isolation" / "pods" / uid
        (kept / "c0").mkdir(parents=True)
        await loop.round()
        node.ends("p")
        await loop.round()
        assert loop.directories.present() == [uid]
        node.records.clear()
        node.record("uid-other", [])
        await loop.round()
        assert loop.directories.present() == []
