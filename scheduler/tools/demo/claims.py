"""What the demo claims to have shown. Each sentence is checked against the cluster before it is printed.

The pods are those of scheduler/tools/demo/demo.yaml.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scheduler.state.ledger import NodeLedger
from scheduler.testing.cluster.witness import ObservedBinding, UnhealthySpell, Witness


@dataclass(frozen=True, slots=True)
class Assertion:
    """A sentence, and whether it is true. It contains what was found, so that a false one says what is wrong."""

    sentence: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the claims are held against.

    witness: what the API server had, write by write. ledger: of the scheduler's own tables, at the end.
    waiting: pod name -> the scheduler's last message, of the pods that wait at the end.
    """

    witness: Witness
    ledger: Mapping[str, NodeLedger]
    waiting: Mapping[str, str]


def claims(evidence: Evidence) -> list[Assertion]:
    """Everything that one round of the demo shows, in order."""
    witness = evidence.witness
    return [
        _binpack(witness),
        _pair(witness),
        _alone(witness),
        _woken(witness),
        *_unhealthy_card(witness),
        _legacy_node(witness),
        _other_model(witness),
        _refused(evidence, "too-big", "wants 100"),
        _refused(evidence, "odd", "does not divide"),
        *_throughout(evidence),
    ]


def _binpack(witness: Witness) -> Assertion:
    found = [_last(witness, f"binpack-{number}") for number in range(3)]
    places = {(bound.node, share.index, share.uuid) for bound in found for share in bound.shares}
    units = sorted(share.units for bound in found for share in bound.shares)
    where = ", ".join(f"card {index} of node {node}, {uuid}" for node, index, uuid in sorted(places))
    return Assertion(f"three replicas of 3 GiB share one card: {where}", len(places) == 1 and units == [3, 3, 3])


def _pair(witness: Witness) -> Assertion:
    bound = _last(witness, "pair")
    shares = " and ".join(f"{share.units} GiB on card {share.index}" for share in bound.shares)
    even = len({share.uuid for share in bound.shares}) == 2 and {share.units for share in bound.shares} == {15}  # noqa: PLR2004 - as in demo.yaml
    return Assertion(f"a pod that requests 30 GiB over two cards got {shares} of node {bound.node}", even)


def _alone(witness: Witness) -> Assertion:
    bound = _last(witness, "alone")
    ended_s = next((at_s for name, at_s in witness.ended if name == "alone" and at_s >= bound.at_s), None)
    card = {(bound.node, share.uuid) for share in bound.shares}
    others = [
        other.pod
        for other in witness.bound
        if card & {(other.node, share.uuid) for share in other.shares}
        and bound.at_s < other.at_s < (ended_s or float("inf"))
    ]
    where = f"card {bound.shares[0].index} of node {bound.node}" if bound.shares else "no card"
    sentence = f"an exclusive pod had {where} to itself until it ended"
    return Assertion(
        sentence if not others else f"{sentence}, but {', '.join(others)} came there", bool(card) and not others
    )


def _woken(witness: Witness) -> Assertion:
    """`serve-2` finds its place when a notebook has finished."""
    bound = _last(witness, "serve-2")
    freed = [(at_s, name) for name, at_s in witness.ended if at_s < bound.at_s]
    at_s, name = max(freed, default=(bound.at_s, "nothing"))
    after_ms = (bound.at_s - at_s) * 1000
    sentence = f"a pod that waited for memory was bound {after_ms:.0f} ms after {name} finished"
    return Assertion(sentence, name.startswith("notebook"))


def _unhealthy_card(witness: Witness) -> Iterator[Assertion]:
    if not witness.unhealthy_spells:
        yield Assertion("a card failed", holds=False)
        return
    spell = witness.unhealthy_spells[-1]
    until_s = float("inf") if spell.until_s is None else spell.until_s
    meanwhile = [bound for bound in witness.bound if spell.since_s <= bound.at_s < until_s]
    on_it = [bound.pod for bound in meanwhile if _is_on(bound, spell)]
    where = f"card {spell.index} of node {spell.node}"
    others = len(meanwhile) - len(on_it)
    sentence = f"while {where} was unhealthy (XID 79), pods bound to other cards: {others}, to it: {len(on_it)}"
    yield Assertion(sentence, bool(others) and not on_it)
    bound = _last(witness, "needs-t4")
    sentence = (
        f"a pod that waited for that card was bound to it {(bound.at_s - until_s) * 1000:.0f} ms after it recovered"
    )
    yield Assertion(sentence, _is_on(bound, spell) and bound.at_s >= until_s)


def _legacy_node(witness: Witness) -> Assertion:
    found = [bound for bound in witness.bound if bound.node == "old"]
    cards = sorted({share.index for bound in found for share in bound.shares})
    sentence = f"a node without an inventory, counted as equal cards, took {len(found)} pods on cards {_listed(cards)}"
    return Assertion(sentence, bool(found) and not any(share.uuid for bound in found for share in bound.shares))


def _other_model(witness: Witness) -> Assertion:
    bound = _last(witness, "not-t4")
    return Assertion(f"a pod that excludes Tesla-T4 went to node {bound.node}", bound.node not in {"", "t4"})


def _refused(evidence: Evidence, pod: str, because: str) -> Assertion:
    reason = evidence.waiting.get(pod, "nothing")
    return Assertion(f"{pod} waits and says why: {reason}", because in reason and not evidence.witness.bindings_of(pod))


def _throughout(evidence: Evidence) -> Iterator[Assertion]:
    witness = evidence.witness
    over = [violation for violation in witness.violations if "bound" not in violation]
    yield Assertion(
        f"no card was ever over-committed: recounted after each of {witness.writes} writes"
        + "".join(f"; {violation}" for violation in over),
        bool(witness.writes) and not over,
    )
    wrong = [violation for violation in witness.violations if "bound" in violation]
    yield Assertion(
        f"each of {len(witness.bound)} bindings wrote node and card at once, to a healthy card"
        + "".join(f"; {violation}" for violation in wrong),
        bool(witness.bound) and not wrong,
    )
    yield Assertion(
        "the scheduler's count of every card matches the API server's objects",
        dict(evidence.ledger) == witness.ledger(),
    )


def _last(witness: Witness, pod: str) -> ObservedBinding:
    """The latest binding of the pod; nowhere when there was none."""
    found = witness.bindings_of(pod)
    return found[-1] if found else ObservedBinding(pod, "", (), float("-inf"))


def _is_on(bound: ObservedBinding, spell: UnhealthySpell) -> bool:
    return bound.node == spell.node and any(share.index == spell.index for share in bound.shares)


def _listed(numbers: list[int]) -> str:
    return " and ".join(map(str, numbers)) or "none"
