"""Whole objects of every watched kind, through the real service: a round is a cluster of its own, and some objects.

Objects come, change and go; each is some object of the corpus with a few things wrong. What must hold: the service
goes on; a good pod on a good node is bound meanwhile; the ledger audit finds no difference; when everything is gone,
nothing of it is left.
"""

import gc
import json
import random
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from prometheus_client import generate_latest

from config.protocol import names
from scheduler.kube import objects, port
from scheduler.kube.port import Kind
from scheduler.kube.rest.decoding import Decoder
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.tools.cli.asking import cluster_view
from scheduler.tools.cli.manifests import Unanswerable
from tests.fuzz import corpus, planted
from tests.fuzz.cluster import GOOD, Cluster
from tests.fuzz.mutations import Mutator
from tests.support.clocks.virtual_time import run
from tests.support.service.process import AT_ONCE
from tests.tenants.memory import bytes_of

OBJECTS: Final = 60
_ASKED_EVERY: Final = 6
_EXPLAINED_EVERY: Final = 20
_STAYS: Final = 0.8
_UNCHANGED: Final = 0.2
_OTHER_UID: Final = 0.25
_PODS: Final = 12
_OWNED_EVERY: Final = 24
# kube-apiserver reads 10,000, and has some of its own around them.
_MOST_LEVELS: Final = 9_980
_METADATA: Final = re.compile(rb'"metadata": ?\{(?=")')
_WEIGHTS: Final = {port.PODS.name: 14, port.NODES.name: 8, port.CLAIMS.name: 2, port.VOLUMES.name: 2}
_NAMESPACES: Final = ("default", "other")


@dataclass
class Outcome:
    """What some rounds have shown.

    slowest: the longest that one object took, in seconds of the processor, and its case. good_s: the same of a good
    pod. left: bytes that the service holds more after a round than before, the most. said: characters that it wrote.
    """

    counts: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    good_s: float = 0.0
    left: int = 0
    said: int = 0

    @property
    def objects(self) -> int:
        """So many objects came or changed."""
        return sum(self.counts[name] for name in _KINDS)

    def add(self, other: "Outcome") -> None:
        self.counts += other.counts
        self.slowest = max(self.slowest, other.slowest)
        self.good_s = max(self.good_s, other.good_s)
        self.left = max(self.left, other.left)
        self.said += other.said


class CaseFailed(AssertionError):
    """The number of the round, and what the last object was."""


def round_of(number: int, *, objects_per_round: int = OBJECTS) -> Outcome:
    """One round; raises CaseFailed. number: decides everything in it."""
    one = _Round(number)
    try:
        run(one.played(objects_per_round))
    except Exception as error:
        message = f"round {number}, {one.last}: {repr(error)[:2000]}"
        raise CaseFailed(message) from error
    return one.outcome


_MUTATORS: Final[dict[str, Mutator]] = {}


def mutator(kind: str) -> Mutator:
    """Of the kind's corpus."""
    if kind not in _MUTATORS:
        read = msgspec.json.Decoder(_KINDS[kind].type).decode
        _MUTATORS[kind] = Mutator(corpus.objects()[kind], read)
    return _MUTATORS[kind]


