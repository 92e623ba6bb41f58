"""Pods, claims and cards of cluster files and arrivals, and what becomes of them."""

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from config.clusterfile.arrivals import Arrival, PodAsk
from config.clusterfile.reading import read
from config.protocol import names
from config.settings.mistakes import ConfigurationError
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import PodReader
from scheduler.state.ledger import of_tables
from scheduler.tools.simulate.course import Course
from scheduler.tools.simulate.player import pods_coming, shuffled
from scheduler.tools.simulate.report import Report
from scheduler.tools.simulate.timeline import PodComes
from tests.scheduler.tools.simulate.described import described, node, pod, replayed, replayed_file
from tests.support.repository import ROOT
from tests.support.volumes import HOSTNAME, ZONE, bound, claim, storage_class, volume, with_claims

DEMO: Final = ROOT / "scheduler/tools/demo/demo.yaml"


def decided(report: Report) -> list[str]:
    """`time pod node` in the order of the decisions."""
    return [f"{placed.bound_s:g} {placed.pod.removeprefix('default/')} {placed.node}" for placed in report.placed]


def used(report: Report) -> list[tuple[int, int, float]]:
    """Units used at the end, at most and on average, of each card."""
    return [(card.used, card.peak, card.average) for card in report.cards]


def test_pods_are_placed_when_they_come_and_when_memory_becomes_free() -> None:
    report = replayed([node("a", 16)], [pod("p", 10, runs_s=30), pod("q", 10, at_s=1, runs_s=5), pod("r", 4, at_s=2)])
    assert decided(report) == ["0 p a", "2 r a", "30 q a"]
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


def test_what_no_usual_pod_can_use_is_measured_when_the_last_pod_has_come() -> None:
    pods = [pod("p", 10, runs_s=30), pod("q", 10, at_s=1, runs_s=30), pod("r", 8, at_s=2, runs_s=90)]
    report = replayed([node("a", 16, 16)], pods)
    # 6 and 6 are left of the cards then; later all of both.
    assert (report.free, report.fragmented) == (12, 12.0)
    assert [use.used for use in report.cards] == [0, 0]


def test_without_a_cluster_nothing_is_free() -> None:
    report = replayed([], [])
    assert (report.free, report.fragmented) == (0, 0.0)


def test_a_pod_that_runs_forever_is_still_there_at_the_end() -> None:
    report = replayed([node("a", 16)], [pod("p", 10), pod("q", 6, runs_s=10)])
    assert used(report) == [(10, 16, 16.0)]
    assert report.nodes[0].pods == 1


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
    assert decided(report) == ["0 p a", "0 q a"]


def test_the_same_files_always_give_the_same_report() -> None:
    reports = [replayed_file(read(DEMO)) for _ in range(2)]
    assert msgspec.json.encode(reports[0]) == msgspec.json.encode(reports[1])


def test_what_is_reported_as_used_is_what_the_scheduler_has_booked() -> None:
    engine, reader = build_engine(SchedulerConfiguration(), preempts=False)
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
    report = replayed_file(cluster)
    assert (len(report.placed), report.waiting) == (400, ())
    assert [card for card in report.cards if card.peak > card.units] == []
    assert sum(whole.used for whole in report.nodes) == 0


def test_a_pod_that_starves_beside_a_stream_of_small_ones_has_a_place_reserved() -> None:
    small = [pod(f"small-{number}", 4, at_s=20.0 * number, runs_s=120) for number in range(60)]
    cluster = described([node("a", 16)], [*small, pod("whole", 16, at_s=100, runs_s=10)])

    def wait_s(reserve_after: str) -> float:
        settings = SchedulerConfiguration.model_validate({"reserveAfter": reserve_after})
        return next(
            one.wait_s
            for one in replayed_file(cluster, build_engine(settings, preempts=False)).placed
            if "whole" in one.pod
        )

    assert wait_s("5m") <= 300 + 120 + 20
    assert wait_s("0") >= 1200


def coming(*arrivals: Arrival) -> list[PodComes]:
    return pods_coming(arrivals, ResourceNames(), names.SCHEDULER_NAME)


def arriving(units: tuple[int, ...], *arrivals: Arrival, rejects: bool = False) -> tuple[Report, Course]:
    """What becomes of pods that come to one node with cards of so many units."""
    course = Course()
    cluster = described([node("a", *units)])
    return replayed_file(cluster, arrivals=coming(*arrivals), rejects=rejects, course=course), course


