"""Answers as text for a terminal: one node with eight cards fits into 80 columns by 24 lines. Pure."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from scheduler.process.terminal import printable, some
from scheduler.tools.explain.answers import (
    ExplainedCard,
    ExplainedNode,
    Explanation,
    FreeMemory,
    HeldUnits,
    WhatIfAnswer,
)
from scheduler.tools.explain.reading import told_going
from scheduler.tools.explain.remedies import NOTHING

_GAP: Final = "  "
_MOST_GROUPS: Final = 8
_MOST_PLACES: Final = 20
_NARROWEST_LAST: Final = 12
_LONGEST_MODEL: Final = 24
_LONGEST_WHY: Final = 40
_MOST_PODS: Final = 3
_NO_REMEDY: Final = "nothing"
_NOT_HELPED: Final = " preemption: 0/"


def explanation_text(answer: Explanation, width: int) -> str:
    """Return the explanation as text. width: columns of the terminal."""
    lines = [*_wrapped(f"Pod {answer.pod} {headline(answer)}", width)]
    for sentence in (*answer.words, *under_way(answer)):
        lines += _wrapped(sentence, width)
    lines += _verdict(answer, width)
    return printable(lines)


def what_if_text(answer: WhatIfAnswer, width: int) -> str:
    """Return the answer as text. width: columns of the terminal."""
    lines = _wrapped(fitting(answer), width)
    for sentence in answer.words:
        lines += _wrapped(sentence, width)
    rows = copies(answer)
    if rows:
        lines += ["", *_table(("NODE", "CARDS", "COPIES"), rows[:_MOST_PLACES], width, right=(2,))]
        if len(rows) > _MOST_PLACES:
            lines.append(f"and {len(rows) - _MOST_PLACES} more places")
    if answer.fit:
        lines += ["", *_wrapped(left_over(answer.before, answer.after), width)]
    if answer.next is not None:
        blocked = "What blocks the next copy:" if answer.replicas > 1 else "What blocks it:"
        lines += ["", *_wrapped(blocked, width), *_verdict(answer.next, width)]
    return printable(lines)


def fitting(answer: WhatIfAnswer) -> str:
    """Return a sentence about how many copies would fit."""
    beside = ""
    if answer.waiting:
        they = "pending pod is" if answer.waiting == 1 else "pending pods are"
        beside = f"; {answer.waiting} {they} not counted"
    if answer.replicas == 1:
        return f"Pod {answer.pod} would {'' if answer.fit else 'not '}fit now{beside}."
    return f"{answer.fit} of {answer.replicas} copies of {answer.pod} would fit now{beside}."


def left_over(before: FreeMemory, after: FreeMemory) -> str:
    """Return a sentence about free memory that typical pods cannot use."""
    return (
        f"Fragmented (free units that typical pods cannot use): {before.fragmented} of {before.free} now, "
        f"{after.fragmented} of {after.free} with them."
    )


def copies(answer: WhatIfAnswer) -> list[tuple[str, str, str]]:
    """Return (node, its cards with units, number of copies), the node with the most copies first."""
    places = Counter((place.node, _cards(place.cards)) for place in answer.places)
    return [(node, cards, str(number)) for (node, cards), number in places.most_common()]


def headline(answer: Explanation) -> str:
    """Return the first sentence of the explanation, without its subject."""
    if answer.state in {"bound", "finished", "terminating"}:
        return f"is {answer.state}."
    if answer.place is not None:
        cards = _cards(answer.place.cards)
        where = f"on node {answer.place.node}{f', card {cards}' if cards else ''}"
        without = {"gated": "without its gate ", "foreign": "with this scheduler "}.get(answer.state, "")
        return f"would {without}be placed now: {where}."
    if not answer.message:
        return "belongs to another scheduler."
    if not answer.nodes:
        return "fits nowhere: there are no nodes."
    if answer.node:
        return f"does not fit on node {answer.node}."
    return f"fits on none of {answer.nodes} nodes." if answer.nodes > 1 else "does not fit on the only node."


def under_way(answer: Explanation) -> Iterator[str]:
    """Yield sentences about pods that are already terminating to make room for it."""
    kept = answer.nominated
    if kept is None:
        return
    if not kept.terminating:
        yield f"It is nominated to node {kept.node}; no pod is terminating there."
    elif answer.place is not None:
        yield f"It is nominated to node {kept.node}, where {told_going(kept.terminating, _MOST_PODS)}."
    else:
        yield (
            f"Preemption is under way: it is nominated to node {kept.node}, where "
            f"{told_going(kept.terminating, _MOST_PODS)}. You do not have to delete any pods."
        )


def _verdict(answer: Explanation, width: int) -> Iterator[str]:
    if answer.message and not answer.reasons:
        # If no node could ever take the pod, preemption obviously does not help.
        yield from _wrapped(answer.message.partition(_NOT_HELPED)[0], width)
    if not answer.node and (len(answer.reasons) > 1 or answer.nodes > 1):
        yield from _groups(answer, width)
    if len(answer.nearest) > 1:
        yield from _nearest(answer.nearest, width)
    if answer.nearest:
        yield ""
        yield from _node(answer, answer.nearest[0], width)
    yield from _wrapped(preempting(answer), width)


def _nearest(nodes: Sequence[ExplainedNode], width: int) -> Iterator[str]:
    yield ""
    yield f"The {len(nodes)} nodes closest to fitting:"
    helped = any(node.remedy not in {"", NOTHING} for node in nodes)
    rows = [
        (
            node.name,
            str(node.short_units) if node.cards else "-",
            some([one.rule for one in node.rules], 2),
            *((_NO_REMEDY if node.remedy in {"", NOTHING} else node.remedy,) if helped else ()),
        )
        for node in nodes
    ]
    yield from _table(("NODE", "SHORT", "RULES", *(("WHAT WOULD HELP",) if helped else ())), rows, width, right=(1,))


def preempting(answer: Explanation) -> str:
    """Return a sentence about the pod's victims; "" if there are none."""
    found = answer.preemption
    if found is None or answer.node not in {"", found.node}:
        return ""
    cards = _cards(found.cards)
    onto = f" and give it card {cards}" if cards else ""
    return f"Preemption would evict {some(found.victims, _MOST_PODS)} from node {found.node}{onto}."


