"""Nodes that the legacy command hides, and the outputs that it does not have."""

import pytest

from config.protocol import names
from config.protocol.inventory import Card, Health, Inventory, encode
from scheduler.tools.inspect.lists import WIDTH, compact, used_only, wide
from scheduler.tools.inspect.tables import details, summary
from tests.scheduler.tools.inspect.listed import CLUSTERS, Json, cards, golden, node, pod, viewed
from tests.support.repository import ROOT

_, NODES, PODS = CLUSTERS["summary"]
AWAY = node("gpu-node-c", "0", "2", "192.168.0.73", inventory=cards(15, 15))
HELD = [pod("old-0", "3", on="gpu-node-c", idx="0"), pod("old-1", "4", on="gpu-node-c", idx="1")]
BELOW = "\nNot in this sum: nodes with pods but without allocatable GPU memory.\n"


def failed(index: int, units: int, reason: str, *, health: Health = Health.UNHEALTHY, uuid: str = "") -> Card:
    return Card(
        index=index, uuid=uuid or f"GPU-{index}", model="M", memory_mib=0, units=units, health=health, reason=reason
    )


def healthy(index: int, units: int) -> Card:
    return failed(index, units, "", health=Health.HEALTHY)


# Nodes with pods and without allocatable memory


def test_its_pods_are_in_the_details() -> None:
    before, _, below = details(viewed([*NODES, AWAY], [*PODS, *HELD])).partition(BELOW)
    assert before == golden("details")
    assert "WHY:        nothing is allocatable: its device plugin is not running" in below
    assert [line.split() for line in below.splitlines() if line.startswith("old-")] == [
        ["old-0", "default", "3", "0"],
        ["old-1", "default", "0", "4"],
    ]


def test_pods_on_a_node_that_is_not_there_are_not_lost() -> None:
    (shown,) = viewed([], [pod("p", "3", on="gone", idx="0")])
    assert (shown.name, shown.allocated, shown.pending) == ("gone", 3, 3)
    assert "the node does not exist or cannot be read" in summary([shown])


def test_a_node_without_pods_leaves_the_legacy_text_as_it_is() -> None:
    assert summary(viewed([*NODES, AWAY], PODS)) == golden("summary")
    assert details(viewed([*NODES, AWAY], PODS)) == golden("details")


def announcing(*cards: Card) -> Json:
    return node("n", "0", "2", inventory=encode(Inventory(1024, "", cards)))


SPLIT = failed(0, 0, "mig", health=Health.HEALTHY)


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        pytest.param(node("n", "30", "2", inventory=cards(15, 15)), "", id="cards in use"),
        pytest.param(node("n", "30", "2"), "", id="totals only"),
        pytest.param(
            node("n", "30", "2", inventory="{"), "its annotation gpushare/inventory cannot be read", id="unreadable"
        ),
        pytest.param(
            announcing(healthy(0, 15)), "nothing is allocatable: its device plugin is not running", id="plugin away"
        ),
        pytest.param(
            announcing(failed(0, 15, "xid-79"), failed(1, 15, "", health=Health.SUSPECT)),
            "no card takes new pods: unhealthy (xid-79), suspect",
            id="all out of use",
        ),
        pytest.param(announcing(SPLIT), "no card takes new pods: no units to share (mig)", id="split"),
        pytest.param(
            announcing(SPLIT, failed(1, 15, "xid-79")),
            "no card takes new pods: no units to share (mig), unhealthy (xid-79)",
            id="split, the other is unhealthy",
        ),
        pytest.param(announcing(healthy(0, 0)), "no card takes new pods: no units to share", id="others use it all"),
        pytest.param(
            node("n", "15", "1", inventory=cards(15)) | {"spec": {"unschedulable": True}},
            "the node is cordoned",
            id="cordoned",
        ),
    ],
)
def test_why_no_card_of_a_node_takes_new_pods(seen: Json, problem: str) -> None:
    assert viewed([seen], [])[0].problem == problem


def test_a_node_without_any_announcement_has_no_plugin() -> None:
    plain: Json = {"metadata": {"name": "gpu-node-a"}, "status": {}}
    (shown,) = viewed([plain], [pod("p", "3", idx="0")])
    assert (shown.allocated, shown.problem) == (3, "it announces no GPU memory: there is no device plugin")


