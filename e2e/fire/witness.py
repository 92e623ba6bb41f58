"""Judges every state that nodes and pods have been in, one change after the other, in the order of the store.

    node, pod: put or gone ──▶ Witness ──▶ faults (what must never be), timeline (of whom)

Must never be:
- a card of a node holds more units than it has, among pods that are neither gone nor ended; or a card that a pod has
  for itself holds another pod.
- a pod's node or one of its written annotations changes once it has a node, or it gets a second one; a uid that is gone
  comes back; an allocation is there before the node.
- a pod of ours has a node without a readable allocation of exactly what it asks, on cards that its node has announced.

A card is its UUID: one that changes its size, or is on two nodes, is a mistake of the test's own. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from e2e.fire import reading
from e2e.fire.reading import Announced, Json, Share, Unreadable
from e2e.fire.terms import Terms

_MOST_REPORTED: Final = 20


@dataclass(frozen=True, slots=True)
class Change:
    """A put, or with `gone` a deletion, of a node, a pod, or the Lease.

    revision: of the store, rising. object: the last state that there was.
    """

    revision: int
    kind: str
    gone: bool
    object: Json


@dataclass(frozen=True, slots=True)
class Fault:
    """uids: of the pods that it concerns."""

    revision: int
    text: str
    uids: frozenset[str]


@dataclass(slots=True)
class SeenPod:
    """written: values of reading.WRITTEN when it got its node. share: None for pods that hold no card."""

    pod: Json
    node: str = ""
    written: tuple[str | None, ...] = ()
    share: Share | None = None
    gone: bool = False

    @property
    def name(self) -> str:
        """namespace/name."""
        metadata = self.pod["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"


@dataclass(slots=True)
class Witness:
    """faults: all so far. bound: how many pods got a node. pods: by uid, all that ever were. nodes: those that are.

    terms: who held the Lease, and which pods got a node meanwhile.
    """

    faults: list[Fault] = field(default_factory=list)
    bound: int = 0
    revision: int = 0
    pods: dict[str, SeenPod] = field(default_factory=dict)
    nodes: dict[str, Json] = field(default_factory=dict)
    node_counts: set[int] = field(default_factory=set)
    terms: Terms = field(default_factory=Terms)
    _sizes: dict[str, int] = field(default_factory=dict)
    _announced: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _unit_mib: dict[str, int] = field(default_factory=dict)
    _held: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    _timeline: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def take(self, change: Change) -> None:
        """Judge the next state."""
        self.revision = change.revision
        if change.kind == "lease":
            self.terms.lease(change.revision, None if change.gone else change.object)
        elif change.kind == "node":
            self._node(change)
        else:
            self._pod(change)

    def free(self) -> dict[str, dict[str, int]]:
        """Units that are left on each card, by UUID, of each node that is there."""
        return {
            name: {uuid: size - self._units_on(uuid) for uuid, size in reading.announced(node).units.items()}
            for name, node in self.nodes.items()
        }

    def waiting(self) -> list[Json]:
        """Pods without a node that are neither gone nor ended, nor being deleted.

        A server that is killed between the two writes of a deletion leaves one that is being deleted; the pod garbage
        collector removes it, and no scheduler takes it.
        """
        seen = [one.pod for one in self.pods.values() if not (one.node or one.gone)]
        return [pod for pod in seen if not (reading.has_ended(pod) or pod["metadata"].get("deletionTimestamp"))]

    def report(self) -> str:
        """The faults, and what happened to the pods that they concern."""
        lines = [f"at {fault.revision}: {fault.text}" for fault in self.faults[:_MOST_REPORTED]]
        concerned = sorted({uid for fault in self.faults[:_MOST_REPORTED] for uid in fault.uids})
        for uid in concerned:
            name = self.pods[uid].name if uid in self.pods else "?"
            lines += [f"  {name} {uid}", *(f"    {line}" for line in self._timeline[uid])]
        return "\n".join([f"{len(self.faults)} faults", *lines])

    def _fault(self, text: str, uids: Iterable[str] = ()) -> None:
        self.faults.append(Fault(self.revision, text, frozenset(uids)))

    def _node(self, change: Change) -> None:
        name = change.object["metadata"]["name"]
        if change.gone:
            self.nodes.pop(name, None)
            return
        self.nodes[name] = change.object
        self.node_counts.add(len(self.nodes))
        cards = reading.announced(change.object)
        self._unit_mib[name] = cards.unit_mib
        for uuid in self._mistakes(name, cards):
            self._fault(f"mistake of the test: card {uuid} of {name} was of another size, or on another node")

    def _mistakes(self, name: str, cards: Announced) -> Iterator[str]:
        for uuid, units in cards.units.items():
            elsewhere = any(uuid in theirs for node, theirs in self._announced.items() if node != name)
            if elsewhere or self._sizes.setdefault(uuid, units) != units:
                yield uuid
            self._announced[name].add(uuid)

    def _pod(self, change: Change) -> None:
        pod = change.object
        uid = pod["metadata"]["uid"]
        seen = self.pods.setdefault(uid, SeenPod(pod))
        self._note(uid, change)
        if seen.gone:
            self._fault(f"{seen.name} was gone and is there again", [uid])
        seen.pod, seen.gone = pod, change.gone
        self._check_place(uid, seen)
        if change.gone or reading.has_ended(pod):
            for uuid in seen.share.units if seen.share else ():
                self._held[uuid].pop(uid, None)

    def _note(self, uid: str, change: Change) -> None:
        pod = change.object
        cards = reading.annotations(pod).get(reading.CARDS, "no cards")
        phase = pod.get("status", {}).get("phase", "-")
        what = "gone" if change.gone else "there"
        line = f"{what}, node {reading.node_of(pod) or '-'}, {cards}, {phase}"
        noted = self._timeline[uid]
        if not noted or not noted[-1].endswith(line):
            noted.append(f"{change.revision}: {line}")

    def _check_place(self, uid: str, seen: SeenPod) -> None:
        node = reading.node_of(seen.pod)
        written = tuple(reading.annotations(seen.pod).get(key) for key in reading.WRITTEN)
        if seen.node:
            if reading.is_marked(seen.pod):
                # By the device plugin, once all its containers have their cards.
                seen.written = _marked(seen.written)
            if (node, written) != (seen.node, seen.written):
                self._fault(f"{seen.name} was moved from {seen.node} {seen.written} to {node} {written}", [uid])
        elif node:
            seen.node, seen.written = node, written
            self.terms.bound(self.revision, seen.pod)
            self._bound(uid, seen)
        elif reading.is_ours(seen.pod) and any(written):
            self._fault(f"{seen.name} has an allocation and no node", [uid])

    def _bound(self, uid: str, seen: SeenPod) -> None:
        self.bound += 1
        if not reading.is_ours(seen.pod):
            return
        try:
            seen.share = share = reading.share(seen.pod)
        except Unreadable as why:
            self._fault(f"{seen.name} is on {seen.node}: {why}", [uid])
            return
        if unknown := share.units.keys() - self._announced[seen.node]:
            self._fault(f"{seen.name} is on cards that {seen.node} has never announced: {sorted(unknown)}", [uid])
        if share.unit_mib != self._unit_mib.get(seen.node):
            self._fault(f"{seen.name} counts in {share.unit_mib} MiB, {seen.node} does not", [uid])
        for uuid, units in share.units.items():
            self._held[uuid][uid] = units
            self._check_card(uuid, seen.node)

    def _check_card(self, uuid: str, node: str) -> None:
        held = self._held[uuid]
        if (total := sum(held.values())) > (size := self._sizes.get(uuid, 0)):
            self._fault(f"card {uuid} of {node} holds {total} units of {size}", held)
        if len(held) > 1 and any(reading.is_exclusive(self.pods[uid].pod) for uid in held):
            self._fault(f"card {uuid} of {node} is one pod's own and holds {len(held)}", held)

    def _units_on(self, uuid: str) -> int:
        return sum(self._held[uuid].values())


def _marked(written: tuple[str | None, ...]) -> tuple[str | None, ...]:
    keys = zip(reading.WRITTEN, written, strict=True)
    return tuple("true" if key == reading.MEM_ASSIGNED else text for key, text in keys)
