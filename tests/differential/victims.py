"""Whom preemption removes: our choice beside kube-scheduler's."""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from tests.differential.ours import Choice, Ours
from tests.differential.wire import Candidate, Preemption, Probe, Recorded

# Less is better: violations, highest priority, sum of priorities, victims, when the most important one has started.
Key: TypeAlias = tuple[int, int, int, int, str]
KEY_PARTS: Final = ("violations", "highest priority", "sum of priorities", "number", "latest start")
_ABOVE_ALL: Final = 2**31
_PREFIX: Final = "preemption: "


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""


class _Spec(msgspec.Struct):
    priority: int = 0


class _Status(msgspec.Struct, rename="camel"):
    start_time: str = "~"


class _Pod(msgspec.Struct):
    kind: str
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def keys_of(scenario: Recorded, candidates: Mapping[str, Candidate]) -> dict[str, Key]:
    """By node, worked out from the objects alone. kube-scheduler takes one of the least, by chance.

    Source: kube-scheduler, framework/preemption/preemption.go, pickOneNodeForPreemption.
    """
    decoder = msgspec.json.Decoder(_Pod)
    found = map(decoder.decode, (raw for raw in scenario.objects if b'"kind":"Pod"' in bytes(raw)))
    pods = {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in found}
    return {name: _key([pods[victim] for victim in one.victims], one.violations) for name, one in candidates.items()}


def differing(scenario: Recorded, probe: Probe, theirs: Preemption, ours: Ours) -> Iterator[tuple[str, object, object]]:
    """(what, kube-scheduler's, ours): the victims on each node, the node, and why preemption does not help."""
    chosen = ours.choice(probe.pod)
    candidates = theirs.candidates or {}
    if not candidates:
        expected = Choice(message=_PREFIX + (theirs.not_eligible or theirs.message))
        if chosen != expected:
            yield "no victims", expected, chosen
        return
    helped = {name: one for name, one in ours.choices(probe.pod).items() if one.node}
    for name in sorted(candidates.keys() | helped.keys()):
        one, other = candidates.get(name), helped.get(name, Choice())
        wanted = Choice() if one is None else Choice(name, one.victims, one.violations)
        if wanted != other:
            yield f"victims on {name}", wanted, other
    keys = keys_of(scenario, candidates)
    if keys.get(chosen.node) != keys[theirs.chosen]:
        yield "node to free", (theirs.chosen, keys[theirs.chosen]), (chosen.node, keys.get(chosen.node))
    elif chosen != helped.get(chosen.node):
        yield f"victims on {chosen.node}, of all nodes", helped.get(chosen.node), chosen


def _key(victims: list[_Pod], violations: int) -> Key:
    highest = max(pod.spec.priority for pod in victims)
    total = sum(pod.spec.priority + _ABOVE_ALL for pod in victims)
    earliest = min(pod.status.start_time for pod in victims if pod.spec.priority == highest)
    return violations, highest, total, len(victims), _later_first(earliest)


def _later_first(cache_key: str) -> str:
    """A text that is less for a later moment. moment: RFC 3339, or "~"."""
    return "".join(chr(0x100 - ord(one)) for one in cache_key)
