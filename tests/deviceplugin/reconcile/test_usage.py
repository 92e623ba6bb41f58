"""Who has what and who uses what: the tables that metrics, status and announcement are made of."""

from dataclasses import replace

import pytest

from deviceplugin.driver.cards import CardReading, Process
from deviceplugin.reconcile import usage
from deviceplugin.reconcile.cgroups import Owner
from deviceplugin.reconcile.drift import Drift, DriftKind, Followed, Use
from deviceplugin.reconcile.usage import Account
from tests.support.node.drift_policy import drift_policy
from tests.support.node.node_pods import CARDS, UNIT_MIB, node_pod, on, wire_pod

ANNOUNCING = drift_policy(announce_outside_use=True)
OUTSIDE = Drift(kind=DriftKind.OUTSIDE_USE, message="outside", uuid="GPU-a", mib=700)
BOTH = frozenset({"GPU-a", "GPU-b"})


def test_a_pod_comes_with_its_decision_or_with_why_there_is_none() -> None:
    asks, waits, other = on(node_pod("p", [4]), CARDS[1]), node_pod("q", [4]), node_pod("r", [0])
    decided, undecided, without = usage.seen([asks, waits, other], CARDS, UNIT_MIB)
    assert decided.decision is not None
    assert [share.uuid for share in decided.decision.shares["c0"]] == ["GPU-b"]
    assert (undecided.decision, "has no allocation" in undecided.doubt) == (None, True)
    assert (without.decision, without.doubt) == (None, "")


def test_a_finished_pod_is_not_seen() -> None:
    assert usage.seen([replace(node_pod("p", [4]), finished=True)], CARDS, UNIT_MIB) == []


def test_each_use_names_its_pod_and_what_could_not_be_traced_is_left_out() -> None:
    readings = {
        "GPU-a": CardReading(used_mib=900, processes=(Process(1, 300), Process(2, 200), Process(3, 400))),
        "GPU-b": CardReading(used_mib=0),
    }
    found = usage.uses(readings, {1: Owner("uid-p", ""), 2: None}, {})
    assert found == (Use("GPU-a", 1, 300, "uid-p"), Use("GPU-a", 2, 200, ""))


def test_a_static_pod_is_known_by_the_uid_of_the_api_servers_copy() -> None:
    mirror = wire_pod("static", [0], annotations={"kubernetes.io/config.mirror": "f" * 32})
    uids = usage.uids_by_cgroup([mirror, wire_pod("p", [1])])
    readings = {"GPU-a": CardReading(used_mib=5, processes=(Process(1, 5),))}
    assert usage.uses(readings, {1: Owner("f" * 32, "")}, uids) == (Use("GPU-a", 1, 5, "uid-static"),)


def test_nobody_takes_over_the_use_of_another_pod_by_an_annotation() -> None:
    posing = wire_pod("posing", [0], annotations={"kubernetes.io/config.mirror": "uid-p"})
    assert usage.uids_by_cgroup([posing, wire_pod("p", [1])])["uid-p"] == "uid-p"


def test_the_only_container_that_asks_uses_what_the_pod_uses() -> None:
    seen = usage.seen([on(node_pod("p", [0, 8]), CARDS[0], CARDS[1])], CARDS, UNIT_MIB)
    found = [Use("GPU-a", 1, 300, "uid-p"), Use("GPU-a", 2, 50, "uid-p"), Use("GPU-a", 3, 900, "uid-q")]
    units, used = {"GPU-a": 4, "GPU-b": 4}, {"GPU-a": 350, "GPU-b": 0}
    assert usage.accounts(seen, found, BOTH, {}, unit_mib=UNIT_MIB) == [Account("ns", "p", "c1", units, used)]


def test_unknown_use_is_none_and_not_0() -> None:
    one = usage.seen([on(node_pod("p", [4]), CARDS[0])], CARDS, UNIT_MIB)
    assert [row.used_mib for row in usage.accounts(one, (), {"GPU-b"}, {}, unit_mib=UNIT_MIB)] == [{"GPU-a": None}]
    several = usage.seen([on(node_pod("p", [4, 4]), CARDS[0])], CARDS, UNIT_MIB)
    found = [Use("GPU-a", 1, 300, "uid-p")]
    assert [row.used_mib for row in usage.accounts(several, found, BOTH, {}, unit_mib=UNIT_MIB)] == [
        {"GPU-a": None},
        {"GPU-a": None},
    ]