def asking(name: str, at_s: float, units: int, cards: int = 1, *, runs_s: float | None = None) -> Arrival:
    return Arrival(name, at_s, runs_s, PodAsk(100, 128, units, cards if units else 0))


def test_arrivals_are_placed_as_the_same_pods_of_a_cluster_file_are() -> None:
    by_file = replayed([node("a", 16, 16)], [pod("p", 10, runs_s=30), pod("q", 10, at_s=1), pod("r", 10, at_s=2)])
    by_arrivals, _ = arriving((16, 16), asking("p", 0, 10, runs_s=30), asking("q", 1, 10), asking("r", 2, 10))
    assert by_arrivals == by_file


def test_an_arrival_asks_for_cards_models_cpu_and_memory() -> None:
    asked = Arrival("p", 0.0, None, PodAsk(1500, 64, 5, 2, ("A", "B"), 7))
    other = Arrival("q", 0.0, None, PodAsk(0, 0, 0, 0))
    first, second = (step.pod for step in coming(asked, other))
    read = PodReader(ResourceNames()).read(first)
    assert read.template.gpu_request is not None
    assert (read.template.gpu_request.cards, read.template.gpu_request.units_per_card, read.priority) == (2, 5, 7)
    assert read.template.gpu_request.models.wanted == {"A", "B"}
    assert read.template.requests == {"cpu": 1500, "memory": 64 << 20}
    assert PodReader(ResourceNames()).read(second).template.gpu_request is None


def test_a_rejected_pod_is_gone_and_does_not_come_back_when_there_is_room() -> None:
    asked = (asking("p", 0, 10, runs_s=5), asking("q", 1, 10), asking("r", 6, 10))
    report, _ = arriving((16,), *asked, rejects=True)
    assert decided(report) == ["0 p a", "6 r a"]
    assert [(each.pod, each.since_s, each.attempts) for each in report.rejected] == [("default/q", 1.0, 1)]
    assert report.rejected[0].reason.startswith("0/1 nodes are available: 1 Insufficient GPU memory")
    assert (report.waiting, report.decisions) == ((), 3)
    waits, _ = arriving((16,), *asked)
    assert decided(waits) == ["0 p a", "5 q a"]
    assert (len(waits.rejected), len(waits.waiting)) == (0, 1)


@pytest.mark.parametrize("rejects", [True, False])
def test_the_course_counts_each_pod_once_at_its_first_attempt(*, rejects: bool) -> None:
    asked = (asking("p", 0, 10, runs_s=5), asking("q", 1, 10), asking("cpu", 2, 0), asking("r", 3, 6))
    _, course = arriving((16, 4), *asked, rejects=rejects)
    assert course.units == 20
    assert course.came == [(0.0, 10, 10, True), (1.0, 20, 10, False), (2.0, 20, 10, True), (3.0, 26, 16, True)]
    # Ten units in each of the three seconds before the last pod came; what comes after does not count.
    assert course.average == 10.0


def test_a_request_that_is_wrong_asks_nothing_in_the_course() -> None:
    wrong = pod("wrong", 1)
    wrong["pod"]["spec"]["containers"][0]["resources"]["limits"] = {names.GPU_MEM: "8Gi"}
    course, file = Course(), described([node("a", 16)], [pod("p", 8), wrong])
    replayed_file(file, course=course)
    assert [came.asked for came in course.came] == [8, 8]


def test_a_pod_of_arrivals_that_a_file_describes_too_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="arrivals: expected each pod once, found in a cluster file too: p"):
        replayed_file(described([node("a", 16)], [pod("p", 1)]), arrivals=coming(asking("p", 0, 1)))


def test_a_shuffled_order_has_the_same_pods_at_the_same_times() -> None:
    arrivals = [asking(f"p{number}", number * number, number) for number in range(20)]
    once, again, other = shuffled(arrivals, 1), shuffled(arrivals, 1), shuffled(arrivals, 2)
    assert once == again
    assert [each.name for each in once] != [each.name for each in other]
    assert [each.at_s for each in once] == [each.at_s for each in arrivals]
    assert sorted((each.name, each.ask) for each in once) == sorted((each.name, each.ask) for each in arrivals)


