"""`kubectl gpushare adopt --check` as lines for a terminal. Pure."""

from collections.abc import Iterator
from typing import Final

from scheduler.process.terminal import columns
from scheduler.tools.adoption.adoption import AdoptedCard, AdoptedNode, AdoptedPod, Adoption
from scheduler.tools.explain import findings
from scheduler.tools.explain.tones import Line, Tone

_HEAD: Final = ("NODE", "CARD", "UNITS", "COUNTED", "POD", "CHOSEN-BY", "HOLDS", "PROBLEM")
_RIGHT: Final = (1, 2, 3, 6)
_NONE: Final = "-"


def lines(found: Adoption) -> Iterator[Line]:
    """A line for each card and pod, and then the blockers: the end of a long answer stays visible."""
    rows = [row for node in found.nodes for row in _rows(node)]
    if rows:
        tones = (Tone.HEAD, *(Tone.BAD if bad else Tone.PLAIN for _, bad in rows))
        texts = columns(_HEAD, [cells for cells, _ in rows], _RIGHT)
        yield from (Line(text, tone) for text, tone in zip(texts, tones, strict=True))
        yield Line("")
    yield from findings.lines(found)


def _rows(node: AdoptedNode) -> Iterator[tuple[tuple[str, ...], bool]]:
    """(cells, whether something is wrong)."""
    on: dict[int, list[tuple[AdoptedPod, int]]] = {card.index: [] for card in node.cards}
    for pod in node.pods:
        for share in pod.cards:
            on[share.index].append((pod, share.units))
    for card in node.cards:
        for pod, units in on[card.index]:
            yield (node.node, *_of_card(card), *_of_pod(pod, units)), _is_overcommitted(card) or bool(pod.problems)
        if not on[card.index]:
            yield (node.node, *_of_card(card), *[_NONE] * 3, ""), False
    for pod in node.pods:
        if not pod.cards:
            yield (node.node, *[_NONE] * 3, *_of_pod(pod, pod.units)), True


def _of_card(card: AdoptedCard) -> tuple[str, str, str]:
    return str(card.index), str(card.units), str(card.counted)


def _of_pod(pod: AdoptedPod, units: int) -> tuple[str, str, str, str]:
    return pod.pod, pod.by, str(units), ", ".join(pod.problems)


def _is_overcommitted(card: AdoptedCard) -> bool:
    return card.counted > card.units