def test_each_of_several_containers_uses_what_runs_in_it() -> None:
    statuses = [{"name": f"c{number}", "containerID": f"containerd://{number * 64}"} for number in ("0", "1")]
    by_id = usage.containers_by_id([wire_pod("p", [4, 4], containerStatuses=statuses)])
    several = usage.seen([on(node_pod("p", [4, 4]), CARDS[0])], CARDS, UNIT_MIB)
    found = [Use("GPU-a", 1, 300, "uid-p", "0" * 64), Use("GPU-a", 2, 50, "uid-p", "1" * 64)]
    listed = usage.accounts(several, found, BOTH, by_id, unit_mib=UNIT_MIB)
    assert [row.used_mib for row in listed] == [{"GPU-a": 300}, {"GPU-a": 50}]
    # A process of a container that has ended meanwhile could be of either.
    found.append(Use("GPU-a", 3, 7, "uid-p", "f" * 64))
    assert {row.used_mib["GPU-a"] for row in usage.accounts(several, found, BOTH, by_id, unit_mib=UNIT_MIB)} == {None}


def test_metrics_get_a_row_for_each_card_and_the_status_one_for_each_container() -> None:
    listed = [Account("ns", "p", "c", {"GPU-a": 2, "GPU-b": 2}, {"GPU-a": 5, "GPU-b": 6})]
    shown = usage.shown_containers(listed, CARDS)
    assert [(one.card.uuid, one.card.index, one.requested_units, one.used_mib) for one in shown] == [
        ("GPU-a", 0, 2, 5),
        ("GPU-b", 1, 2, 6),
    ]
    (status,) = usage.container_statuses(listed)
    assert (status.units, status.used_mib) == ({"GPU-a": 2, "GPU-b": 2}, 11)
    (unknown,) = usage.container_statuses([replace(listed[0], used_mib={"GPU-a": 5, "GPU-b": None})])
    assert unknown.used_mib is None


def test_every_kind_is_counted_from_0_and_what_is_not_monitored_is_not() -> None:
    uses_more = Drift(kind=DriftKind.USES_MORE, message="more", pod=node_pod("p", [1]), uuid="GPU-a", mib=9)
    watching = usage.counts([OUTSIDE, uses_more], ANNOUNCING)
    assert set(watching) == {kind.value for kind in DriftKind}
    assert {kind: count for kind, count in watching.items() if count} == {"outside-use": 1, "uses-more": 1}
    off = drift_policy("off", announce_outside_use=True)
    assert usage.counts([OUTSIDE, uses_more], off)["uses-more"] == 0
    assert [one.kind for one in usage.drift_statuses([OUTSIDE, uses_more], off)] == ["outside-use"]


@pytest.mark.parametrize(
    ("before", "followed", "read", "after"),
    [
        pytest.param({}, Followed((OUTSIDE,), (OUTSIDE,)), BOTH, {"GPU-a": 700}, id="it lasts"),
        pytest.param({}, Followed((OUTSIDE,)), BOTH, {}, id="seen for the first time"),
        pytest.param({"GPU-a": 700}, Followed(), BOTH, {}, id="gone"),
        pytest.param({"GPU-a": 700}, Followed(), {"GPU-b"}, {"GPU-a": 700}, id="the card does not answer"),
        pytest.param({"GPU-a": 700}, Followed((OUTSIDE,)), BOTH, {"GPU-a": 700}, id="the card answers again"),
    ],
)
def test_outside_use_stays_unannounced_until_it_is_known_to_be_gone(
    before: dict[str, int], followed: Followed, read: frozenset[str], after: dict[str, int]
) -> None:
    assert usage.outside_mib(before, followed, read, ANNOUNCING) == after


def test_use_by_outsiders_and_by_pods_that_asked_for_none_adds_up() -> None:
    unasked = Drift(kind=DriftKind.USES_UNASKED, message="unasked", pod=node_pod("p", [0]), uuid="GPU-a", mib=50)
    followed = Followed((OUTSIDE, unasked), (OUTSIDE, unasked))
    assert usage.outside_mib({}, followed, BOTH, ANNOUNCING) == {"GPU-a": 750}
    silent = drift_policy()
    assert usage.outside_mib({}, followed, BOTH, silent) == {}
