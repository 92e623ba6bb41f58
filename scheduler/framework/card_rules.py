"""Card rules of a profile that apply to one class of pods."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.framework.answers import check_rejection, checked_scores
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import CardFilterPlugin, CardRejection, CardScorePlugin
from scheduler.pods.pod import Pod
from scheduler.state.columns.arrays import Int64Array, Rows

if TYPE_CHECKING:
    from scheduler.state.tables import Tables


@dataclass(frozen=True, slots=True)
class CardRules:
    """Card rules for one class of pods, in the order of the profile.

    wakes_on: bits of Change that can alter the answers of these rules.
    """

    filters: tuple[CardFilterPlugin, ...] = ()
    scorers: tuple[CardScorePlugin, ...] = ()
    wakes_on: int = 0

    def rejections(
        self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows, shape: tuple[int, ...]
    ) -> list[CardRejection]:
        """Return the rejections by the card filters for `rows`, in order. shape: (cards, rows)."""
        found = []
        for plugin in self.filters:
            for rejection in plugin.filter_cards(pod, tables, state, rows):
                check_rejection(plugin, rejection, shape)
                found.append(rejection)
        return found

    def scores(
        self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows, shape: tuple[int, ...]
    ) -> list[Int64Array]:
        """Return int64[cards, rows] for each scorer, most significant first. shape: (cards, rows)."""
        return [checked_scores(p, p.score_cards(pod, tables, state, rows), shape) for p in self.scorers]


class OnlyCards(CardFilterPlugin):
    """Rejects all cards except the given ones, on every row."""

    name = "OnlyCards"

    def __init__(self, slots: frozenset[int]) -> None:
        """slots: card slots of a row, as in `tables.cards`."""
        super().__init__()
        self._slots = slots

    def filter_cards(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[CardRejection]:  # noqa: ARG002 - as asked
        """Reject every other card."""
        rejected = np.ones(tables.cards.units[:, rows].shape, dtype=np.bool_)
        rejected[[slot for slot in self._slots if slot < len(rejected)]] = False
        return (CardRejection(rejected, "Insufficient GPU memory on one card"),)


NO_CARD_RULES: Final = CardRules()
# Written by the runtime for every class of pods.
CARD_RULES: Final = StateKey[CardRules]("framework.card_rules")