def _groups(answer: Explanation, width: int) -> Iterator[str]:
    shown = answer.reasons[:_MOST_GROUPS]
    if not shown:
        return
    yield ""
    indent = " " * (max(len(str(group.nodes)) for group in (*shown,)) + 2)
    for group in shown:
        head = f"{group.nodes:>{len(indent) - 2}}{_GAP}"
        more = ", …" if group.nodes > len(group.examples) else ""
        example = "" if group.nodes == answer.nodes else f" ({', '.join(group.examples)}{more})"
        yield from textwrap.wrap(
            f"{head}{group.rule}: {group.reason}{example}", width, subsequent_indent=indent, break_long_words=False
        )
    if len(answer.reasons) > len(shown):
        yield f"{indent}and {len(answer.reasons) - len(shown)} more reasons"


def _node(answer: Explanation, node: ExplainedNode, width: int) -> Iterator[str]:
    if not node.rules:
        yield f"It fits on node {node.name}."
    for rejection in node.rules:
        cause = f" ({rejection.cause})" if rejection.cause else ""
        yield from _wrapped(f"Node {node.name}: {rejection.rule}: {rejection.reason}{cause}", width)
    if node.cards:
        models = sorted({card.model for card in node.cards})
        mixed = len(models) > 1
        if not mixed and models != [""]:
            yield from _wrapped(f"Its cards are all {models[0]}.", width)
        head = ("CARD", *(("MODEL",) if mixed else ()), "FREE", "NEEDED", "OF", "WHY NOT", "HELD-BY")
        namespace = answer.pod.partition("/")[0]
        rows = [_card(card, namespace, mixed=mixed) for card in node.cards]
        yield from _table(head, rows, width, right=range(1 + mixed, 4 + mixed))
        for why, indexes in _cut_off(node.cards):
            yield from _wrapped(f"Card{'s' if len(indexes) > 1 else ''} {', '.join(indexes)}: {why}.", width)
    if node.remedy == NOTHING:
        everywhere = len(answer.nearest) > 1 and all(one.remedy == NOTHING for one in answer.nearest)
        yield f"Nothing on {'these nodes' if everywhere else 'this node'} would help: {NOTHING}."
    elif node.remedy:
        yield from _wrapped(f"What would help: {node.remedy}.", width)


def _card(card: ExplainedCard, namespace: str, *, mixed: bool) -> tuple[str, ...]:
    pods = [held_by(one, namespace) for one in card.pods]
    numbers = (str(card.free), str(card.needed), str(card.units))
    model = (card.model[:_LONGEST_MODEL],) if mixed else ()
    why = card.why if len(card.why) <= _LONGEST_WHY else f"{card.why[: _LONGEST_WHY - 1]}…"
    return (str(card.index), *model, *numbers, why or "-", some(pods, _MOST_PODS) or "-")


def _cut_off(cards: Sequence[ExplainedCard]) -> list[tuple[str, list[str]]]:
    """Return (why, the indexes of its cards) for reasons that the table has no room for."""
    found: dict[str, list[str]] = {}
    for card in cards:
        if len(card.why) > _LONGEST_WHY:
            found.setdefault(card.why, []).append(str(card.index))
    return list(found.items())


def held_by(held: HeldUnits, namespace: str = "") -> str:
    """Return text such as `default/web (3)`. namespace: omitted from the names of its pods."""
    flags = ((held.exclusive, "alone"), (held.terminating, "terminating"), (held.nominated, "nominated"))
    words = ", ".join([str(held.units), *(text for is_so, text in flags if is_so)])
    return f"{held.pod.removeprefix(f'{namespace}/')} ({words})"


def _cards(cards: Mapping[int, int]) -> str:
    """Return the units by index."""
    return " and ".join(f"{index} ({units})" for index, units in sorted(cards.items()))


def _wrapped(sentence: str, width: int) -> list[str]:
    return textwrap.wrap(sentence, width, break_long_words=False, break_on_hyphens=False)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int, right: Sequence[int] = ()) -> Iterator[str]:
    """Align columns; the last one takes the remaining width and is cut."""
    lines = [tuple(head), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    last = max(_NARROWEST_LAST, width - sum(widths) - len(_GAP) * len(widths))
    for line in lines:
        cells = [
            cell.rjust(wide) if number in right else cell.ljust(wide)
            for number, (cell, wide) in enumerate(zip(line, widths, strict=False))
        ]
        end = line[-1].rjust(len(head[-1])) if len(head) - 1 in right else line[-1]
        cells.append(end if len(end) <= last else f"{end[: last - 1]}…")
        yield _GAP.join(cells).rstrip()
