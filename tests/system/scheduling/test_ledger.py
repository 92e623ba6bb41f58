"""What the ledger believes of pods that somebody has bound, or edited, and what its audit tells."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from config.protocol import names
from config.protocol.inventory import Card
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube import objects
from scheduler.kube.port import PODS
from scheduler.testing.cluster.faults import Break, Effect, Silence, Slow, Verb
from scheduler.testing.cluster.world import World
from tests.support.builders import card, wire_node
from tests.support.service.looking import A_SECOND_S, arrives, cluster, comes, condition, events, node_of, warnings
from tests.support.service.process import scheduling, start
from tests.support.service.wire import Posts, Wire

ON_CARD_0 = {names.ALLOCATION: '{"0":{"0":12}}', names.CARDS: '{"0":"GPU-a-0"}', names.UNIT_MIB: "1024"}


def edits(of: World, name: str, **written: str) -> None:
    """Somebody with the right to do so edits the annotations of a bound pod."""
    keys = {"allocation": names.ALLOCATION, "cards": names.CARDS}

    def edited(pod: objects.PodObject) -> objects.PodObject:
        annotations = {**(pod.metadata.annotations or {}), **{keys[key]: text for key, text in written.items()}}
        return replace(pod, metadata=replace(pod.metadata, annotations=annotations))

    of.pods.update("default", name, edited)


def told(logs: list[MutableMapping[str, Any]]) -> list[tuple[str, str]]:
    return [(line["name"], line["problem"]) for line in logs if line["event"] == "object.bad"]


async def test_after_a_change_of_the_unit_no_more_goes_onto_a_card_than_it_has() -> None:
    """16 GiB, 12 of them used in units of 1 GiB; then the unit is 256 MiB."""
    of = cluster(a=[16])
    async with scheduling(of):
        await arrives(of, "before", 12)
    quarters = [Card(index=0, uuid="GPU-a-0", model="M", memory_mib=16 * 1024, units=64)]
    of.nodes.update("a", lambda _: wire_node("a", quarters, unit_mib=256))
    async with scheduling(of, SchedulerConfiguration.model_validate({"bindTimeout": 0, "memoryUnitMiB": 256})) as again:
        comes(of, "fits", 16)
        comes(of, "too-much", 1)
        await asyncio.sleep(A_SECOND_S)

        assert again.free == {"GPU-a-0": 0}
        assert (node_of(of, "fits"), node_of(of, "too-much")) == ("a", "")


async def test_an_edited_annotation_moves_no_memory_and_is_told() -> None:
    of = cluster(a=[16, 16])
    with capture_logs() as logs:
        async with scheduling(of) as process:
            await arrives(of, "p", 12)
            assert process.free == {"GPU-a-0": 4, "GPU-a-1": 16}

            edits(of, "p", allocation='{"0":{"1":12}}', cards='{"1":"GPU-a-1"}')
            await arrives(of, "next", 12)

            assert process.free == {"GPU-a-0": 4, "GPU-a-1": 4}
            problem = "its allocation was changed after it was bound; the original one applies: 12 on GPU-a-0"
            assert told(logs) == [("default/p", problem)]
            assert warnings(of, "p") == [("BadAnnotation", problem)]


@pytest.mark.parametrize("answer_s", [pytest.param(0.5, id="answered first"), pytest.param(3.0, id="shown first")])
@pytest.mark.parametrize("left", ['{"0":{"1":12}}', "{}"])
async def test_an_edit_that_the_watch_shows_before_our_own_binding_moves_nothing(answer_s: float, left: str) -> None:
    of = cluster(a=[16, 16])
    with capture_logs() as logs:
        async with scheduling(of) as process:
            process.wire.faults.add(Verb.BIND, Slow(before_s=0.5, after_s=answer_s), count=1)
            comes(of, "p", 12)
            await asyncio.sleep(0.2)
            process.wire.break_watches(Break.STALLED, PODS)
            await asyncio.sleep(0.4)
            assert node_of(of, "p") == "a"
            edits(of, "p", allocation=left, cards='{"1":"GPU-a-1"}')
            await asyncio.sleep(1)
            process.wire.break_watches(Break.EXPIRED, PODS)
            await asyncio.sleep(0.1)
            process.wire.resume_watches()
            await asyncio.sleep(1)
            if answer_s > 1:
                assert process.free == {"GPU-a-0": 4, "GPU-a-1": 4}
            await asyncio.sleep(5)

            assert process.free == {"GPU-a-0": 4, "GPU-a-1": 16}
            assert not [record for record in process.engine.tables.records() if record.assumed]
            assert [name for name, _ in told(logs)] == ["default/p"]


async def test_what_another_binder_wrote_on_our_node_counts_once_our_binding_is_refused() -> None:
    """Shown while ours is on the way, it may be either: until then it counts on every card."""
    of = cluster(a=[16, 16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Silence(), count=1)
        comes(of, "p", 12)
        await asyncio.sleep(0.5)
        of.pods.bind(
            "default", "p", "a", {**ON_CARD_0, names.ALLOCATION: '{"0":{"1":12}}', names.CARDS: '{"1":"GPU-a-1"}'}
        )
        await asyncio.sleep(0.1)
        assert process.free == {"GPU-a-0": 4, "GPU-a-1": 4}

        await asyncio.sleep(60)
        assert process.free == {"GPU-a-0": 16, "GPU-a-1": 4}


async def test_a_late_request_of_a_killed_process_is_found_by_the_audit() -> None:
    """It took effect later than the new process waits: two pods are on one card, which is told, not repaired."""
    of = cluster(a=[16])
    first = start(Wire(of, Posts(of)))
    await asyncio.sleep(A_SECOND_S)
    first.wire.faults.add(Verb.BIND, Silence(Effect.LATER, late_s=30.0), count=1)
    comes(of, "early", 12)
    await asyncio.sleep(0.1)
    await first.kill()
    of.pods.update("default", "early", lambda pod: replace(pod, spec=replace(pod.spec, scheduler_name="other")))
    with capture_logs() as logs:
        async with scheduling(of) as process:
            await arrives(of, "late", 8)
            assert node_of(of, "late") == "a"
            await asyncio.sleep(700)

            assert process.free == {"GPU-a-0": -4}
            message = (
                "card GPU-a-0 has 16 units, and 20 are booked; kubectl gpushare audit names the largest pods on it"
            )
            assert ("a", message) in told(logs)
            assert ("GPUOverbooked", message) in events(of, "a")
            assert process.sample("overcommitted_cards") == 1


async def test_the_audit_repairs_what_the_columns_have_wrong() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of) as process:
        await arrives(of, "p", 12, to="a")
        row = process.engine.tables.row_of["a"]
        process.engine.tables.cards.stored.free[0, row] = 16
        await asyncio.sleep(600)

        assert process.free == {"GPU-a-0": 4, "GPU-b-0": 16}
        assert [reason for reason, _ in events(of, "a")] == ["LedgerDiffered"]
        assert process.sample("ledger_differences_total") == 1
        assert process.sample("ledger_audits_total") == 1


async def test_one_uuid_on_two_nodes_is_sold_once() -> None:
    of = cluster(a=[16])
    of.nodes.add(wire_node("b", [card(0, 16, node="a")]))
    async with scheduling(of) as process:
        comes(of, "p", 12)
        comes(of, "q", 12)
        await asyncio.sleep(A_SECOND_S)

        assert [node_of(of, "p"), node_of(of, "q")].count("") == 1
        assert "Insufficient GPU memory" in condition(of, "p" if not node_of(of, "p") else "q")
        assert [reason for reason, _ in events(of, "b")] == ["BadAnnotation"]

        await asyncio.sleep(600)
        assert process.sample("shared_cards") == 1
        assert "GPUAnnouncedTwice" in [reason for reason, _ in events(of, "a")]
