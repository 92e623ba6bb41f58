"""Claims of the demo. Each sentence is checked against the cluster before it is printed.

The pods are those in scheduler/tools/demo/demo.yaml.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scheduler.state.ledger import NodeLedger
from scheduler.testing.cluster.checker import ClusterChecker, ObservedBinding, UnhealthySpell


@dataclass(frozen=True, slots=True)
class Assertion:
    """A sentence, and whether it is true. It contains the observed facts, so that a false sentence shows the error."""

    sentence: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for the claims.

    checker: the API server's state, write by write. ledger: from the scheduler's own tables, at the end. waiting: pod
    name -> the scheduler's last message, for pods that wait at the end.
    """

    checker: ClusterChecker
    ledger: Mapping[str, NodeLedger]
    waiting: Mapping[str, str]


def claims(evidence: Evidence) -> list[Assertion]:
    """Return everything that one round of the demo shows, in order."""
    checker = evidence.checker
    return [
        _binpack(checker),
        _pair(checker),
        _alone(checker),
        _woken(checker),
        *_unhealthy_card(checker),
        _legacy_node(checker),
        _other_model(checker),
        _refused(evidence, "too-big", "wants 100"),
        _refused(evidence, "odd", "is not divisible"),
        *_throughout(evidence),
    ]


def _binpack(checker: ClusterChecker) -> Assertion:
    found = [_last(checker, f"binpack-{number}") for number in range(3)]
    places = {(bound.node, share.index, share.uuid) for bound in found for share in bound.shares}
    units = sorted(share.units for bound in found for share in bound.shares)
    where = ", ".join(f"card {index} of node {node}, {uuid}" for node, index, uuid in sorted(places))
    return Assertion(f"three replicas of 3 GiB share one card: {where}", len(places) == 1 and units == [3, 3, 3])


def _pair(checker: ClusterChecker) -> Assertion:
    bound = _last(checker, "pair")
    shares = " and ".join(f"{share.units} GiB on card {share.index}" for share in bound.shares)
    even = len({share.uuid for share in bound.shares}) == 2 and {share.units for share in bound.shares} == {15}  # noqa: PLR2004 - as in demo.yaml
    return Assertion(f"a pod that requests 30 GiB over two cards got {shares} of node {bound.node}", even)


def _alone(checker: ClusterChecker) -> Assertion:
    bound = _last(checker, "alone")
    ended_s = next((at_s for name, at_s in checker.ended if name == "alone" and at_s >= bound.at_s), None)
    card = {(bound.node, share.uuid) for share in bound.shares}
    others = [
        other.pod
        for other in checker.bound
        if card & {(other.node, share.uuid) for share in other.shares}
        and bound.at_s < other.at_s < (ended_s or float("inf"))
    ]
    where = f"card {bound.shares[0].index} of node {bound.node}" if bound.shares else "no card"
    sentence = f"an exclusive pod had {where} to itself until it ended"
    return Assertion(
        sentence if not others else f"{sentence}, but {', '.join(others)} ran there too", bool(card) and not others
    )


def _woken(checker: ClusterChecker) -> Assertion:
    """Check that `serve-2` gets a node when a notebook has finished."""
    bound = _last(checker, "serve-2")
    freed = [(at_s, name) for name, at_s in checker.ended if at_s < bound.at_s]
    at_s, name = max(freed, default=(bound.at_s, "nothing"))
    after_ms = (bound.at_s - at_s) * 1000
    sentence = f"a pod that waited for memory was bound {after_ms:.0f} ms after {name} finished"
    return Assertion(sentence, name.startswith("notebook"))


def _unhealthy_card(checker: ClusterChecker) -> Iterator[Assertion]:
    if not checker.unhealthy_spells:
        yield Assertion("a card failed", holds=False)
        return
    spell = checker.unhealthy_spells[-1]
    until_s = float("inf") if spell.until_s is None else spell.until_s
    meanwhile = [bound for bound in checker.bound if spell.since_s <= bound.at_s < until_s]
    on_it = [bound.pod for bound in meanwhile if _is_on(bound, spell)]
    where = f"card {spell.index} of node {spell.node}"
    others = len(meanwhile) - len(on_it)
    sentence = f"pods bound while {where} was unhealthy (XID 79): {others} to other cards, {len(on_it)} to it"
    yield Assertion(sentence, bool(others) and not on_it)
    bound = _last(checker, "needs-t4")
    sentence = (
        f"a pod that waited for that card was bound to it {(bound.at_s - until_s) * 1000:.0f} ms after it recovered"
    )
    yield Assertion(sentence, _is_on(bound, spell) and bound.at_s >= until_s)


def _legacy_node(checker: ClusterChecker) -> Assertion:
    found = [bound for bound in checker.bound if bound.node == "old"]
    cards = sorted({share.index for bound in found for share in bound.shares})
    sentence = f"a node without an inventory, counted as equal cards, took {len(found)} pods on cards {_listed(cards)}"
    return Assertion(sentence, bool(found) and not any(share.uuid for bound in found for share in bound.shares))


def _other_model(checker: ClusterChecker) -> Assertion:
    bound = _last(checker, "not-t4")
    return Assertion(f"a pod that excludes Tesla-T4 was placed on node {bound.node}", bound.node not in {"", "t4"})


def _refused(evidence: Evidence, pod: str, because: str) -> Assertion:
    reason = evidence.waiting.get(pod, "nothing")
    sentence = f"{pod} waits, and its message says why: {reason}"
    return Assertion(sentence, because in reason and not evidence.checker.bindings_of(pod))


def _throughout(evidence: Evidence) -> Iterator[Assertion]:
    checker = evidence.checker
    over = [violation for violation in checker.violations if "bound" not in violation]
    yield Assertion(
        f"no card was ever over-committed (recounted after each of {checker.writes} writes)"
        + "".join(f"; {violation}" for violation in over),
        bool(checker.writes) and not over,
    )
    wrong = [violation for violation in checker.violations if "bound" in violation]
    yield Assertion(
        f"each of {len(checker.bound)} bindings wrote the node and the card in one request, and each card was healthy"
        + "".join(f"; {violation}" for violation in wrong),
        bool(checker.bound) and not wrong,
    )
    yield Assertion(
        "the scheduler's count of every card matches the API server's objects",
        dict(evidence.ledger) == checker.ledger(),
    )


def _last(checker: ClusterChecker, pod: str) -> ObservedBinding:
    """Return the latest binding of the pod; an empty one if there was none."""
    found = checker.bindings_of(pod)
    return found[-1] if found else ObservedBinding(pod, "", (), float("-inf"))


def _is_on(bound: ObservedBinding, spell: UnhealthySpell) -> bool:
    return bound.node == spell.node and any(share.index == spell.index for share in bound.shares)


def _listed(numbers: list[int]) -> str:
    return " and ".join(map(str, numbers)) or "none"
