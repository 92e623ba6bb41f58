"""CardAffinity: only cards that hold, or do not hold, certain pods of the same namespace."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np

from config.protocol import names
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    CardFilterPlugin,
    CardRejection,
    PreFilterPlugin,
    PreFilterResult,
    Rejected,
    Relevance,
)
from scheduler.pods.pod import Pod
from scheduler.pods.selector_text import SelectorError
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import ALL_ROWS, FIRST_CAPACITY, BoolArray, Int32Array, Rows, resized
from scheduler.state.columns.label_sets import LabelSets
from scheduler.state.columns.row_masks import count_of, places_of
from scheduler.state.columns.selectors import Expressions, match, of_text
from scheduler.state.facts.fact import CardFact

if TYPE_CHECKING:
    from scheduler.state.tables import Tables


# (namespace, labels) of one pod.
_Holder: TypeAlias = tuple[str, Mapping[str, str]]
# Queries about all rows that one decision repeats before anything changes.
_MOST_ANSWERS: Final = 4
# Fewer rows are read one at a time.
_FEW_ROWS: Final = 64
_NOBODY: Final = -1


class CardHolders(CardFact[_Holder]):
    """Pods on each card by namespace, so that a query about one namespace examines only its own pods."""

    booking_change: ClassVar[Change] = Change.CARDS | Change.COMPANY

    def __init__(self, tables: "Tables") -> None:
        super().__init__(tables)
        self._of: dict[str, _Namespace] = {}

    def read(self, pod: Pod) -> _Holder | None:
        """Return the namespace and labels of a pod that holds GPU memory; None for other pods."""
        return (pod.key.namespace, pod.labels) if pod.template.gpu_units else None

    def book(self, row: int, slots: tuple[int, ...], read: _Holder, sign: int) -> None:
        name, labels = read
        space = self._of.get(name)
        if space is None:
            space = self._of[name] = _Namespace()
        for slot in slots:
            if sign > 0:
                space.enter(row, slot, labels)
            else:
                space.leave(row, slot, labels)
        if not space.on:
            del self._of[name]

    def matching(self, namespace: str, selector: Expressions, rows: Rows) -> BoolArray:
        """Return bool[cards, rows]: the card holds a pod of the namespace that `selector` matches."""
        width, capacity = self.tables.cards.width, self.tables.capacity
        space = self._of.get(namespace)
        if space is None:
            return np.zeros((width, count_of(rows, capacity)), dtype=np.bool_)
        if isinstance(rows, slice) and rows == ALL_ROWS:
            return space.everywhere(selector, (width, capacity)).copy()
        if count_of(rows, capacity) > _FEW_ROWS:
            return space.everywhere(selector, (width, capacity))[:, rows].copy()
        return space.matching(selector, rows, (width, count_of(rows, capacity)))


class _Namespace:
    """Pods of one namespace, with one entry for each pod on each card.

    code_at, row_at, slot_at: int32[entries], the code of the pod's labels, and the card. Pods with equal labels have
    the same code; a free entry has _NOBODY. on: row -> slot -> its entries.
    """

    def __init__(self) -> None:
        self.on: dict[int, dict[int, list[int]]] = {}
        self._sets = LabelSets()
        self._code_at: Int32Array = np.full(FIRST_CAPACITY, _NOBODY, dtype=np.int32)
        self._row_at: Int32Array = np.zeros(FIRST_CAPACITY, dtype=np.int32)
        self._slot_at: Int32Array = np.zeros(FIRST_CAPACITY, dtype=np.int32)
        self._free = list(range(FIRST_CAPACITY))
        self._everywhere: dict[Expressions, BoolArray] = {}

    def enter(self, row: int, slot: int, labels: Mapping[str, str]) -> None:
        """Add a pod with these labels to the card."""
        self._everywhere.clear()
        if not self._free:
            self._grow()
        entry = self._free.pop()
        self._code_at[entry], self._row_at[entry], self._slot_at[entry] = self._sets.take(labels), row, slot
        self.on.setdefault(row, {}).setdefault(slot, []).append(entry)

    def leave(self, row: int, slot: int, labels: Mapping[str, str]) -> None:
        """Remove a pod with these labels from the card."""
        self._everywhere.clear()
        code = self._sets.code(labels)
        if code is None:
            return
        on_cards = self.on[row]
        entry = next(entry for entry in on_cards[slot] if self._code_at[entry] == code)
        self._code_at[entry] = _NOBODY
        self._free.append(entry)
        on_cards[slot].remove(entry)
        if not on_cards[slot]:
            del on_cards[slot]
        if not on_cards:
            del self.on[row]
        self._sets.drop(code)

    def everywhere(self, selector: Expressions, shape: tuple[int, int]) -> BoolArray:
        """Return bool[cards, nodes]. Do not modify it."""
        found = self._everywhere.get(selector)
        if found is None or found.shape != shape:
            if len(self._everywhere) >= _MOST_ANSWERS:
                self._everywhere.clear()
            found = self._everywhere[selector] = np.zeros(shape, dtype=np.bool_)
            there = np.flatnonzero((self._code_at != _NOBODY) & (self._slot_at < shape[0]))
            there = there[self._sets.accepted(selector, self._code_at[there])]
            found[self._slot_at[there], self._row_at[there]] = True
        return found

    def matching(self, selector: Expressions, rows: Rows, shape: tuple[int, int]) -> BoolArray:
        """Return bool[cards, rows] for a few rows."""
        found = np.zeros(shape, dtype=np.bool_)
        matches = _once_per_values(selector)
        for place, row in places_of(self.on, rows):
            for slot, entries in self.on[row].items():
                found[slot, place] = any(map(matches, self._labels_of(entries)))
        return found

    def _labels_of(self, entries: list[int]) -> Iterator[Mapping[str, str]]:
        return (self._sets.labels(code) for code in dict.fromkeys(self._code_at[entries].tolist()))

    def _grow(self) -> None:
        entries = len(self._code_at)
        self._code_at = resized(self._code_at, (2 * entries,), _NOBODY)
        self._row_at = resized(self._row_at, (2 * entries,), 0)
        self._slot_at = resized(self._slot_at, (2 * entries,), 0)
        self._free = list(range(entries, 2 * entries))


def _once_per_values(selector: Expressions) -> Callable[[Mapping[str, str]], bool]:
    """Return a function that matches labels. It caches results by the values of the keys that `selector` names."""
    keys = tuple({expression.key: None for expression in selector})
    known: dict[tuple[str | None, ...], bool] = {}

    def matches(labels: Mapping[str, str]) -> bool:
        values = tuple(map(labels.get, keys))
        verdict = known.get(values)
        if verdict is None:
            verdict = known[values] = match(selector, labels)
        return verdict

    return matches


APART: Final = f"node(s) had too few cards without a pod that {names.CARD_ANTI_AFFINITY} matches"
TOGETHER: Final = f"node(s) had too few cards with a pod that {names.CARD_AFFINITY} matches"


@dataclass(frozen=True, slots=True)
class _CardTerms:
    """Card affinity of a pod. together: selects pods that its cards must hold; apart: must not hold; None if unset."""

    together: Expressions | None
    apart: Expressions | None


_TERMS: Final = StateKey[_CardTerms]("card_affinity.terms")


class CardAffinity(PreFilterPlugin, CardFilterPlugin):
    """Rejects cards without a pod that `gpushare/card-affinity` selects, or with one that the anti-affinity selects.

    The annotations `gpushare/card-affinity` and `gpushare/card-anti-affinity` hold a label selector in the syntax of
    `kubectl -l`: `app=web,tier in (a, b),!canary`. Pods of the same namespace that hold GPU memory on the card count; a
    pod whose card is unknown counts on every card of its node. The first pod of a group that shares a card must omit
    card-affinity, because there is no pod to join yet. The anti-affinity of a running pod does not affect new pods.

    - `node(s) had too few cards with a pod that gpushare/card-affinity matches`
    - `node(s) had too few cards without a pod that gpushare/card-anti-affinity matches`
    - `gpushare/card-affinity: "app in web": expected …`, for an invalid selector
    """

    name: ClassVar[str] = "CardAffinity"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.CARDS | Change.COMPANY

    def signature(self, pod: Pod, tables: "Tables") -> Hashable:  # noqa: ARG002 - the pod says all
        """Return the selectors, and the namespace and labels that they apply to."""
        texts = (pod.annotations.get(names.CARD_AFFINITY), pod.annotations.get(names.CARD_ANTI_AFFINITY))
        if texts == (None, None):
            return None
        return (*texts, pod.key.namespace, _matches_itself(pod, texts[1]))

    def pre_filter(self, pod: Pod, tables: "Tables", state: CycleState) -> PreFilterResult:  # noqa: ARG002 - as above
        """Read the selectors; skip pods without any."""
        try:
            terms = _CardTerms(
                _expressions(pod.annotations, names.CARD_AFFINITY),
                _expressions(pod.annotations, names.CARD_ANTI_AFFINITY),
            )
        except SelectorError as error:
            return Rejected(str(error))
        if terms == _CardTerms(None, None):
            return Relevance.SKIP
        state.write(_TERMS, terms)
        return Relevance.EVALUATE

    def filter_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[CardRejection]:
        """Reject cards without a pod that the affinity requires, and cards with one that the anti-affinity excludes."""
        terms, holders = state.read(_TERMS), tables.fact(CardHolders)
        rejections = []
        if terms.together is not None:
            rejections.append(CardRejection(~holders.matching(pod.key.namespace, terms.together, rows), TOGETHER))
        if terms.apart is not None:
            rejections.append(CardRejection(holders.matching(pod.key.namespace, terms.apart, rows), APART))
        return rejections


def _expressions(annotations: Mapping[str, str], key: str) -> Expressions | None:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        return of_text(text)
    except SelectorError as error:
        raise SelectorError(f"{key}: {error}") from error


def _matches_itself(pod: Pod, text: str | None) -> bool:
    """Return whether copies of the pod exclude each other; an unreadable selector excludes none."""
    try:
        return text is not None and match(of_text(text), pod.labels)
    except SelectorError:
        return False
