from typing import Any, Final

import msgspec
import pytest

from config.clusterfile.reading import read
from config.settings.scheduler import SchedulerConfiguration
from scheduler.build import build_engine
from scheduler.simulation.report import Report
from scheduler.state.ledger import of_tables
from tests.scheduler.simulation.described import described, node, pod, replayed, replayed_file
from tests.support.repository import ROOT

DEMO: Final = ROOT / "scheduler" / "simulation" / "demo.yaml"


def bound(report: Report) -> list[str]:
    """`time pod node` in the order of the decisions."""
    return [f"{placed.bound_s:g} {placed.pod.removeprefix('default/')} {placed.node}" for placed in report.placed]


def used(report: Report) -> list[tuple[int, int, float]]:
    """Units used at the end, at most and on average, of each card."""
    return [(card.used, card.peak, card.average) for card in report.cards]


def test_pods_are_placed_when_they_come_and_when_memory_becomes_free() -> None:
    report = replayed([node("a", 16)], [pod("p", 10, runs_s=30), pod("q", 10, at_s=1, runs_s=5), pod("r", 4, at_s=2)])
    assert bound(report) == ["0 p a", "2 r a", "30 q a"]
    assert [(placed.wait_s, placed.ended_s, placed.ended) for placed in report.placed] == [
        (0.0, 30.0, "finished"),
        (0.0, None, ""),
        (29.0, 35.0, "finished"),
    ]
    assert report.end_s == 35.0


def test_usage_is_what_is_booked_now_at_most_and_over_time() -> None:
    report = replayed([node("a", 16, 8)], [pod("p", 10, runs_s=30), pod("q", 8, at_s=10, runs_s=30)])
    assert used(report) == [(0, 10, 7.5), (0, 8, 6.0)]
    (whole,) = report.nodes
    assert (whole.units, whole.used, whole.peak, whole.average, whole.pods) == (24, 0, 18, 13.5, 0)


def test_a_pod_that_runs_forever_is_still_there_at_the_end() -> None:
    report = replayed([node("a", 16)], [pod("p", 10), pod("q", 6, runs_s=10)])
    assert used(report) == [(10, 16, 16.0)]
    assert report.nodes[0].pods == 1


def test_a_pod_waits_with_the_message_of_its_last_attempt() -> None:
    report = replayed([node("a", 16)], [pod("p", 10), pod("q", 20, at_s=3)])
    (waits,) = report.waiting
    assert (waits.pod, waits.since_s, waits.attempts) == ("default/q", 3.0, 1)
    assert waits.reason == (
        "0/1 nodes are available: 1 Insufficient GPU memory on one card: wants 20, most free 6 (of 16)."
    )
    assert report.decisions == 2


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        pytest.param(pod("p", 1, schedulerName=""), "schedulerName is default-scheduler", id="another scheduler"),
        pytest.param(pod("p", 1, schedulingGates=[{"name": "later"}]), "later", id="gated"),
        pytest.param(pod("p", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "being deleted", id="deleted"),
        pytest.param(pod("p", overhead={"cpu": "much"}), "cannot be read", id="no quantity"),
    ],
)
def test_a_pod_that_is_never_tried_says_why(waiting: dict[str, Any], reason: str) -> None:
    report = replayed([node("a", 16)], [waiting])
    assert [reason in waits.reason for waits in report.waiting] == [True]
    assert report.decisions == 0


def test_what_is_wrong_with_an_object_is_a_problem_of_the_report() -> None:
    report = replayed([node("a", annotations={"gpushare/inventory": "{"})], [pod("p", overhead={"cpu": "much"})])
    assert [problem.split(":")[0] for problem in report.problems] == ["Node a", "Pod default/p"]


def test_a_pod_that_goes_with_its_node_has_ended_there() -> None:
    report = replayed([node("a", 16)], [pod("p", 10, runs_s=60)], [{"at_s": 5, "node": "a", "lost": True}])
    assert [(placed.ended_s, placed.ended) for placed in report.placed] == [(5.0, "lost with its node")]
    assert [card.health for card in report.cards] == ["lost"]


def test_an_unhealthy_card_is_shown_with_its_reason() -> None:
    report = replayed([node("a", 16)], faults=[{"node": "a", "card": 0, "xid": 79}])
    assert [card.health for card in report.cards] == ["unhealthy: xid-79"]


def test_a_pod_bound_by_others_counts_and_is_not_among_those_placed() -> None:
    report = replayed([node("a", 16)], [pod("by-hand", 4, nodeName="a"), pod("p", 13)])
    assert (report.by_others, report.placed) == (1, ())
    assert [waits.pod for waits in report.waiting] == ["default/p"]


def test_a_pod_whose_card_is_unknown_counts_against_every_card() -> None:
    report = replayed([node("a", 16, 16)], [pod("by-hand", 4, nodeName="a", runs_s=10)])
    assert used(report) == [(0, 4, 4.0), (0, 4, 4.0)]
    assert report.nodes[0].peak == 4


def test_a_pod_that_runs_for_no_time_ends_when_it_starts() -> None:
    report = replayed([node("a", 16)], [pod("p", 16, runs_s=0), pod("q", 16)])
    assert bound(report) == ["0 p a", "0 q a"]


def test_the_same_files_always_give_the_same_report() -> None:
    reports = [replayed_file(read(DEMO), build_engine(SchedulerConfiguration())) for _ in range(2)]
    assert msgspec.json.encode(reports[0]) == msgspec.json.encode(reports[1])


def test_what_is_reported_as_used_is_what_the_scheduler_has_booked() -> None:
    engine, reader = build_engine(SchedulerConfiguration())
    report = replayed_file(read(DEMO), (engine, reader))
    booked = {
        (name, uuid): card.units - free
        for name, entry in of_tables(engine.tables).items()
        for (uuid, free), card in zip(entry.free.items(), engine.tables.inventory(name).cards, strict=True)
    }
    assert {(card.node, card.uuid or f"#{card.index}"): card.used for card in report.cards} == booked


def test_many_pods_fill_many_nodes_and_no_card_holds_too_much() -> None:
    nodes = [node("n", 16, 24, 40) | {"count": 50}]
    pods = [pod(f"p{units}", units, at_s=units, runs_s=100) | {"count": 100} for units in (3, 5, 7, 11)]
    cluster = described(nodes, pods)
    report = replayed_file(cluster, build_engine(SchedulerConfiguration()))
    assert (len(report.placed), report.waiting) == (400, ())
    assert [card for card in report.cards if card.peak > card.units] == []
    assert sum(whole.used for whole in report.nodes) == 0


def test_a_pod_that_starves_beside_a_stream_of_small_ones_has_a_place_reserved() -> None:
    small = [pod(f"small-{number}", 4, at_s=20.0 * number, runs_s=120) for number in range(60)]
    cluster = described([node("a", 16)], [*small, pod("whole", 16, at_s=100, runs_s=10)])

    def wait_s(reserve_after: str) -> float:
        settings = SchedulerConfiguration.model_validate({"reserveAfter": reserve_after})
        return next(one.wait_s for one in replayed_file(cluster, build_engine(settings)).placed if "whole" in one.pod)

    assert wait_s("5m") <= 300 + 120 + 20
    assert wait_s("0") >= 1200
