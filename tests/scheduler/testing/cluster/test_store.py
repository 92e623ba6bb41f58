"""The history replays to what a list shows, from every version that has not expired."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from scheduler.kube.objects import ConfigMap, ObjectMeta
from scheduler.kube.port import ApiConflict, ApiNotFound, WatchExpired
from scheduler.testing.cluster.store import Collection, Versions

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
