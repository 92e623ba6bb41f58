"""Random histories: they replay to what a list shows, and a client that follows the rules knows every pod."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from scheduler.kube.objects import ConfigMap, ObjectMeta, PodObject
from scheduler.kube.port import (
    PODS,
    ApiConflict,
    ApiNotFound,
    ApiSilent,
    Bookmark,
    Changed,
    Cluster,
    Deleted,
    ListBegins,
    ListEnds,
    WatchEvent,
    WatchExpired,
)
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.faults import Break, Verb, WatchBreaks
from scheduler.testing.cluster.store import Collection, Versions, shown_by
from scheduler.testing.cluster.watching import WatchTiming
from scheduler.testing.cluster.world import World
from tests.scheduler.testing.cluster.builders import everything_ready, pod

NAMES = st.sampled_from(["a", "b", "c", "d"])
LIMIT = 5


def config_map(name: str, value: str = "") -> ConfigMap:
    return ConfigMap(ObjectMeta(name=name, namespace="ns"), {"value": value})


def contents(store: Collection[ConfigMap]) -> dict[str, ConfigMap]:
    return {found.metadata.name: found for found in store}


def replayed(store: Collection[ConfigMap], onto: dict[str, ConfigMap], version: int) -> dict[str, ConfigMap]:
    """What a watch that began with `onto` at `version` knows now."""
    known = dict(onto)
    changes = store.changes(store.position_after(version), 1_000)
    assert changes is not None
    for change in changes:
        if change.after is not None:
            known[change.after.metadata.name] = change.after
        elif change.before is not None:
            assert known.pop(change.before.metadata.name) == change.before
    return known


class Histories(RuleBasedStateMachine):
    """Random writes; every list ever taken is kept, and replayed from after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = Versions()
        self.store: Collection[ConfigMap] = Collection("configmaps", self.versions, LIMIT)
        self.lists: list[tuple[int, dict[str, ConfigMap], int]] = [(self.versions.last, {}, 0)]
        self.writes = 0
        self.compacted_at = 0

    @rule(name=NAMES, value=st.text(max_size=2))
    def create_or_replace(self, name: str, value: str) -> None:
        before, version = self.store.find("ns", name), self.store.version
        if before is None:
            self.store.create(config_map(name, value))
        else:
            self.store.replace(replace(before, data={"value": value}))
        self._note(version)

    @precondition(lambda self: len(self.store) > 0)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        version = self.store.version
        self.store.remove("ns", data.draw(st.sampled_from(sorted(contents(self.store)))))
        self._note(version)

    @rule()
    def another_collection_writes(self) -> None:
        self.versions.take()

    @rule()
    def compact(self) -> None:
        self.store.compact()
        self.compacted_at = self.store.version

    @rule()
    def take_a_list(self) -> None:
        self.lists.append((self.store.version, contents(self.store), self.writes))

    def _note(self, version_before: int) -> None:
        self.writes += self.store.version != version_before

    @invariant()
    def lists_replay_to_the_same_or_have_expired(self) -> None:
        for version, known, writes in self.lists:
            within_limit = self.writes - writes <= LIMIT and version >= self.compacted_at
            try:
                assert replayed(self.store, known, version) == contents(self.store)
            except WatchExpired:
                assert not within_limit

    @invariant()
    def versions_rise_in_the_history(self) -> None:
        changes = self.store.changes(max(0, self.store.end - LIMIT), LIMIT) or []
        versions = [change.version for change in changes]
        assert versions == sorted(set(versions))


TestHistories = Histories.TestCase


Step: TypeAlias = Callable[[World, MemoryCluster], object]
POD_NAMES: Final = ["a", "b", "c"]
WRITES: Final[dict[str, Callable[[World, str], object]]] = {
    "create": lambda world, name: world.pods.create(pod(name)),
    "bind": lambda world, name: world.pods.bind("ns", name, "n", {"cards": "0"}),
    "finish": lambda world, name: world.pods.finish("ns", name),
    "delete": lambda world, name: world.pods.delete("ns", name),
    "remove": lambda world, name: world.pods.remove("ns", name),
}


class Reflection:
    """The pods as a watch tells of them: goes on after a break, begins again after a 410."""

    def __init__(self) -> None:
        self.pods: dict[str, PodObject] = {}
        self.lists = 0
        self._listed: dict[str, PodObject] | None = None
        self._since: str | None = None

    async def follow(self, cluster: Cluster) -> None:
        while True:
            try:
                async for batch in cluster.watch(PODS, self._since):
                    for event in batch:
                        self._take(event)
            except ApiSilent:
                self._listed = None
            except WatchExpired:
                self._listed, self._since = None, None

    def _take(self, event: WatchEvent[PodObject]) -> None:
        match event:
            case ListBegins():
                self._listed = {}
            case ListEnds(version):
                assert self._listed is not None
                self.pods, self._listed, self._since = self._listed, None, version
                self.lists += 1
            case Changed(seen) if self._listed is not None:
                self._listed[seen.metadata.name] = seen
            case Changed(seen):
                self._goes_on_to(seen)
                self.pods[seen.metadata.name] = seen
            case Deleted(seen):
                self._goes_on_to(seen)
                del self.pods[seen.metadata.name]  # a KeyError would be an end that nobody saw begin
            case Bookmark(version):
                self._since = version

    def _goes_on_to(self, seen: PodObject) -> None:
        version = seen.metadata.resource_version
        assert int(version) > int(self._since or 0), "the watch repeats itself"
        self._since = version


@st.composite
def steps(draw: st.DrawFn) -> Step:
    match draw(st.sampled_from(["write", "write", "write", "break", "break next", "stall", "resume", "compact"])):
        case "write":
            write, name = WRITES[draw(st.sampled_from(sorted(WRITES)))], draw(st.sampled_from(POD_NAMES))
            return lambda world, _: write(world, name)
        case "break":
            how = draw(st.sampled_from([Break.ENDED, Break.LOST, Break.EXPIRED]))
            return lambda _, cluster: cluster.break_watches(how)
        case "break next":
            breaks = WatchBreaks(draw(st.sampled_from([Break.ENDED, Break.LOST])), draw(st.integers(0, 4)))
            return lambda _, cluster: cluster.faults.add(Verb.WATCH, breaks, count=1)
        case "stall":
            return lambda _, cluster: cluster.break_watches(Break.STALLED)
        case "resume":
            return lambda _, cluster: cluster.resume_watches()
    return lambda world, _: world.compact_history()


async def run(history: list[tuple[Step, bool]]) -> None:
    """history: steps, and whether the client gets time to follow after each."""
    world = World(lambda: 1_800_000_000.0, history_limit=3)
    cluster = MemoryCluster(world, timing=WatchTiming(bookmark_every_s=None))
    reflection = Reflection()
    following = asyncio.create_task(reflection.follow(cluster))
    for step, rest in history:
        with suppress(ApiConflict, ApiNotFound):  # what the cluster refuses changes nothing
            step(world, cluster)
        if rest:
            await everything_ready()
    cluster.resume_watches()
    for _ in range(10):  # enough for every break that is still to come
        await everything_ready()
    assert not following.done(), following.exception()
    following.cancel()

    shown = shown_by(PODS)
    assert reflection.pods == {found.metadata.name: found for found in world.pods if shown(found)}
    assert reflection.lists > 0


@settings(max_examples=300)
@given(st.lists(st.tuples(steps(), st.booleans()), max_size=40))
def test_a_client_that_follows_the_rules_knows_every_pod_in_the_end(history: list[tuple[Step, bool]]) -> None:
    asyncio.run(run(history))