def test_cordoned_cards_are_known_by_uuid_and_by_index() -> None:
    seen = node("n", "45", "3", inventory=cards(15, 15, 15))
    seen["metadata"]["annotations"][names.CORDON] = "GPU-2, 0"
    (shown,) = viewed([seen], [])
    assert [card.out for card in shown.cards] == ["cordoned", "", "cordoned"]
    assert shown.problem == ""
    seen["metadata"]["annotations"][names.CORDON] = "0,1,2"
    assert viewed([seen], [])[0].problem == "no card takes new pods: cordoned"


# Cards that are out of use


ONE_FAILED = encode(Inventory(1024, "", (failed(0, 16, "xid-79", uuid="GPU-a"), healthy(1, 16))))
HALF_OUT = node("gpu-node-a", "16", "2", "192.168.0.71", inventory=ONE_FAILED)
ON_BOTH = [pod("binpack-0", "13", idx="0"), pod("binpack-1", "16", idx="1")]
OUT = "\nCards that take no new pods:\n"


def below(text: str) -> list[str]:
    """The lines after the legacy text, from the head of the cards on."""
    return text.partition(OUT)[2].splitlines()


# What the legacy command prints of such a node: allocatable is without the failed card, its pods count.
@pytest.mark.parametrize("named", [False, True])
def test_the_sum_of_a_node_with_a_failed_card_is_the_legacy_one_and_is_explained_below(*, named: bool) -> None:
    shown = viewed([HALF_OUT], ON_BOTH, with_gpu_memory_only=not named)
    where = "on gpu-node-a" if named else "in the cluster"
    for text in (summary(shown, named=named), details(shown, named=named)):
        assert "29/16 (181%)  \n" in text.partition(OUT)[0]
        head, row, *note = below(text)
        assert head.split() == ["NAME", "CARD", "Allocated/Total", "WHY", "UUID"]
        assert row.split() == ["gpu-node-a", "0", "13/16", "unhealthy", "(xid-79)", "GPU-a"]
        assert note == [
            "The totals above leave out the memory of unhealthy and suspect cards, but count the pods on them.",
            f"With that memory: 29/32 (90%) {where}.",
        ]


def test_a_node_whose_only_card_has_failed_shows_it_also_without_pods() -> None:
    shown = viewed([node("gpu-node-d", "0", "1", inventory=encode(Inventory(1024, "", (failed(0, 15, "lost"),))))], [])
    for text, legacy in ((summary(shown, named=True), summary(())), (details(shown, named=True), details(()))):
        assert text.partition(OUT)[0].splitlines()[-1] == legacy.splitlines()[-1]
        assert [line.split() for line in below(text)[1:]] == [
            ["gpu-node-d", "0", "0/15", "unhealthy", "(lost)", "GPU-0"]
        ]


def test_cordoned_cards_and_cards_without_units_are_listed_and_change_no_sum() -> None:
    announced = encode(Inventory(1024, "", (healthy(0, 15), healthy(1, 15), healthy(2, 0))))
    seen = node("n", "30", "3", inventory=announced)
    seen["metadata"]["annotations"][names.CORDON] = "1"
    rows = [" ".join(line.split()) for line in below(details(viewed([seen], [])))[1:]]
    assert rows == ["n 1 0/15 cordoned GPU-1", "n 2 0/0 no units to share GPU-2"]


# -o wide, --used


def test_wide_has_a_line_per_card_with_its_pods() -> None:
    pods = [*PODS, pod("lost", "2", on="gpu-node-c"), HELD[0]]
    head, first, _, second, third, other, lost, problem = wide(viewed([*NODES, AWAY], pods)).splitlines()
    assert head.split()[:5] == ["NODE", "IPADDRESS", "CARD", "MODEL", "HEALTH"]
    assert head.split()[5:] == ["ISOLATION", "ALLOCATED", "TOTAL", "FREE", "UUID", "PODS"]
    assert first.split() == [
        "gpu-node-a",
        "192.168.0.71",
        "0",
        "-",
        "-",
        "advisory",
        "3",
        "15",
        "12",
        "-",
        "default/binpack-0",
        "3",
    ]
    assert second.split()[:3] == ["gpu-node-b", "unknown", "0"]
    assert third.split()[2:] == ["0", "M", "healthy", "advisory", "3", "15", "12", "GPU-0", "default/old-0", "3"]
    assert other.split()[2:10] == ["1", "M", "healthy", "advisory", "0", "15", "15", "GPU-1"]
    assert problem == "gpu-node-c: nothing is allocatable: its device plugin is not running"
    assert lost.split()[2:] == ["?", "-", "-", "-", "2", "-", "-", "-", "default/lost", "2"]


