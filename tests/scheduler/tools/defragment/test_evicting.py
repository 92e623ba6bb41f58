"""`defragment apply` on a cluster in memory: evicts one pod at a time, and stops where that brings nothing."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from config.protocol import names
from scheduler.kube.port import ApiError, ApiFailed, ApiSilent, ApiThrottled, PodKey
from scheduler.kube.rest.writing import eviction_body
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.manifests import Unanswerable, Unreadable
from scheduler.tools.defragment.evicting import Planner, Rebalancing
from tests.scheduler.tools.defragment.evicting_site import (
    CONFIGURATION,
    Operated,
    cordons,
    half_used,
    rebalance,
    runs,
    waiting,
)
from tests.support.builders import manifest, wire_node, wire_pod
from tests.support.explaining import world
from tests.support.placing import on_card

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


def test_pods_are_evicted_until_the_pod_fits_and_cards_are_given_back() -> None:
    cluster = Operated(half_used())
    done, said, plan = rebalance(cluster)
    assert (done, len(plan.moves), len(cluster.evicted)) == (True, 2, 2)
    assert cordons(cluster) == ["", "", ""]
    assert said[-2] == "Done. Pod default/asks fits without moves: on node a, card 0-1 (8 each)."
    assert "if it is killed, run: kubectl gpushare uncordon a --card GPU-a-0 --card GPU-a-1" in said[0]


def test_the_card_takes_nobody_from_the_eviction_until_the_pod_fits() -> None:
    of = world(a=[8], b=[16])
    runs(of, "p", 4, "a", 0)
    runs(of, "q", 4, "b", 0)
    cluster = Operated(of)
    done, _, plan = rebalance(cluster, wire_pod("asks", 8, nodeSelector={"kubernetes.io/hostname": "a"}))
    assert (done, [one.record.pod.key.name for one in plan.moves]) == (True, ["p"])
    assert cluster.cordons == [("a", "GPU-a-0"), ("a", None)]


def test_it_stops_when_somebody_else_takes_the_room() -> None:
    cluster = Operated(half_used())

    def takes_it(_: str) -> None:
        cluster.before_eviction = lambda _: None
        runs(cluster.world, "stranger", 8, "a", 0, priority=9)

    cluster.before_eviction = takes_it
    done, said, _ = rebalance(cluster)
    assert (done, len(cluster.evicted)) == (False, 1)
    assert said[-1].startswith("Stopped after 1 of 2 moves: Pod default/asks does not fit")
    assert cordons(cluster) == ["", "", ""]


def test_a_budget_that_refuses_ends_it() -> None:
    cluster = Operated(half_used())

    def refuse(_: str) -> None:
        raise ApiThrottled(REFUSED)

    cluster.before_eviction = refuse
    with pytest.raises(Unanswerable, match="was not evicted: Cannot evict pod as it would violate"):
        rebalance(cluster)
    assert (cluster.evicted, cordons(cluster)) == ([], ["", "", ""])


@pytest.mark.parametrize("answer", [ApiSilent("no answer"), ApiFailed("no answer", 504)])
def test_what_is_not_known_is_said(answer: ApiError) -> None:
    cluster = Operated(half_used())

    def silent(_: str) -> None:
        raise answer

    cluster.before_eviction = silent
    with pytest.raises(Unreadable, match="whether pod default/p0 was evicted: no answer"):
        rebalance(cluster)
    assert cordons(cluster) == ["", "", ""]


def test_a_successor_that_is_not_bound_in_time_ends_it() -> None:
    cluster = Operated(half_used(), places=False)
    with pytest.raises(Unanswerable, match=r"no successor of it was bound within 0\.2 s"):
        rebalance(cluster, timeout_s=0.2)
    assert (len(cluster.evicted), cordons(cluster)) == (1, ["", "", ""])


class Overtaken(Operated):
    """Somebody else evicts the first pod while its card is being cordoned."""

    async def annotate_node(self, name: str, annotations: Mapping[str, str | None], version: str) -> None:
        await super().annotate_node(name, annotations, version)
        if not self.evicted:
            (first,) = [pod for pod in self.world.pods.collection if pod.metadata.name == "p0"]
            await self.evict_pod(PodKey("default", "p0", first.metadata.uid))


def test_a_pod_that_somebody_else_evicts_meanwhile_has_a_successor_all_the_same() -> None:
    cluster = Overtaken(half_used())
    done, said, _ = rebalance(cluster, timeout_s=2.0)
    assert (done, len(cluster.evicted), cordons(cluster)) == (True, 2, ["", "", ""])
    assert "pod default/p0 no longer exists" in said


class Waiting(Operated):
    """A pod of the same owner waits, and takes the room that the evicted one leaves; the successor gets none.

    from_the_start: whether that pod is there when the moves are planned; otherwise it comes before the eviction.
    """

    def __init__(self, of: World, *, from_the_start: bool) -> None:
        super().__init__(of, places=False)
        self._there = from_the_start
        if from_the_start:
            self._make()

    async def annotate_node(self, name: str, annotations: Mapping[str, str | None], version: str) -> None:
        await super().annotate_node(name, annotations, version)
        if not self._there:
            self._there = True
            self._make()

    async def evict_pod(self, pod: PodKey) -> None:
        await super().evict_pod(pod)
        if len(self.evicted) == 1:
            self.world.pods.bind("default", "waits", "b", on_card(0, 4))

    def _make(self) -> None:
        self.world.pods.create(waiting("waits", 4))


@pytest.mark.parametrize("from_the_start", [True, False], ids=["before the plan", "after the plan"])
def test_a_pod_that_waited_before_the_eviction_is_not_the_successor(*, from_the_start: bool) -> None:
    cluster = Waiting(half_used(), from_the_start=from_the_start)
    words = r"no successor of it was bound within 0\.5 s; 1 pod of its owner waits: p0-again"
    with pytest.raises(Unanswerable, match=words):
        rebalance(cluster, timeout_s=0.5)
    assert (cluster.evicted, cordons(cluster)) == (["p0"], ["", "", ""])


@contextmanager
def handled(which: signal.Signals, by: Any) -> Iterator[None]:  # noqa: ANN401 - as signal.signal
    """Whatever whoever runs the tests has made of the signal: by nohup, SIGHUP is ignored."""
    before = signal.signal(which, by)
    try:
        yield
    finally:
        signal.signal(which, before)


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_it_gets_the_cards_back(which: signal.Signals) -> None:
    cluster = Operated(half_used(), places=False)
    cluster.before_eviction = lambda _: os.kill(os.getpid(), which)
    with handled(which, lambda *_: None), pytest.raises(SystemExit) as ended:
        rebalance(cluster)
    assert (ended.value.code, len(cluster.cordons), cordons(cluster)) == (128 + which, 2, ["", "", ""])


def test_what_is_ignored_stays_ignored() -> None:
    cluster = Operated(half_used())
    cluster.before_eviction = lambda _: os.kill(os.getpid(), signal.SIGHUP)
    with handled(signal.SIGHUP, signal.SIG_IGN):
        assert rebalance(cluster)[0]


@pytest.mark.parametrize("uid", ["uid-default-asks", ""], ids=["as it is read", "as it was written"])
def test_a_pod_that_is_bound_meanwhile_ends_it(uid: str) -> None:
    of = half_used()
    of.nodes.add(wire_node("d", [8, 8]))
    runs(of, "in-the-way", 8, "d", 0, priority=9)
    of.pods.create(manifest("asks", 16, labels={names.GPU_COUNT: "2"}))
    cluster = Operated(of)

    def is_bound(_: str) -> None:
        cluster.before_eviction = lambda _: None
        of.pods.remove("default", "in-the-way")
        both = json.dumps({"0": {"0": 8, "1": 8}})
        of.pods.bind("default", "asks", "d", {names.ALLOCATION: both, names.UNIT_MIB: "1024"})

    cluster.before_eviction = is_bound
    asks = of.pods.collection.existing("default", "asks")
    done, said, plan = rebalance(cluster, replace(asks, metadata=replace(asks.metadata, uid=uid)))
    assert (done, len(plan.moves), len(cluster.evicted)) == (True, 2, 1)
    assert said[-2] == "Done. Pod default/asks fits without moves: on node d, card 0-1 (8 each)."
    assert cordons(cluster) == ["", "", "", ""]


@pytest.mark.parametrize("uid", ["uid-default-p0", "another"], ids=["as it is read", "as it was written"])
def test_for_a_pod_that_is_bound_nobody_is_moved(uid: str) -> None:
    cluster = Operated(half_used())
    done, _, plan = rebalance(cluster, wire_pod("p0", 8, uid=uid))
    assert (done, plan.moves, cluster.evicted) == (True, (), [])
    assert plan.answer.words[-1] == "It is already bound there: no pod has to move."


def test_one_that_is_deleted_needs_another_place() -> None:
    of = half_used()
    of.pods.delete("default", "p0")
    _, _, plan = rebalance(Operated(of, places=False), of.pods.collection.existing("default", "p0"))
    assert (plan.moves, plan.answer.place and plan.answer.place.node) == ((), "c")


def test_the_pod_that_asks_is_none_of_those_that_wait_already() -> None:
    of = half_used()
    of.pods.create(manifest("asks", 16, labels={names.GPU_COUNT: "2"}))
    of.pods.create(manifest("asks", 16, namespace="team"))
    _, _, plan = rebalance(Operated(of), most_moves=1)
    assert [words for words in plan.answer.words if "pending" in words] == [
        "1 other pod is pending: the queue decides which pod gets the room."
    ]


def test_no_plan_evicts_nobody() -> None:
    cluster = Operated(half_used())
    done, said, plan = rebalance(cluster, most_moves=1)
    assert (done, said, plan.moves, cluster.evicted) == (False, [], (), [])


def fragmented(cards: int) -> World:
    """Nodes of one card that is half used, while pods wait that ask all of one."""
    of = world(**{f"n{number}": [8] for number in range(cards)})
    for number in range(cards):
        runs(of, f"p{number}", 4, f"n{number}", 0)
    for number in range(40):
        of.pods.create(manifest(f"usual-{number}", 8))
    return of


def lower(cluster: Operated) -> tuple[bool, list[str]]:
    """Moves for pods as they usually come. (whether all of it has come, what was said)."""
    said = list[str]()
    planner = Planner(CONFIGURATION, None, most_moves=10, max_priority=None)
    done = asyncio.run(Rebalancing(cluster, CONFIGURATION, planner, 5.0, said.append).run(lambda _: None))
    return done, said


def test_fragmentation_is_lowered_move_by_move() -> None:
    cluster = Operated(fragmented(4))
    done, said = lower(cluster)
    assert (done, len(cluster.evicted), cluster.cordons) == (True, 2, [])
    assert said[-1].startswith("Done. ")


class Returning(Operated):
    """Successors go back to the card that was left, and whoever else comes takes half of another one."""

    async def evict_pod(self, pod: PodKey) -> None:
        at = self.world.pods.collection.existing(pod.namespace, pod.name).spec.node_name
        self.places = False
        await super().evict_pod(pod)
        self.world.pods.bind("default", f"{pod.name}-again", at, on_card(0, 4))
        number = len(self.evicted)
        runs(self.world, f"stranger-{number}", 4, f"n{5 - number}", 0, priority=9)


def test_it_stops_when_the_successor_is_not_where_it_was_planned() -> None:
    cluster = Returning(fragmented(6))
    done, said = lower(cluster)
    assert (done, len(cluster.evicted)) == (False, 1)
    first = cluster.evicted[0]
    assert said[-1].startswith("Stopped after 1 of 3 moves: the successor of pod default/")
    assert f"{first} is on node n{first[1:]}, card 0 (4); the plan was node n" in said[-1]


class Leaving(Operated):
    """The pod beside which the first successor is ends by itself."""

    async def evict_pod(self, pod: PodKey) -> None:
        await super().evict_pod(pod)
        if len(self.evicted) == 1:
            pods = self.world.pods.collection
            at = pods.existing("default", f"{pod.name}-again").spec.node_name
            (beside,) = (one for one in pods if one.spec.node_name == at and not one.metadata.name.endswith("-again"))
            self.world.pods.remove("default", beside.metadata.name)


def test_no_successor_is_evicted() -> None:
    cluster = Leaving(fragmented(4))
    assert lower(cluster)[0]
    assert len(cluster.evicted) == 2
    assert not any(name.endswith("-again") for name in cluster.evicted)


def test_the_body_of_an_eviction() -> None:
    assert msgspec.json.decode(eviction_body(PodKey("ns", "p", "u"))) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "ns"},
        "deleteOptions": {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u"}},
    }