class _Round:
    def __init__(self, number: int) -> None:
        self.number = number
        self.outcome = Outcome()
        self.last = "nothing yet"
        self._rng = random.Random(number)  # noqa: S311 - to be repeated
        self._uids: dict[tuple[str, str, str], str] = {}
        self._gone: set[tuple[str, str, str]] = set()
        self._made = 0

    async def played(self, count: int) -> None:
        on = Cluster(self.number)
        try:
            await self._play(on, count)
        finally:
            await on.end()

    async def _play(self, on: Cluster, count: int) -> None:
        await on.good_pod(0)
        before = _held(on)
        for case in range(count):
            await self._object(on)
            if case % _ASKED_EVERY == _ASKED_EVERY - 1:
                self.outcome.good_s = max(self.outcome.good_s, await on.good_pod(case))
            if case % _EXPLAINED_EVERY == _EXPLAINED_EVERY - 1:
                await self._ask(on)
        await self._audit(on)
        for kind, namespace, name in self._uids:
            await on.goes(_KINDS[kind], namespace, name)
        await on.good_pod(count)
        await self._audit(on)
        self._nothing_is_left(on)
        said = on.said()
        assert planted.PLANTED not in said, said[max(0, said.find(planted.PLANTED) - 500) :][:1000]
        self.outcome.said = len(said)
        self.outcome.left = max(0, _held(on) - before)

    async def _object(self, on: Cluster) -> None:
        kind = _KINDS[self._rng.choice(_CHOICES)]
        meta = self._meta(kind)
        if self._rng.random() > _STAYS:
            self.last = f"{kind.name} {meta.name} goes"
            await on.goes(kind, meta.namespace, meta.name)
            # Whatever comes under this name is another object.
            self._gone.add((kind.name, meta.namespace, meta.name))
            return
        document = self._rng.choice(corpus.objects()[kind.name])
        if self._rng.random() < _UNCHANGED:
            text = json.dumps(document).encode()
        else:
            text = mutator(kind.name).text(document, self._rng, planted.in_object)
        if self._rng.randrange(_OWNED_EVERY) == 0:
            text = self._owned(kind, text)
        self.last = f"{kind.name} {meta.name}: {text[:3000].decode(errors='replace')}"
        took_s = await on.comes(kind, text, meta)
        self.outcome.counts[kind.name] += 1
        self.outcome.slowest = max(self.outcome.slowest, (took_s, f"round {self.number}, {self.last[:200]}"))

    def _owned(self, kind: Kind[Any], text: bytes) -> bytes:
        """With managedFields of any depth: what can be read without them can be read with them."""
        levels = self._rng.randrange(1, _MOST_LEVELS)
        deep = b'{"f:a":' * levels + b"{}" + b"}" * levels
        owned = _METADATA.sub(lambda found: found[0] + b'"managedFields":[{"fieldsV1":%s}],' % deep, text, count=1)
        decoder = Decoder(kind)
        try:
            plain, found = (decoder.watched(b'{"type":"MODIFIED","object":%s}' % one) for one in (text, owned))
        except port.ApiError:
            return text
        assert found == plain or not isinstance(plain, port.Changed), found
        self.outcome.counts["owned"] += owned != text
        return owned

    def _meta(self, kind: Kind[Any]) -> objects.ObjectMeta:
        """Of an object that is there already, or could be: names that others refer to."""
        written = self._rng.choice(corpus.objects()[kind.name])["metadata"]
        name, namespace = written["name"], written.get("namespace", "")
        if kind is port.PODS:
            name, namespace = f"p{self._rng.randrange(_PODS)}", self._rng.choice(_NAMESPACES)
        elif kind is port.NODES:
            name = f"n{self._rng.randrange(4)}"
        elif kind is port.CONFIG_MAPS:
            name = f"{names.UNHEALTHY_PREFIX}n{self._rng.randrange(4)}"
        elif kind is port.NAMESPACES:
            name = self._rng.choice(_NAMESPACES)
        assert GOOD not in {name, namespace}
        key = (kind.name, namespace, name)
        if key not in self._uids or key in self._gone or self._rng.random() < _OTHER_UID:
            self._made += 1
            self._gone.discard(key)
            self._uids[key] = f"uid-{self._made}"
        return objects.ObjectMeta(name, namespace, uid=self._uids[key])

    async def _ask(self, on: Cluster) -> None:
        """What people look at: the metrics, and why a pod waits."""
        generate_latest(on.metrics.registry)
        for pod in [pod for pod in on.world.pods if not pod.spec.node_name][:2]:
            where = await cluster_view(MemoryCluster(on.world), AT_ONCE)
            with suppress(Unanswerable):
                await where.explained(pod.metadata.namespace, pod.metadata.name)
            self.outcome.counts["explained"] += 1

    async def _audit(self, on: Cluster) -> None:
        found = on.audited()
        assert found.differences == 0, on.problems

    def _nothing_is_left(self, on: Cluster) -> None:
        tables = on.engine.tables
        assert set(tables.row_of) == {GOOD}
        assert not [(record.pod.key, record.node) for record in tables.records()]
        on.engine.queue.validate()
        assert not any(on.engine.queue.lengths().values()), on.engine.queue.lengths()
        self.outcome.counts["bound"] += len(on.wire.bindings)


_KINDS: Final = {kind.name: kind for kind in port.KINDS}
_CHOICES: Final = [name for name in _KINDS for _ in range(_WEIGHTS.get(name, 1))]


def _held(on: Cluster) -> int:
    """Bytes that the service holds, but for its caches."""
    gc.collect()
    # Beside its caches, the images of nodes that have gone are kept for others, up to a number of their own.
    images = on.service.engine.tables.images
    return bytes_of([on.service], without=[on.wire, on.wire.faults, vars(images)["_known"]], caches=False)
