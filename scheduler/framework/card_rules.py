"""Card rules of a profile that apply to one class of pods."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.framework.answers import PluginError, check_rejection, checked_scores
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import CardFilterPlugin, CardRejection, CardScorePlugin, CardSetPlugin
from scheduler.pods.pod import Pod
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows

if TYPE_CHECKING:
    from scheduler.state.tables import Tables


@dataclass(frozen=True, slots=True)
class CardRules:
    """Card rules for one class of pods, in the order of the profile.

    chooser: None if the card policy chooses. wakes_on: bits of Change that can alter the answers of these rules.
    """

    filters: tuple[CardFilterPlugin, ...] = ()
    scorers: tuple[CardScorePlugin, ...] = ()
    chooser: CardSetPlugin | None = None
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

    def chosen(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows, fits: BoolArray) -> RowArray | None:
        """Return intp[k, rows], the slots that the chooser takes; None if there is no chooser."""
        if self.chooser is None:
            return None
        slots = self.chooser.choose_cards(pod, tables, state, rows, fits)
        wanted = (0 if pod.template.gpu_request is None else pod.template.gpu_request.cards, fits.shape[1])
        if slots.shape != wanted or slots.dtype != np.intp:
            found = f"{slots.dtype}{slots.shape}"
            message = f"plugin {self.chooser.name}: the chosen cards: expected intp{list(wanted)}, found {found}"
            raise PluginError(message)
        return slots


NO_CARD_RULES: Final = CardRules()
# Written by the runtime for every class of pods.
CARD_RULES: Final = StateKey[CardRules]("framework.card_rules")
