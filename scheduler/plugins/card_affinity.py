"""CardAffinity: only cards that hold, or do not hold, certain pods of the same namespace."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np

from config.protocol import names
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    CardFilterPlugin,
    CardObjection,
    PreFilterPlugin,
    PreFilterResult,
    Rejected,
    Relevance,
)
from scheduler.pods.pod import Pod
from scheduler.pods.selector_text import SelectorError
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, Rows
from scheduler.state.columns.row_masks import count_of, places_of
from scheduler.state.columns.selectors import Expressions, match, of_text
from scheduler.state.columns.vocabulary import Vocabulary
from scheduler.state.facts.fact import CardFact

if TYPE_CHECKING:
    from scheduler.state.tables import Tables

APART: Final = f"node(s) had too few cards without a pod that {names.CARD_ANTI_AFFINITY} matches"
TOGETHER: Final = f"node(s) had too few cards with a pod that {names.CARD_AFFINITY} matches"
# Questions about all rows that are asked again before anything changes: of one decision.
_MOST_ANSWERS: Final = 4


@dataclass(frozen=True, slots=True)
class CardTerms:
    """What a pod asks. together: its cards hold a matching pod; apart: they hold none. None: no such annotation."""

    together: Expressions | None
    apart: Expressions | None


_TERMS: Final = StateKey[CardTerms]("card_affinity.terms")


class CardAffinity(PreFilterPlugin, CardFilterPlugin):
    """Rejects cards that do not hold a pod that `gpushare/card-affinity` selects, or hold one to keep away from.

    The annotations `gpushare/card-affinity` and `gpushare/card-anti-affinity` hold a label selector as `kubectl -l`
    takes it: `app=web,tier in (a, b),!canary`. Pods of the same namespace count that hold GPU memory on the card; one
    whose card is unknown counts on every card of its node. The first pod of a group that shall share a card leaves
    card-affinity out: nobody is there yet whom it could join. A pod that is there already keeps nobody away.

    - `node(s) had too few cards with a pod that gpushare/card-affinity matches`
    - `node(s) had too few cards without a pod that gpushare/card-anti-affinity matches`
    - `gpushare/card-affinity: "app in web": expected …`, for a selector that cannot be read
    """

    name: ClassVar[str] = "CardAffinity"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.CARDS | Change.COMPANY

    def signature(self, pod: Pod, tables: "Tables") -> Hashable:  # noqa: ARG002 - the pod says all
        """The selectors, and the namespace and labels that they are about."""
        texts = (pod.annotations.get(names.CARD_AFFINITY), pod.annotations.get(names.CARD_ANTI_AFFINITY))
        if texts == (None, None):
            return None
        return (*texts, pod.key.namespace, _matches_itself(pod, texts[1]))

    def pre_filter(self, pod: Pod, tables: "Tables", state: CycleState) -> PreFilterResult:  # noqa: ARG002 - as above
        """Read the selectors; leave pods alone that have none."""
        try:
            terms = CardTerms(
                _expressions(pod.annotations, names.CARD_AFFINITY),
                _expressions(pod.annotations, names.CARD_ANTI_AFFINITY),
            )
        except SelectorError as error:
            return Rejected(str(error))
        if terms == CardTerms(None, None):
            return Relevance.SKIP
        state.write(_TERMS, terms)
        return Relevance.JUDGE

    def filter_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[CardObjection]:
        """Cards without company that is wanted, and those with company that is not."""
        terms, holders = state.read(_TERMS), tables.fact(CardHolders)
        objections = []
        if terms.together is not None:
            objections.append(CardObjection(~holders.matching(pod.key.namespace, terms.together, rows), TOGETHER))
        if terms.apart is not None:
            objections.append(CardObjection(holders.matching(pod.key.namespace, terms.apart, rows), APART))
        return objections


# (namespace, labels) of one pod.
_Holder: TypeAlias = tuple[str, Mapping[str, str]]


@dataclass(slots=True)
class _Namespace:
    """Who of one namespace is where. sets: the different sets of labels; labels: each of them, by its code.

    on: row -> slot -> the codes of the pods there. everywhere: the last answers about all rows, until `on` changes.
    """

    sets: Vocabulary[frozenset[tuple[str, str]]] = field(default_factory=Vocabulary)
    labels: dict[int, Mapping[str, str]] = field(default_factory=dict)
    on: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    everywhere: dict[Expressions, BoolArray] = field(default_factory=dict)


class CardHolders(CardFact[_Holder]):
    """Whose pods are on which card, by namespace: a question about one namespace costs its own pods only.

    Pods with the same labels are asked about once, however many there are.
    """

    booking_change: ClassVar[Change] = Change.CARDS | Change.COMPANY

    def __init__(self, tables: "Tables") -> None:
        """Nobody."""
        super().__init__(tables)
        self._of: dict[str, _Namespace] = {}

    def read(self, pod: Pod) -> _Holder | None:
        """Of every pod that holds GPU memory."""
        return (pod.key.namespace, pod.labels) if pod.template.gpu_units else None

    def book(self, row: int, slots: tuple[int, ...], read: _Holder, sign: int) -> None:
        """As CardFact."""
        name, labels = read
        space = self._of.setdefault(name, _Namespace())
        space.everywhere.clear()
        as_set = frozenset(labels.items())
        on_cards = space.on.setdefault(row, {})
        for slot in slots:
            holders = on_cards.setdefault(slot, [])
            if sign > 0:
                code = space.sets.take(as_set)
                space.labels[code] = labels
                holders.append(code)
            elif (known := space.sets.code(as_set)) is not None:
                holders.remove(known)
                space.sets.drop(known)
            if not holders:
                del on_cards[slot]
        if not on_cards:
            del space.on[row]
        if not space.on:
            del self._of[name]

    def matching(self, namespace: str, selector: Expressions, rows: Rows) -> BoolArray:
        """bool[cards, rows]: a pod of the namespace that `selector` matches is on the card."""
        shape = (self.tables.cards.width, count_of(rows, self.tables.capacity))
        space = self._of.get(namespace)
        if space is None:
            return np.zeros(shape, dtype=np.bool_)
        if not (isinstance(rows, slice) and rows == ALL_ROWS):
            return _found(space, _once_per_values(selector), rows, shape)
        known = space.everywhere.get(selector)
        if known is None or known.shape != shape:
            if len(space.everywhere) >= _MOST_ANSWERS:
                space.everywhere.clear()
            known = space.everywhere[selector] = _found(space, _once_per_values(selector), rows, shape)
        return known.copy()


def _found(
    space: _Namespace, matches: Callable[[Mapping[str, str]], bool], rows: Rows, shape: tuple[int, int]
) -> BoolArray:
    found = np.zeros(shape, dtype=np.bool_)
    verdicts: dict[int, bool] = {}
    labels = space.labels
    slots, places = [], []
    for place, row in places_of(space.on, rows):
        for slot, codes in space.on[row].items():
            for code in codes:
                verdict = verdicts.get(code)
                if verdict is None:
                    verdict = verdicts[code] = matches(labels[code])
                if verdict:
                    slots.append(slot)
                    places.append(place)
                    break
    found[slots, places] = True
    return found


def _once_per_values(selector: Expressions) -> Callable[[Mapping[str, str]], bool]:
    """Whether labels match. Worked out once for all that have the same values of the keys that `selector` names."""
    keys = tuple({expression.key: None for expression in selector})
    known: dict[tuple[str | None, ...], bool] = {}

    def matches(labels: Mapping[str, str]) -> bool:
        values = tuple(map(labels.get, keys))
        verdict = known.get(values)
        if verdict is None:
            verdict = known[values] = match(selector, labels)
        return verdict

    return matches


def _expressions(annotations: Mapping[str, str], key: str) -> Expressions | None:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        return of_text(text)
    except SelectorError as error:
        message = f"{key}: {error}"
        raise SelectorError(message) from error


def _matches_itself(pod: Pod, text: str | None) -> bool:
    """Whether copies of the pod keep each other away; a selector that cannot be read keeps nobody away."""
    try:
        return text is not None and match(of_text(text), pod.labels)
    except SelectorError:
        return False