NODES = [node("a", 16, labels={ZONE: "z1"}), node("b", 16, labels={ZONE: "z2"})]
LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")


def report_on(folder: Path, storage: list[dict[str, Any]], *pods: dict[str, Any]) -> Report:
    documents = [{"nodes": NODES, "pods": list(pods)}, *map(with_kind, storage)]
    return report_of(folder, documents)


def report_of(folder: Path, documents: list[dict[str, Any]]) -> Report:
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return replayed_file(read(path))


def with_kind(manifest: dict[str, Any]) -> dict[str, Any]:
    if "provisioner" in manifest:
        return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **manifest}
    kind = "PersistentVolume" if "capacity" in manifest["spec"] else "PersistentVolumeClaim"
    return {"apiVersion": "v1", "kind": kind, **manifest}


def placed(report: Report) -> dict[str, str]:
    return {one.pod.removeprefix("default/"): one.node for one in report.placed}


def waiting(report: Report) -> dict[str, str]:
    return {one.pod.removeprefix("default/"): one.reason for one in report.waiting}


def test_a_pod_goes_where_the_volume_of_its_claim_is(tmp_path: Path) -> None:
    there = volume("pv", on=("z2",), key=ZONE, claimRef={"namespace": "default", "name": "data"})
    report = report_on(tmp_path, [there, bound(claim("data"), "pv")], pod("p", 4, **with_claims("data")))
    assert placed(report) == {"p": "b"}


def test_two_pods_never_get_one_volume(tmp_path: Path) -> None:
    storage = [LOCAL, volume("pv", class_name="local", on=("b",))]
    storage += [claim(name, class_name="local") for name in ("one", "two")]
    pods = [pod(f"p-{name}", 4, **with_claims(name)) for name in ("one", "two")]
    report = report_on(tmp_path, storage, *pods)
    assert placed(report) == {"p-one": "b"}
    assert waiting(report) == {
        "p-two": "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
    }


def test_pods_that_share_a_claim_go_where_its_volume_was_made(tmp_path: Path) -> None:
    topologies = [{"matchLabelExpressions": [{"key": HOSTNAME, "values": ["a", "b"]}]}]
    storage = [storage_class("fast", allowedTopologies=topologies), claim("data", class_name="fast")]
    report = report_on(tmp_path, storage, *(pod(f"p{n}", 6, at_s=n, **with_claims("data")) for n in range(4)))
    assert list(placed(report)) == ["p0", "p1"]
    assert len(set(placed(report).values())) == 1
    assert "1 node(s) didn't match PersistentVolume's node affinity" in waiting(report)["p2"]


def test_a_stateful_set_has_its_claims(tmp_path: Path) -> None:
    template = {**claim("data", class_name="local"), "metadata": {"name": "data"}}
    spec = pod("p", 4)["pod"]["spec"]
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "template": {"spec": spec}, "volumeClaimTemplates": [template]},
    }
    volumes = [volume(f"pv-{name}", class_name="local", on=(name,)) for name in ("a", "b")]
    documents = [{"nodes": NODES}, *map(with_kind, [LOCAL, *volumes]), stateful_set]
    report = report_of(tmp_path, documents)
    assert sorted(placed(report).values()) == ["a", "b"]
    assert "didn't find available persistent volumes" in waiting(report)["web-2"]
    assert report.ignored == ()


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        pytest.param([], 'persistentvolumeclaim "data" not found', id="no claim"),
        pytest.param([claim("data")], "pod has unbound immediate PersistentVolumeClaims", id="immediate"),
    ],
)
def test_a_pod_whose_claim_stays_without_a_volume_waits(
    tmp_path: Path, storage: list[dict[str, Any]], reason: str
) -> None:
    report = report_on(tmp_path, storage, pod("p", 4, **with_claims("data")))
    assert waiting(report) == {"p": f"0/2 nodes are available: {reason}."}


def test_mistakes_in_storage_are_all_reported(tmp_path: Path) -> None:
    wrong = with_kind(volume("pv", claimRef="mine"))
    documents = [{"nodes": NODES}, wrong, with_kind(claim("data")), with_kind(claim("data"))]
    with pytest.raises(ConfigurationError) as caught:
        report_of(tmp_path, documents)
    assert "PersistentVolumeClaim default/data" in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        report_of(tmp_path, documents[:3])
    assert "PersistentVolume pv" in str(caught.value)
