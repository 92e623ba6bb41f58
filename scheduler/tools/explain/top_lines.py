"""Usage of the cluster as lines for a terminal. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from config.protocol.isolation import ADVISORY
from scheduler.process.terminal import columns
from scheduler.tools.explain.text import held_by
from scheduler.tools.explain.tones import Line, Tone
from scheduler.tools.explain.top import ClusterUsage, Top, UsedCard, UsedNode


def cluster_lines(of: ClusterUsage) -> Iterator[Line]:
    """Yield sentences about the cluster."""
    share = f"{100 * of.requested // of.units}%" if of.units else "-"
    yield Line(f"Nodes with GPU memory: {of.nodes}, cards: {of.cards}, pods on them: {of.pods}, waiting: {of.waiting}.")
    where = f", on node {of.most_free_node}" if of.most_free else ""
    yield Line(f"Units: {of.units}, requested: {of.requested} ({share}), free for new pods: {of.free}.")
    if of.free:
        part = f"{of.fragmented} ({100 * of.fragmented // of.free}%)"
        yield Line(f"Fragmented (free units that typical pods cannot use): {part}.")
    yield Line(f"Most free on one card: {of.most_free}{where}.", Tone.PLAIN if of.most_free else Tone.WARNING)
    if of.too_large:
        pods = "1 waiting pod is" if of.too_large == 1 else f"{of.too_large} waiting pods are"
        yield Line(f"{pods} larger than every card (largest {of.largest}).", Tone.WARNING)
    yield Line(f"Cards on which memory is enforced: {of.enforced}, advisory: {of.cards - of.enforced}.")
    if of.out or of.held:
        yield Line(f"Cards out of use: {of.out}, held exclusively: {of.held}.", Tone.BAD if of.out else Tone.PLAIN)
    if of.problems:
        yield Line(
            f"Nodes whose cards take no new pods: {of.problems}; `kubectl gpushare top nodes` says why.", Tone.BAD
        )


_NODES: Final = (
    *("NODE", "CARDS", "UNITS", "REQUESTED", "FREE", "FRAGMENTED", "MOST-FREE", "OUT", "HELD", "PODS"),
    *("ISOLATION", "PROBLEM"),
)
_CARDS: Final = ("NODE", "CARD", "MODEL", "UNITS", "REQUESTED", "FREE", "PODS", "UUID", "ISOLATION", "STATE")


def node_lines(found: Top, *, wide: bool = False) -> Iterator[Line]:
    """Yield a header, and a line for each node."""
    *numbers, isolation, last = _NODES
    head = (*numbers, isolation, *(("MODELS",) if wide else ()), last)
    rows = [
        (
            node.node,
            *(str(number) for number in (node.cards, node.units, node.requested, node.free, node.fragmented)),
            *(str(number) for number in (node.most_free, node.out, node.held, node.pods)),
            ",".join(kind or ADVISORY for kind in node.isolation) or "-",
            *((",".join(node.models) or "-",) if wide else ()),
            "; ".join(_problems(node)),
        )
        for node in found.nodes
    ]
    tones = [_tone(bad=bool(node.out or node.problem or node.unknown), free=node.free) for node in found.nodes]
    yield from _toned(head, rows, tones, right=range(1, 10))


def _problems(node: UsedNode) -> Iterator[str]:
    if node.problem:
        yield node.problem
    if node.unknown:
        yield f"{node.unknown} units are on unknown cards"


def card_lines(found: Top, *, wide: bool = False) -> Iterator[Line]:
    """Yield a header, and a line for each card."""
    problems = {node.node: node.problem for node in found.nodes}
    head = (*_CARDS, *(("HELD-BY",) if wide else ()))
    rows = [
        (
            *(card.node, str(card.index), card.model or "-", str(card.units), str(card.requested), str(card.free)),
            *(str(card.pods), card.uuid, card.isolation or ADVISORY, _state(card, problems[card.node])),
            *((", ".join(map(held_by, card.holders)) or "-",) if wide else ()),
        )
        for card in found.cards
    ]
    bad = [bool(card.out or problems[card.node]) or card.requested > card.units for card in found.cards]
    tones = [_tone(bad=is_bad, free=card.free) for card, is_bad in zip(found.cards, bad, strict=True)]
    yield from _toned(head, rows, tones, right=(1, 3, 4, 5, 6))


def _state(card: UsedCard, problem: str) -> str:
    return card.out or problem or ("held exclusively" if card.held else "ready")


def _tone(*, bad: bool, free: int) -> Tone:
    if bad:
        return Tone.BAD
    return Tone.PLAIN if free else Tone.WARNING


def _toned(
    head: Sequence[str], rows: Sequence[Sequence[str]], tones: Sequence[Tone], right: Sequence[int]
) -> Iterator[Line]:
    return (Line(text, tone) for text, tone in zip(columns(head, rows, right), (Tone.HEAD, *tones), strict=True))