def test_used_leaves_out_what_no_pod_is_on() -> None:
    shown = used_only(viewed([*NODES, AWAY], [*PODS, HELD[1]]))
    assert [found.name for found in shown] == ["gpu-node-a", "gpu-node-c"]
    rows = [line.split()[:3:2] for line in wide(shown, used=True).splitlines()[1:] if line.startswith("gpu-node-")]
    assert rows[:3] == [["gpu-node-a", "0"], ["gpu-node-a", "1"], ["gpu-node-c", "1"]]


# -o compact


def a_large_cluster(units: int) -> tuple[list[Json], list[Json]]:
    seen = [
        node(f"gpu-node-pool-a100-80gb-{number:03}.example", str(units * 8), "8", inventory=cards(*[units] * 8))
        for number in range(50)
    ]
    held = [
        pod(f"p-{number}-{card}", str(units - card), on=one["metadata"]["name"], idx=str(card))
        for number, one in enumerate(seen)
        for card in range(8)
    ]
    return seen, held


@pytest.mark.parametrize("units", [15, 80, 81559])
def test_fifty_nodes_of_eight_cards_are_a_line_each_of_at_most_100_columns(units: int) -> None:
    text = compact(viewed(*a_large_cluster(units)))
    lines = text.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len([line for line in lines if "example" in line]) == 50
    assert "…" not in "".join(line[33:] for line in lines), "a number is cut off"


def test_a_card_shows_what_is_free_and_its_health() -> None:
    announced = encode(
        Inventory(1024, "", (*(failed(i, 15, "", health=h) for i, h in enumerate(Health)), failed(4, 15, "xid-79")))
    )
    seen = node("n", "30", "5", inventory=announced)
    seen["metadata"]["annotations"][names.CORDON] = "GPU-3"
    head, row, *_ = compact(
        viewed([seen], [pod("p", "3", on="n", idx="0"), pod("q", "20", on="n", idx="1")])
    ).splitlines()
    assert head.split()[:4] == ["NODE", "FREE", "TOTAL", "PODS"]
    assert row.split() == ["n", "12", "75", "2", "12", "-5?", "15!", "15c", "15!"]


def test_large_units_are_shown_in_percent() -> None:
    head, row, *_ = compact(
        viewed(
            [node("n", "163118", "2", inventory=cards(81559, 81559, unit_mib=1))], [pod("p", "40000", on="n", idx="1")]
        )
    ).splitlines()
    assert head.endswith("FREE OF EACH CARD IN %")
    assert row.split()[4:] == ["100", "50"]


def test_nodes_with_the_same_problem_are_named_together_and_none_vanishes() -> None:
    others = [node(f"away-{number}", "0", "1", inventory=cards(15)) for number in range(5)]
    text = compact(viewed(others, []))
    assert "away-0, away-1, away-2 and 2 more: nothing is allocatable: its device plugin is not running\n" in text
    assert all(f"away-{number} " in text for number in range(5))


# The document


def shown_in_the_document(beginning: str) -> str:
    """The block of docs/inspect.md whose first line begins so."""
    _, _, rest = (ROOT / "docs/inspect.md").read_text(encoding="utf-8").partition(f"```text\n{beginning}")
    return beginning + rest.partition("```")[0]


def test_the_document_shows_what_follows_below() -> None:
    text = summary(viewed([*NODES, AWAY], [*PODS, *HELD]))
    assert shown_in_the_document("Not in this sum") == text.partition(golden("summary") + "\n")[2]


def test_the_document_shows_the_cards_that_are_out_of_use() -> None:
    text = details(viewed([HALF_OUT], ON_BOTH), named=True)
    assert (
        shown_in_the_document("Cards that take no new pods") == text.partition(OUT)[1].lstrip() + text.partition(OUT)[2]
    )


def test_the_document_shows_the_compact_view() -> None:
    out = encode(Inventory(1024, "", (*(failed(index, 79, "xid-79") for index in (0, 1)),)))
    seen = [
        node("gpu-node-a", "632", "8", inventory=cards(*[79] * 8, unhealthy=frozenset({5}))),
        node("gpu-node-b", "0", "2", inventory=out),
        node("gpu-node-c", "0", "2", inventory=cards(15, 15)),
    ]
    held = [pod(f"web-{card}", str(9 * card), idx=str(card)) for card in range(1, 8)]
    text = compact(viewed(seen, [*held, pod("old", "3", on="gpu-node-c", idx="1")]))
    assert shown_in_the_document("NODE        FREE") == text
