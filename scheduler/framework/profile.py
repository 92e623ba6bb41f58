"""The plugins of one profile, and those of them that concern one class of pods."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from scheduler.framework.card_rules import NO_CARD_RULES, CardRules
from scheduler.framework.evaluation_cache import ClassRules, Weighted
from scheduler.framework.plugin import (
    CardFilterPlugin,
    CardScorePlugin,
    CardSetPlugin,
    FilterPlugin,
    Normalization,
    PermitPlugin,
    Plugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
)
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change

_BOOKINGS: Final = Change.BOOKINGS
_DOMAINS: Final = Change.DOMAINS


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Per extension point, in order. score: (plugin, weight)."""

    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    pre_filter: tuple[PreFilterPlugin, ...] = ()
    filter: tuple[FilterPlugin, ...] = ()
    score: tuple[Weighted, ...] = ()
    card_filter: tuple[CardFilterPlugin, ...] = ()
    card_score: tuple[CardScorePlugin, ...] = ()
    card_set: CardSetPlugin | None = None
    reserve: tuple[ReservePlugin, ...] = ()
    permit: tuple[PermitPlugin, ...] = ()
    pre_bind: tuple[PreBindPlugin, ...] = ()

    def judging(self) -> Iterator[Plugin]:
        """Each plugin that judges nodes or cards, once."""
        scorers = (plugin for plugin, _ in self.score)
        yield from dict.fromkeys((*self.pre_filter, *self.filter, *scorers, *self._of_cards(), *self.reserve))

    def card_rules(self, skipped: Collection[Plugin]) -> CardRules:
        """Those that PreFilter did not skip."""
        filters = tuple(plugin for plugin in self.card_filter if plugin not in skipped)
        scorers = tuple(plugin for plugin in self.card_score if plugin not in skipped)
        chooser = None if self.card_set in skipped else self.card_set
        return CardRules(filters, scorers, chooser) if filters or scorers or chooser else NO_CARD_RULES

    def class_rules(self, pod: Pod, skipped: Collection[Plugin]) -> ClassRules:
        """Those that PreFilter did not skip, and that score the pod."""
        filters = tuple(plugin for plugin in self.filter if plugin not in skipped)
        scoring = tuple((plugin, weight) for plugin, weight in self.score if plugin.scores(pod))
        kept = tuple(pair for pair in scoring if not _over_domains(pair[0]))
        plain = tuple(pair for pair in kept if pair[0].normalization is Normalization.NONE)
        normalized = tuple(pair for pair in kept if pair[0].normalization is not Normalization.NONE)
        return ClassRules(
            filters=filters,
            node_filters=tuple(plugin for plugin in filters if _of_node(plugin)),
            booking_filters=tuple(p for p in filters if not _of_node(p) and not _over_domains(p)),
            domain_filters=tuple(plugin for plugin in filters if _over_domains(plugin)),
            node_scorers=tuple(pair for pair in plain if _of_node(pair[0])),
            booking_scorers=tuple(pair for pair in plain if not _of_node(pair[0])),
            normalized=normalized,
            normalized_by_bookings=tuple(not _of_node(plugin) for plugin, _ in normalized),
            domain_scorers=tuple(pair for pair in scoring if _over_domains(pair[0])),
        )

    def wakes_on(self, plugin: Plugin) -> int:
        """Bits of what can make room where `plugin` rejected; who reserves cards rejects for the card rules too."""
        found = plugin.depends | Change.EXISTENCE
        if isinstance(plugin, ReservePlugin):
            for rule in self._of_cards():
                found |= rule.depends
        return int(found)

    def _of_cards(self) -> tuple[Plugin, ...]:
        return (*self.card_filter, *self.card_score, *(() if self.card_set is None else (self.card_set,)))


def _over_domains(plugin: Plugin) -> bool:
    return bool(plugin.depends & _DOMAINS)


def _of_node(plugin: Plugin) -> bool:
    return not plugin.depends & (_BOOKINGS | _DOMAINS)
